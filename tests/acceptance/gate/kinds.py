"""The real definitions of all job kinds on a site of these tests, and requests for their objects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from queuectl.kinds.jobs import JobKind
from queuectl.kinds.manifests import policy_name
from queuectl.kinds.podsets import Templates
from queuectl.kube.errors import ApiError
from queuectl.kube.session import JSON_PATCH, MERGE_PATCH
from tests import definitions
from tests.acceptance.gate.site import IN_FORCE_SECONDS, JOB, NAMESPACE, SUBMITTER, Json, Site
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS
from tests.rights import grant
from tests.unit.kinds.computed_objects import app_wrapper, spark_application, train_job
from tests.unit.kinds.kind_objects import sample

ROWS = tuple(
    row for row in JOB_KINDS if isinstance(row.podsets, Templates) and row.name not in ("Job", "PyTorchJob")
)
COMPUTED: dict[str, Callable[[], Json]] = {
    "TrainJob": train_job,
    "SparkApplication": spark_application,
    "AppWrapper": app_wrapper,
}
"""Kinds that have no pod templates of their own: what makes an object of each."""
COUNTS = {
    "TrainJob": ("spec", "trainer", "numNodes"),
    "SparkApplication": ("spec", "executor", "instances"),
    "AppWrapper": ("spec", "components", "0", "template", "spec", "parallelism"),
    "Job": ("spec", "parallelism"),
}
"""Where each of those, and a Job, has a number of pods."""
SIZES = {
    "Job": {"main": 2},
    "PyTorchJob": {"Master": 1, "Worker": 2},
    "TFJob": {"Chief": 1, "Worker": 2},
    "XGBoostJob": {"Master": 1, "Worker": 2},
    "PaddleJob": {"Worker": 2},
    "JAXJob": {"Worker": 2},
    "MPIJob": {"Launcher": 1, "Worker": 2},
    "MPIJob.v1.kubeflow.org": {"Launcher": 1, "Worker": 2},
    "JobSet": {"driver": 1, "workers": 2},
    "RayJob": {"head": 1, "workers": 2},
    "RayCluster": {"head": 1, "workers": 2},
    "RayService": {"head": 1, "workers": 2},
}
_SMALL = Path(__file__).with_name("definitions")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUPS = sorted({row.group for row in JOB_KINDS if row.custom})


@dataclass(frozen=True)
class Objects:
    """Objects of one kind on a site."""

    site: Site
    row: JobKind

    def _name(self, name: str) -> str:
        """Both kinds of MPIJob are the same objects here."""
        return f"{name}-{self.row.version}"

    @property
    def policy(self) -> str:
        """The name of the policy of its kind."""
        return policy_name(self.row)

    def path(self, name: str = "", subresource: str = "") -> str:
        row, name = self.row, self._name(name) if name else ""
        parts = ["apis", row.group, row.version, "namespaces", NAMESPACE, row.plural, name, subresource]
        return "/" + "/".join(part for part in parts if part)

    def body(self, name: str, *, suspend: bool = True) -> Json:
        if self.row.name == "Job":
            return JOB.body(self._name(name), suspend=suspend)
        made = COMPUTED.get(self.row.name)
        obj = sample(self.row, **SIZES[self.row.name]) if made is None else made()
        labels = obj["metadata"]["labels"]
        obj["metadata"] = {"name": self._name(name), "namespace": NAMESPACE, "labels": labels}
        holder: Any = obj
        for key in self.row.suspend[:-1]:
            holder = holder[key]
        holder[self.row.suspend[-1]] = suspend
        return obj

    @property
    def template(self) -> tuple[str, ...]:
        """Path of the last pod template."""
        assert isinstance(self.row.podsets, Templates)
        last = len(SIZES[self.row.name]) - 1
        found = self.row.podsets.template(list(SIZES[self.row.name])[last].lower(), last)
        return tuple(map(str, found or ()))

    @property
    def count(self) -> tuple[str, ...]:
        """Path of a number of pods."""
        if self.row.name == "JobSet":
            return ("spec", "replicatedJobs", "1", "replicas")
        return COUNTS.get(self.row.name) or (*self.template[:-1], "replicas")

    async def create(self, name: str, *, suspend: bool = True, **query: str) -> Json:
        body = self.body(name, suspend=suspend)
        return await self.site.tenant.request("POST", self.path(), body, query=query)

    async def read(self, name: str) -> Json:
        found: Json = await self.site.admin.request("GET", self.path(name))
        return found

    async def merge(self, user: str, name: str, change: Json, subresource: str = "") -> Json:
        client = getattr(self.site, user)
        found: Json = await client.request(
            "PATCH", self.path(name, subresource), change, content_type=MERGE_PATCH
        )
        return found

    async def patch(self, user: str, name: str, patch: list[Json], subresource: str = "") -> Json:
        client = getattr(self.site, user)
        found: Json = await client.request(
            "PATCH", self.path(name, subresource), patch, content_type=JSON_PATCH
        )
        return found


async def install(site: Site) -> None:
    """Define all kinds as their projects do, with all rights on them for the tenant. Waits for the gate."""
    for definition in _definitions():
        await site.admin.request("POST", _DEFINITIONS, definition)
    await grant_kinds(site, *_GROUPS)
    for row in (*ROWS, *(JOB_KINDS[name] for name in COMPUTED)):
        await eventually(partial(_in_force, Objects(site, row)), f"the gate on {row.name}", IN_FORCE_SECONDS)


async def grant_kinds(site: Site, *groups: str) -> None:
    """All rights on the kinds of these groups for the tenant."""
    rule = {"apiGroups": list(groups), "resources": ["*"], "verbs": ["*"]}
    await grant(site.admin, "tenant", "all-kinds", rule, namespace=NAMESPACE)


async def _in_force(objects: Objects) -> bool:
    """The server answers 404 until it serves a kind, and 503 until its mutating policies cover it."""
    try:
        made = await objects.create("probe", suspend=False, dryRun="All")
    except ApiError as error:
        if error.status not in (403, 404, 503):
            raise
        return error.status == 403 and not objects.site.mutating and objects.policy in str(error)
    return SUBMITTER in (made["metadata"].get("annotations") or {})


@functools.cache
def _definitions() -> tuple[Json, ...]:
    """Both kinds of MPIJob in one definition: their projects give theirs the same name."""
    names = ("tfjobs", "xgboostjobs", "paddlejobs", "jaxjobs")
    found = [_read(f"kubeflow.org_{name}") for name in names]
    both, older = _read("mpi-operator.kubeflow.org_mpijobs"), _read("kubeflow.org_mpijobs")
    both["spec"]["versions"] += [{**version, "storage": False} for version in older["spec"]["versions"]]
    small = [yaml.safe_load(path.read_text()) for path in sorted(_SMALL.glob("*.yaml"))]
    rest = (
        "jobset.x-k8s.io_jobsets",
        "trainer.kubeflow.org_trainjobs",
        "ray.io_rayjobs",
        "ray.io_rayclusters",
    )
    return (*found, both, *map(_read, rest), _ray_services(), *small)


def _ray_services() -> Json:
    """As that of RayJobs, with the spec of the RayCluster under its name in a RayService."""
    found = _read("ray.io_rayjobs")
    names = {"kind": "RayService", "listKind": "RayServiceList", "plural": "rayservices"}
    found["metadata"] = {"name": "rayservices.ray.io"}
    found["spec"]["names"] = {**names, "singular": "rayservice"}
    versions = [one for one in found["spec"]["versions"] if one["name"] == "v1"]
    for version in versions:
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        cluster = properties["spec"]["properties"]["rayClusterSpec"]
        properties["spec"] = {"type": "object", "properties": {"rayClusterConfig": cluster}}
        properties["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version.pop("additionalPrinterColumns", None)
    found["spec"]["versions"] = versions
    return found


def _read(name: str) -> Json:
    definition: Json = definitions.read(name)
    # A conversion by a webhook needs its operator.
    definition["spec"].pop("conversion", None)
    return definition
