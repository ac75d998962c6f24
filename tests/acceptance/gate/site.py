"""A real API server with the gate in force, clients with three identities, and the two job kinds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from queuectl.kinds.manifests import policy_name
from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH, MERGE_PATCH
from queuectl.sandbox.control_plane import CONTROLLER_USER, ControlPlane
from queuectl.sandbox.players.api import Client
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS
from tests.rights import grant

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
NAMESPACE = "team-a"
QUEUE = "queuectl.dev/queue-name"
ADMISSION = "queuectl.dev/reserved-admission"
SUBMITTER = "queuectl.dev/reserved-submitter"
AUTHOR = "queuectl.dev/reserved-author"
BYPASS = "queuectl.dev/reserved-bypass"
REASON = "queuectl.dev/bypass"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
IN_FORCE_SECONDS = 60
OLDEST = "1.33"
"""The oldest release that these binaries can emulate; the policies use only features that 1.30 has."""

Json = dict[str, Any]
JOB_RESOURCES = {
    "batch": ["jobs", "jobs/status"],
    "kubeflow.org": ["pytorchjobs", "pytorchjobs/status", "pytorchjobs/scale"],
}


@dataclass(frozen=True)
class Kind:
    """The fields of a job kind that the tests use."""

    name: str
    group: str
    plural: str
    suspend: tuple[str, ...]
    pods: tuple[str, ...]
    """Path of the number of pods, which a tenant may try to raise."""
    template: tuple[str, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def policy(self) -> str:
        """The name of its policy."""
        return policy_name(JOB_KINDS[self.name])

    def path(self, name: str = "", subresource: str = "") -> str:
        parts = ["apis", self.group, "v1", "namespaces", NAMESPACE, self.plural, name, subresource]
        return "/" + "/".join(part for part in parts if part)

    def body(self, name: str, *, suspend: bool | None = True, queue: str | None = "main") -> Json:
        """An object of 2 workers with one GPU each."""
        container = {"name": "c", "image": "train:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        # Defaults are spelled out, so that an object that is read and written back is the same.
        template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        spec: Json = {"parallelism": 2, "completions": 8, "template": template}
        if self.name == "PyTorchJob":
            container["name"] = "pytorch"
            spec = {
                "runPolicy": {"backoffLimit": 3},
                "pytorchReplicaSpecs": {
                    "Master": {"replicas": 1, "template": template},
                    "Worker": {"replicas": 2, "template": template},
                },
            }
        body: Json = {
            "apiVersion": f"{self.group}/v1",
            "kind": self.name,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        if queue is not None:
            body["metadata"]["labels"] = {QUEUE: queue}
        if suspend is not None:
            put(body, self.suspend, suspend)
        return body

    def suspended(self, obj: Json) -> bool:
        return bool(look(obj, self.suspend))

    def facts(self, obj: Json) -> Json:
        """All fields that a tenant must not change."""
        metadata = obj["metadata"]
        annotations: Mapping[str, str] = metadata.get("annotations") or {}
        return {
            "suspended": self.suspended(obj),
            "queue": (metadata.get("labels") or {}).get(QUEUE),
            "reserved": {
                key: value for key, value in annotations.items() if key.startswith("queuectl.dev/reserved-")
            },
            "pods": look(obj, self.pods),
            "template": look(obj, self.template),
        }


JOB = Kind("Job", "batch", "jobs", ("spec", "suspend"), ("spec", "parallelism"), ("spec", "template", "spec"))
_WORKER = ("spec", "pytorchReplicaSpecs", "Worker")
PYTORCH_JOB = Kind(
    "PyTorchJob",
    "kubeflow.org",
    "pytorchjobs",
    ("spec", "runPolicy", "suspend"),
    (*_WORKER, "replicas"),
    (*_WORKER, "template", "spec"),
)
KINDS = (JOB, PYTORCH_JOB)


def look(obj: Any, path: tuple[str | int, ...]) -> Any:
    """The value at `path`; None if the path does not exist."""
    for key in path:
        if isinstance(obj, Mapping):
            obj = obj.get(str(key))
        elif isinstance(obj, list) and isinstance(key, int) and key < len(obj):
            obj = obj[key]
        else:
            return None
    return obj


def put(obj: Json, path: tuple[str, ...], value: object) -> None:
    for key in path[:-1]:
        obj = obj.setdefault(key, {})
    obj[path[-1]] = value


def nested(path: tuple[str, ...], value: object) -> Json:
    """A merge patch that sets one field."""
    body: Json = {}
    put(body, path, value)
    return body


def by_hand(path: tuple[str, ...], reason: str = "the demo is at noon") -> Json:
    """A merge patch that starts an object past its queue: the field, and the reason in the same request."""
    return nested(path, False) | {"metadata": {"annotations": {REASON: reason}}}


def pointer(path: tuple[str, ...]) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in path)


@dataclass
class Site:
    plane: ControlPlane
    admin: Client
    tenant: Client
    controller: Client
    mutating: bool
    """The mutating policy is in force too."""

    async def kubectl(self, *arguments: str) -> tuple[int, str]:
        """Run kubectl as admin; returns its exit code and all its output."""
        process = await asyncio.create_subprocess_exec(
            self.plane.kubectl,
            f"--kubeconfig={self.plane.folder / 'kubeconfig'}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(60):
            output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def create(self, kind: Kind, name: str, **how: Any) -> Json:
        """Create a suspended object as the tenant."""
        return await self.tenant.request("POST", kind.path(), kind.body(name, **how))

    async def get(self, kind: Kind, name: str) -> Json:
        return await self.admin.request("GET", kind.path(name))

    async def merge(self, client: Client, kind: Kind, name: str, patch: Json, subresource: str = "") -> Json:
        return await client.request("PATCH", kind.path(name, subresource), patch, content_type=MERGE_PATCH)

    async def start(self, kind: Kind, name: str) -> Json:
        """Start it as the controller does."""
        obj = await self.get(kind, name)
        patch = start_patch(kind, obj)
        return await self.controller.request("PATCH", kind.path(name), patch, content_type=JSON_PATCH)

    async def running(self, kind: Kind, name: str) -> Json:
        await self.create(kind, name)
        return await self.start(kind, name)


def start_patch(kind: Kind, obj: Json, selector: Mapping[str, str] = {"pool": "a100"}) -> list[Json]:
    metadata = obj["metadata"]
    note: Json = {
        "op": "add",
        "path": pointer(("metadata", "annotations", ADMISSION)),
        "value": '{"attempt":1}',
    }
    if not metadata.get("annotations"):
        note = {"op": "add", "path": "/metadata/annotations", "value": {ADMISSION: '{"attempt":1}'}}
    toleration = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/generation", "value": metadata["generation"]},
        {"op": "test", "path": pointer(("metadata", "labels", QUEUE)), "value": "main"},
        note,
        {"op": "add", "path": pointer((*kind.template, "nodeSelector")), "value": dict(selector)},
        {"op": "add", "path": pointer((*kind.template, "tolerations")), "value": [toleration]},
        {"op": "add", "path": pointer(kind.suspend), "value": False},
    ]


# --- setup --------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(
    folder: Path,
    assets: Path,
    pytorch_crd: Path,
    *,
    emulated: str | None,
    mutating: bool,
    manifests: Path = MANIFESTS,
) -> AsyncIterator[Site]:
    """`manifests`: the folder, or a copy of it with those of further kinds."""
    async with (
        ControlPlane(folder, assets, emulated=emulated, controllers=False, fsync=False) as plane,
        AsyncExitStack() as stack,
    ):
        plane.write_kubeconfig(folder / "kubeconfig")
        clients = {
            name: await stack.enter_async_context(Client(plane.url, plane.ssl_context(), token))
            for name, token in plane.tokens.items()
        }
        site = Site(plane, clients["admin"], clients["tenant"], clients["controller"], mutating)
        await _prepare(site, pytorch_crd, manifests)
        yield site


async def _prepare(site: Site, pytorch_crd: Path, manifests: Path) -> None:
    crd = yaml.load(pytorch_crd.read_text(), yaml.CSafeLoader)
    await site.admin.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    for folder in (manifests, manifests / "mutating") if site.mutating else (manifests,):
        code, output = await site.kubectl("apply", "-k", str(folder))
        assert code == 0, output
    code, output = await site.kubectl("wait", "--for=condition=Established", "crd", "--all")
    assert code == 0, output
    for folder in (manifests / "examples", manifests / "authors")[: 1 + site.mutating]:
        code, output = await site.kubectl("apply", "-k", str(folder))
        assert code == 0, output
    # All rights on jobs, so that only the gate can refuse a request.
    rules = [
        {"apiGroups": [group], "resources": resources, "verbs": ["*"]}
        for group, resources in JOB_RESOURCES.items()
    ]
    for user in ("tenant", CONTROLLER_USER):
        await grant(site.admin, user, user, *rules, namespace=NAMESPACE)
    await _in_force(site)


async def _in_force(site: Site) -> None:
    """A policy takes effect some seconds after it is created: send dry runs until all policies apply."""
    probe = {"dryRun": "All"}
    for kind in KINDS:
        await _until(partial(_gated, site, kind, probe), f"{kind.policy} on {kind}")
        made = partial(site.controller.request, "POST", kind.path(), kind.body("probe"), query=probe)
        await _until(partial(_denied, made, kind.policy), f"{kind.policy} for the controller")
        await site.create(kind, "no-queue-probe", queue=None)
        path = kind.path("no-queue-probe")
        unqueued = partial(site.controller.request, "PATCH", path, {}, query=probe, content_type=MERGE_PATCH)
        await _until(partial(_denied, unqueued, "queuectl-self"), f"queuectl-self on {kind}")
    queues = "/apis/queuectl.dev/v1beta1/clusterqueues"
    lent = partial(site.admin.request, "POST", queues, _overlent(), query=probe)
    await _until(partial(_denied, lent, "queuectl-policies"), "queuectl-policies")
    await _until(partial(_authored, site, probe), "queuectl-authors")
    await site.create(PYTORCH_JOB, "probe")
    grown = partial(
        site.merge, site.tenant, PYTORCH_JOB, "probe", {"spec": {"replicas": 9}}, "scale?dryRun=All"
    )
    await _until(partial(_denied, grown, "queuectl-scale"), "queuectl-scale")
    await site.admin.request("DELETE", PYTORCH_JOB.path("probe"))


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    await eventually(condition, what, IN_FORCE_SECONDS)


async def _gated(site: Site, kind: Kind, probe: Mapping[str, str]) -> bool:
    body = kind.body("probe", suspend=False)
    if site.mutating:
        try:
            made = await site.tenant.request("POST", kind.path(), kind.body("probe"), query=probe)
        except ApiError as error:
            # The mutating policy applies to a new kind only after some time.
            if error.status != 503:
                raise
            return False
        if SUBMITTER not in (made["metadata"].get("annotations") or {}):
            return False
        body["metadata"]["annotations"] = {ADMISSION: "x"}
    return await _denied(partial(site.tenant.request, "POST", kind.path(), body, query=probe), kind.policy)


async def _authored(site: Site, probe: Mapping[str, str]) -> bool:
    path = "/apis/queuectl.dev/v1beta1/workloadpriorityclasses"
    forged: Json = {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "probe", "annotations": {AUTHOR: "another"}},
        "value": 1,
    }
    write = partial(site.admin.request, "POST", path, forged, query=probe)
    if not site.mutating:
        return await _denied(write, "queuectl-authors")
    try:
        return bool(look(await write(), ("metadata", "annotations", AUTHOR)) == "admin")
    except ApiError:
        return False  # 503 for up to 5 s, or the mutating policy is not in force yet


async def _denied(request: Callable[[], Awaitable[object]], policy: str) -> bool:
    try:
        await request()
    except ApiError as error:
        return policy in str(error)
    return False


def _overlent() -> Json:
    quota = {"name": "cpu", "nominalQuota": 1, "lendingLimit": 2}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "a100", "resources": [quota]}]}
    return {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "probe"},
        "spec": {"cohortName": "research", "resourceGroups": [group]},
    }
