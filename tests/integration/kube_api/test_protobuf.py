"""Objects in Kubernetes' protobuf form."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuectl.sandbox.kubernetes import protobuf
from queuectl.sandbox.kubernetes.wire import StatusError
from tests.integration.kube_api.client import Client, Json, configmap, job

MAGIC = b"k8s\x00"
_PROBE = {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 7, "timeoutSeconds": 1}
_SECRET = {"secretKeyRef": {"name": "s", "key": "a", "optional": False}}
_CONTAINER = {
    "name": "main",
    "image": "registry/image:1",
    "command": ["sh", "-c", "true"],
    "env": [{"name": "A", "value": "B"}, {"name": "S", "valueFrom": _SECRET}],
    "ports": [{"name": "web", "containerPort": 80}],
    "livenessProbe": _PROBE,
    "resources": {"limits": {"cpu": "1500m", "nvidia.com/gpu": "2"}},
    "securityContext": {"runAsUser": 0, "privileged": False},
    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch", "readOnly": True}],
}
_POD = {
    "restartPolicy": "Never",
    "containers": [_CONTAINER],
    "nodeSelector": {"gpu": "a100"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
    "terminationGracePeriodSeconds": 0,
    "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "m", "configMap": {"name": "m"}}],
}
_RULE = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42, 137]}}
_SPEC: Json = {"parallelism": 0, "suspend": True, "template": {"spec": _POD}}
_SPEC |= {"podFailurePolicy": {"rules": [_RULE]}, "backoffLimitPerIndex": 0, "completionMode": "Indexed"}
_BUDGET = {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}
OBJECTS: dict[str, tuple[str, Json]] = {
    "Job": ("/apis/batch/v1/namespaces/{}/jobs", {"spec": {**_SPEC, "completions": 3}}),
    "CronJob": (
        "/apis/batch/v1/namespaces/{}/cronjobs",
        {"spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job("a")["spec"]}}},
    ),
    "Secret": ("/api/v1/namespaces/{}/secrets", {"data": {"a": "AP8=", "empty": ""}, "immutable": False}),
    "ResourceQuota": ("/api/v1/namespaces/{}/resourcequotas", {"spec": {"hard": {"cpu": "1500m"}}}),
    "PodDisruptionBudget": ("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", {"spec": _BUDGET}),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": -5, "description": "low"}),
    "Lease": (
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        {"spec": {"holderIdentity": "a", "renewTime": "2026-01-02T03:04:05.000678Z"}},
    ),
}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("kind", OBJECTS)
async def test_a_client_that_accepts_protobuf_reads_the_same_object(api: Client, kind: str) -> None:
    """The real server answers in protobuf, the small one in JSON; kubectl accepts both."""
    pattern, body = OBJECTS[kind]
    path = pattern.format(api.namespace)
    name = f"{api.namespace}-a"
    await api.create(path, {"metadata": {"name": name, "labels": {"a": "b"}}, **body})
    accepted = {"Accept": f"{protobuf.MEDIA},application/json"}
    async with api.session.get(f"{path}/{name}", headers=accepted) as response:
        sent = await response.read()
        small = api.server.sort == "small"
        assert response.content_type == ("application/json" if small else protobuf.MEDIA)
    found = orjson.loads(sent) if small else protobuf.decode(sent)
    shown = await api.get(f"{path}/{name}")
    for obj in (found, shown):
        obj.pop("status", None)  # its controller may have written it meanwhile
        for field in ("managedFields", "resourceVersion"):
            obj["metadata"].pop(field, None)
    assert _without_empty(found) == _without_empty(shown)


def _without_empty(value: Any) -> Any:
    """Without the fields that Go writes as JSON though they are not set."""
    if not isinstance(value, dict):
        return [_without_empty(item) for item in value] if isinstance(value, list) else value
    kept = {name: _without_empty(item) for name, item in value.items()}
    return {name: item for name, item in kept.items() if name == "emptyDir" or item not in ({}, None)}


@given(st.binary(max_size=60))
def test_any_other_bytes_are_refused(body: bytes) -> None:
    for text in (body, MAGIC + body):
        with pytest.raises(StatusError) as caught:
            protobuf.decode(text)
        assert caught.value.code in (400, 415)


@given(st.data())
def test_a_body_that_is_cut_or_changed_is_read_or_refused(data: st.DataObject) -> None:
    """Never another error: a hostile body costs one answer."""
    body = bytearray(_SENT[: data.draw(st.integers(4, len(_SENT)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if len(body) > len(MAGIC):
            body[data.draw(st.integers(len(MAGIC), len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(StatusError):
        assert isinstance(protobuf.decode(bytes(body)), dict)


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def _sent(kind: str, message: bytes) -> bytes:
    return MAGIC + _field(1, _field(1, b"v1") + _field(2, kind.encode())) + _field(2, message)


_METADATA = _field(1, _field(1, b"a") + _field(11, _field(1, b"team") + _field(2, b"red")))
_SENT = _sent("ConfigMap", _METADATA + _field(2, _field(1, b"k") + _field(2, b"v")))


def test_a_config_map_is_read() -> None:
    assert protobuf.decode(_SENT) == configmap("a", {"k": "v"}, labels={"team": "red"})


def test_a_kind_that_is_not_built_in_is_refused_with_the_form_to_send() -> None:
    with pytest.raises(StatusError, match="v1 Nosuch is not accepted as protobuf: send application/json"):
        protobuf.decode(_sent("Nosuch", b""))
