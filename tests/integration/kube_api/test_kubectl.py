"""The small and the real API, used by kubectl."""

from __future__ import annotations

import pytest

from tests.integration.kube_api.client import Client, job, pytorchjob
from tests.integration.kube_api.kubectl import Kubectl

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_create_get_and_describe(kubectl: Kubectl) -> None:
    assert await kubectl("create", "-f", "-", stdin=job("a")) == "job.batch/a created\n"
    assert "already exists" in await kubectl("create", "-f", "-", stdin=job("a"), fails=True)
    heading, row = (await kubectl("get", "jobs")).splitlines()
    assert heading.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row.split()[:3] == ["a", "Suspended", "0/1"]
    assert await kubectl("get", "job/a", "-o", "jsonpath={.spec.suspend}") == "true"
    assert (await kubectl("get", "jobs", "-o", "name")) == "job.batch/a\n"
    described = await kubectl("describe", "job", "a")
    assert "registry/image:1" in described
    assert 'jobs.batch "b" not found' in await kubectl("get", "job", "b", fails=True)


async def test_apply_creates_configures_and_leaves_alone(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", stdin=job("a")) == "job.batch/a created\n"
    assert await kubectl("apply", "-f", "-", stdin=job("a")) == "job.batch/a unchanged\n"
    assert await kubectl("apply", "-f", "-", stdin=job("a", parallelism=2)) == "job.batch/a configured\n"
    assert await kubectl("get", "job", "a", "-o", "jsonpath={.spec.parallelism}") == "2"


async def test_label_annotate_and_patch(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=job("a"))
    assert await kubectl("label", "job", "a", "team=red") == "job.batch/a labeled\n"
    assert await kubectl("annotate", "job", "a", "note=hello") == "job.batch/a annotated\n"
    assert await kubectl("get", "jobs", "-l", "team=red", "-o", "name") == "job.batch/a\n"
    await kubectl("patch", "job", "a", "-p", '{"spec":{"parallelism":3}}')
    await kubectl("patch", "job", "a", "--type=merge", "-p", '{"spec":{"backoffLimit":1}}')
    await kubectl(
        "patch", "job", "a", "--type=json", "-p", '[{"op":"replace","path":"/spec/suspend","value":false}]'
    )
    shown = await kubectl(
        "get", "job", "a", "-o", "jsonpath={.spec.parallelism} {.spec.backoffLimit} {.spec.suspend}"
    )
    assert shown == "3 1 false"
    assert "field is immutable" in await kubectl(
        "patch", "job", "a", "-p", '{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}', fails=True
    )


async def test_wait_and_delete(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=job("a"))
    await kubectl("wait", "--for=jsonpath={.spec.suspend}=true", "job/a", "--timeout=10s")
    timed_out = await kubectl("wait", "--for=condition=Complete", "job/a", "--timeout=1s", fails=True)
    assert "timed out" in timed_out
    assert 'job.batch "a" deleted' in await kubectl("delete", "job", "a", "--timeout=20s")
    assert "not found" in await kubectl("get", "job", "a", fails=True)


async def test_events_are_shown_where_the_object_is_described(kubectl: Kubectl, api: Client) -> None:
    created = await api.create(api.jobs, job("a"))
    about = {"apiVersion": "batch/v1", "kind": "Job", "namespace": api.namespace, "name": "a"}
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a.1", "namespace": api.namespace},
        "regarding": {**about, "uid": created["metadata"]["uid"]},
        "reason": "Pending",
        "note": "short by 3 nvidia.com/gpu",
        "type": "Normal",
        "action": "Queue",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "queuectl.dev/controller",
        "reportingInstance": "one",
    }
    await api.create(f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events", event)
    assert "short by 3 nvidia.com/gpu" in await kubectl("describe", "job", "a")
    assert "Pending" in await kubectl("get", "events")


async def test_custom_resources_have_columns_and_strict_validation(kubectl: Kubectl, pytorch: None) -> None:
    body = pytorchjob("a")
    assert await kubectl("apply", "-f", "-", stdin=body) == "pytorchjob.kubeflow.org/a created\n"
    assert await kubectl("apply", "-f", "-", stdin=body) == "pytorchjob.kubeflow.org/a unchanged\n"
    heading, row = (await kubectl("get", "pytorchjobs")).splitlines()
    assert heading.split() == ["NAME", "STATE", "AGE"]
    assert row.split()[0] == "a"
    body["spec"]["unknown"] = 1
    assert 'unknown field "spec.unknown"' in await kubectl("apply", "-f", "-", stdin=body, fails=True)
    assert "PyTorchJob" in await kubectl("describe", "pytorchjob", "a")


async def test_kubectl_can_list_api_resources_and_the_version(kubectl: Kubectl) -> None:
    resources = await kubectl("api-resources", "--namespaced=true", "-o", "name")
    assert {"pods", "jobs.batch", "events", "leases.coordination.k8s.io"} <= set(resources.split())
    assert "v1." in await kubectl("version")
