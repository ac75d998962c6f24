"""LimitRanges and ResourceQuotas: our verdict about a Job is the real API server's about its pods."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio

from queuectl.core.features.feature_set import new_state
from queuectl.core.model.events import ContextObserved
from queuectl.core.model.pod_limits import LimitRange, NamespaceQuota
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.workload import Workload
from queuectl.core.observed_events import fold
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.requests import pod_requests
from queuectl.kinds.workloads import observe
from queuectl.kube.errors import ApiError, Forbidden, Invalid
from queuectl.kube.session import Session, api_path
from queuectl.sandbox.control_plane import ControlPlane, find_assets
from tests.integration.kube.sites import job, served
from tests.integration.sandbox.polling import eventually
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
NUMBERS = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    assets = find_assets()
    if assets is None:
        pytest.skip("KUBEBUILDER_ASSETS is not set: the real API server is not tried")
    folder = tmp_path_factory.mktemp("plane")
    async with ControlPlane(folder / "plane", assets, fsync=False) as plane:
        plane.write_kubeconfig(folder / "kubeconfig")
        async with served(folder / "kubeconfig", None) as site:
            yield site.session


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(120):
        yield


class Place:
    """A namespace with LimitRanges and ResourceQuotas."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name
        self.state, self.features = new_state(frozenset())
        self.charges = self.state.directory.pods

    def path(self, plural: str, name: str | None = None, group: str = "", version: str = "v1") -> str:
        return api_path(group, version, plural, self.name, name)

    async def limit(self, *items: Json) -> None:
        await self._add("LimitRange", {"limits": list(items)})

    async def quota(self, used: Mapping[str, str] | None = None, **spec: Any) -> None:
        """The ResourceQuota controller does not run: its status is written here."""
        made = await self._add("ResourceQuota", spec)
        status = {"hard": spec["hard"], "used": {**dict.fromkeys(spec["hard"], "0"), **(used or {})}}
        path = self.path("resourcequotas", made["metadata"]["name"])
        self._observe("ResourceQuota", await self.session.patch(f"{path}/status", {"status": status}))

    async def _add(self, kind: str, spec: Json) -> Json:
        row = CONTEXT_KINDS[kind]
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"generateName": "x-"}, "spec": spec}
        made = await self.session.create(self.path(row.plural), body)
        self._observe(kind, made)
        return made

    def _observe(self, kind: str, obj: Json) -> None:
        value = CONTEXT_KINDS[kind].read(obj)
        assert isinstance(value, LimitRange | NamespaceQuota)
        fold(self.state, [ContextObserved(value)])

    async def workload(self, spec: Json, **fields: Any) -> Workload:
        """A Job with pods of this spec, as the API server stores it."""
        body = job(f"job-{next(NUMBERS)}", template={"spec": {"restartPolicy": "Never", **spec}}, **fields)
        body["metadata"]["namespace"] = self.name
        made = await self.session.create(self.path("jobs", group="batch"), body)
        event = observe(JOB_KINDS["Job"], made)
        assert event is not None
        assert event.workload.problem is None, event.workload.problem.message
        return event.workload

    async def pod(self, spec: Json) -> Json | None:
        """The pod that the API server would create; None: it refuses it."""
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}

        found: Json | None = None

        async def answered() -> bool:
            nonlocal found
            try:
                found = await self.session.request("POST", self.path("pods"), body, query={"dryRun": "All"})
            except (Forbidden, Invalid) as error:
                return "status unknown" not in str(error)  # else it has not seen the status yet
            return True

        await eventually(answered, "the status of the ResourceQuota")
        return found


@pytest_asyncio.fixture(loop_scope="module")
async def place(session: Session) -> Place:
    name = f"place-{next(NUMBERS)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await session.create(api_path("", "v1", "namespaces"), body)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    with suppress(ApiError):  # its controller may be faster
        await session.create(api_path("", "v1", "serviceaccounts", name), account)
    return Place(session, name)


def pod(*containers: Json, **spec: Any) -> Json:
    named = [{"name": f"c{n}", "image": "i", **one} for n, one in enumerate(containers)]
    return {"containers": named, **spec}


def container(requests: Json | None = None, limits: Json | None = None) -> Json:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


SIDECAR = {"name": "side", "image": "i", "restartPolicy": "Always", **container({"cpu": "300m"})}
FIRST = {"name": "first", "image": "i", **container({"cpu": "1500m"})}
PODS = {
    "nothing named": pod(container()),
    "a small request": pod(container({"cpu": "100m", "memory": "64Mi"})),
    "a limit alone": pod(container(None, {"cpu": "1", "memory": "1Gi"})),
    "a large limit": pod(container({"cpu": "1"}, {"cpu": "4"})),
    "a request above any default": pod(container({"cpu": "3", "memory": "3Gi"})),
    "two containers": pod(container({"cpu": "700m"}), container({"cpu": "700m"})),
    "an init container": pod(container({"cpu": "100m"}), initContainers=[FIRST]),
    "a sidecar before an init container": pod(container({"cpu": "1"}), initContainers=[SIDECAR, FIRST]),
    "resources of the pod": pod(container(), resources={"limits": {"cpu": "1", "memory": "1Gi"}}),
    "a pod's limit beside requests": pod(
        container({"memory": "1Gi"}), container(), resources={"limits": {"cpu": "1"}}
    ),
    "a GPU": pod(container(None, {GPU: "1", "cpu": "1", "memory": "1Gi"})),
    "a deadline": pod(container({"cpu": "100m"}), activeDeadlineSeconds=60),
}
LIMITS: dict[str, list[Json]] = {
    "defaults": [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "250m"}}],
    "a maximum, which is a default too": [{"type": "Container", "max": {"cpu": "2", "memory": "2Gi"}}],
    "a minimum": [{"type": "Container", "min": {"cpu": "200m"}}],
    "a ratio": [{"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}],
    "a ratio with a fraction": [
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "1.5"}, "defaultRequest": {"cpu": "1"}}
    ],
    "no GPU": [{"type": "Container", "max": {GPU: "0"}}],
    "the pod": [{"type": "Pod", "max": {"cpu": "1200m"}}],
    "the pod at least": [{"type": "Pod", "min": {"memory": "100Mi"}}],
    "the pod's ratio, with defaults": [
        {"type": "Pod", "maxLimitRequestRatio": {"cpu": "3"}},
        {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}},
    ],
    "volumes only": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}],
}
QUOTAS: dict[str, Json] = {
    "cpu": {"hard": {"cpu": "1"}},
    "limits": {"hard": {"limits.cpu": "2", "limits.memory": "1Gi"}},
    "requests": {"hard": {"requests.cpu": "1200m", "requests.memory": "512Mi"}},
    "no GPU": {"hard": {f"requests.{GPU}": "0"}},
    "no pods": {"hard": {"pods": "0"}},
    "pods and services": {"hard": {"pods": "1", "services": "0", "count/jobs.batch": "100"}},
    "pods without a deadline": {"hard": {"pods": "0"}, "scopes": ["NotTerminating"]},
    "pods with a deadline": {"hard": {"pods": "0"}, "scopes": ["Terminating"]},
    "best effort": {"hard": {"pods": "0"}, "scopes": ["BestEffort"]},
    "not best effort": {"hard": {"pods": "0"}, "scopes": ["NotBestEffort"]},
    "a priority class that none has": {
        "hard": {"pods": "0"},
        "scopeSelector": {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
        },
    },
    "ephemeral storage, which no container names": {"hard": {"requests.ephemeral-storage": "1"}},
}


async def agree(place: Place, spec: Json) -> Reason | None:
    """Our verdict, after a comparison with the server's."""
    workload = await place.workload(spec)
    ours, theirs = place.charges.problem(workload, "cq"), await place.pod(spec)
    assert (ours is None) == (theirs is not None), ours.message if ours else "refused by the server alone"
    if theirs is not None:
        (charge,) = place.charges.charges(workload)
        assert charge.requests == pod_requests(theirs["spec"], "spec")
    return ours


@pytest.mark.parametrize("limits", LIMITS)
async def test_a_limit_range_refuses_and_completes_the_pods_that_we_say(place: Place, limits: str) -> None:
    await place.limit(*LIMITS[limits])
    verdicts = [await agree(place, spec) for spec in PODS.values()]
    assert None in verdicts
    assert {reason.code for reason in verdicts if reason} <= {Code.MISCONFIGURED}
    assert any(verdicts) is (limits != "volumes only")


@pytest.mark.parametrize("quota", QUOTAS)
async def test_a_resource_quota_refuses_the_pods_that_we_say(place: Place, quota: str) -> None:
    await place.quota(**QUOTAS[quota])
    verdicts = [await agree(place, spec) for spec in PODS.values()]
    refuses = quota not in ("pods and services", "a priority class that none has") and "storage" not in quota
    assert any(verdicts) is refuses


async def test_a_resource_quota_that_is_in_use_has_room_for_the_pods_that_we_say(place: Place) -> None:
    await place.quota(used={"requests.cpu": "2", "pods": "1"}, hard={"requests.cpu": "3", "pods": "2"})
    room, found = place.features.namespace_quota.room, set()
    for spec in (pod for name, pod in PODS.items() if name not in ("nothing named", "a limit alone")):
        workload = await place.workload(spec)
        if place.charges.problem(workload, "cq") is None:
            ours = room.lacking(workload, {})
            assert (ours is None) == (await place.pod(spec) is not None), ours
            found.add(ours and ours.code)
    assert found == {None, Code.WAITING_FOR_RESOURCE_QUOTA}


async def test_defaults_of_a_limit_range_meet_what_a_resource_quota_requires(place: Place) -> None:
    await place.limit({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}})
    await place.quota(hard={"requests.cpu": "1", "limits.cpu": "2"})
    verdicts = {name: await agree(place, spec) for name, spec in PODS.items()}
    assert verdicts["nothing named"] is None
    assert verdicts["an init container"] is not None


async def test_random_pods_are_judged_as_the_server_judges_them(place: Place) -> None:
    dice = random.Random(33)
    amounts = ("100m", "250m", "500m", "1", "1500m", "2", "3")
    await place.limit(
        {
            "type": "Container",
            "min": {"cpu": "100m"},
            "max": {"cpu": "2"},
            "default": {"cpu": "1"},
            "defaultRequest": {"cpu": "500m"},
            "maxLimitRequestRatio": {"cpu": "4"},
        },
        {"type": "Pod", "max": {"cpu": "3500m"}},
    )
    await place.quota(hard={"requests.cpu": "2500m", "pods": "4"})

    def one() -> Json:
        request, limit = (dice.choice((None, *amounts)) for _ in range(2))
        if request and limit and amounts.index(request) > amounts.index(limit):
            request, limit = limit, request
        return container({"cpu": request} if request else {}, {"cpu": limit} if limit else {})

    verdicts = []
    for _ in range(60):
        inits = [
            {"name": f"i{n}", "image": "i", **one(), **dice.choice(({}, {"restartPolicy": "Always"}))}
            for n in range(dice.randrange(3))
        ]
        spec = pod(*(one() for _ in range(dice.randrange(1, 3))), initContainers=inits)
        verdicts.append(await agree(place, spec))
    assert 10 < sum(verdict is None for verdict in verdicts) < 50


@pytest.mark.parametrize(
    ("pods", "count"), [("nothing named", 5), ("a small request", 11), ("a large limit", 1)]
)
async def test_the_job_controller_makes_the_pods_of_what_we_let_pass(
    place: Place, pods: str, count: int
) -> None:
    await place.limit({"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "200m"}})
    await place.quota(hard={"requests.cpu": "1"})
    workload = await place.workload(PODS[pods], parallelism=count, completions=count)
    path = place.path("jobs", workload.ref.name, group="batch")
    await place.session.patch(path, {"spec": {"suspend": False}})

    async def refused() -> bool:
        query = {"fieldSelector": f"involvedObject.uid={workload.id},reason=FailedCreate"}
        return bool((await place.session.get(place.path("events"), query=query))["items"])

    async def made() -> bool:
        status: Json = (await place.session.get(path)).get("status", {})
        return status.get("active") == count

    ours = place.charges.problem(workload, "cq")
    await eventually(made if ours is None else refused, "the Job controller")
    assert (ours is None) == (pods != "a small request")
