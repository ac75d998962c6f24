"""LeaderWorkerSets by their real controller: each replica, a leader and its workers, is a pod group."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
import yaml

from queuectl.kube.errors import ApiError
from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.e2e import real_operator, test_single_pods
from tests.acceptance.e2e.cohort import priority
from tests.acceptance.e2e.conftest import GATE, TODAY
from tests.acceptance.e2e.site import GPU, Json, Site, eventually, pod
from tests.acceptance.e2e.test_single_pods import LABEL
from tests.acceptance.e2e.world import World
from tests.acceptance.operators.programs import LWS, find_operators

BINARIES = find_operators()
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.queued_pods,
    pytest.mark.usefixtures("controller"),
    pytest.mark.skipif(TODAY == "small", reason="the small API has no controllers of apps/v1"),
    pytest.mark.skipif(BINARIES is None, reason="QUEUECTL_OPERATORS is not set: there is no LWS"),
]
world = test_single_pods.world
GROUP = "queuectl.dev/pod-group-name"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def controller(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
    """LeaderWorkerSets are served, and their controller runs."""
    assert BINARIES is not None
    async with real_operator.running(LWS, BINARIES, site, tmp_path_factory.mktemp("lws")):
        yield


@dataclass
class Replicas:
    """A LeaderWorkerSet."""

    world: World
    path: str
    name: str

    async def merge(self, spec: Json) -> None:
        await self.world.api.request("PATCH", self.path, {"spec": spec}, content_type=MERGE_PATCH)

    async def pods(self, group: int | None = None) -> list[Json]:
        """Those that are not being deleted."""
        key = f"leaderworkerset.sigs.k8s.io/name={self.name}"
        if group is not None:
            key += f",{GROUP}={self.name}-{group}"
        listed = await self.world.api.request("GET", self.world.path("Pod"), query={"labelSelector": key})
        return [one for one in listed["items"] if not one["metadata"].get("deletionTimestamp")]

    async def are(self, group: int | None = None, *, running: int, gated: int) -> list[Json]:
        """Wait for these numbers of pods; returns them."""

        async def look() -> tuple[list[Json]] | None:
            found = await self.pods(group)
            runs = sum((one.get("status") or {}).get("phase") == "Running" for one in found)
            waits = sum(map(_waits, found))
            as_wanted = (runs, waits, len(found)) == (running, gated, running + gated)
            return (found,) if as_wanted else None

        what = f"{running} pods of {self.name} run and {gated} wait"
        try:
            (found,) = await eventually(what, look)
        except AssertionError as error:
            raise AssertionError(f"{error}: {[_facts(one) for one in await self.pods()]}") from None
        listed: list[Json] = found
        return listed


def _facts(one: Json) -> tuple[str, str, bool, str]:
    gates = bool(one["spec"].get("schedulingGates"))
    return (
        one["metadata"]["name"],
        one["metadata"]["labels"].get(GROUP, ""),
        gates,
        one["status"].get("phase"),
    )


def server(*, replicas: int, size: int, gpus: int = 1, **spec: object) -> Json:
    """With a GPU for each leader, and `gpus` for each worker."""

    def template(gpus: int) -> Json:
        return {
            "metadata": {"labels": {"queuectl.dev/queue-name": "main"}},
            "spec": {**pod("unused", gpus=gpus)["spec"], "restartPolicy": "Always"},
        }

    templates = {"leaderTemplate": template(1), "workerTemplate": template(gpus)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "server"},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": size, **templates}, **spec},
    }


@asynccontextmanager
async def made(world: World, body: Json, user: str | None = None) -> AsyncIterator[Replicas]:
    """Created by `user`, or an admin."""
    collection = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{world.namespace}/leaderworkersets"

    async def create() -> bool:
        if user is not None:
            created = ("create", "-n", world.namespace, f"--as={user}", "-f", "-")
            said = await world.site.kubectl(*created, stdin=yaml.safe_dump(body))
            return said.code == 0
        try:
            await world.api.request("POST", collection, body)
        except ApiError as error:
            if error.status not in (404, 500, 503):  # not served yet, or not its webhook
                raise
            return False
        return True

    await eventually("the LeaderWorkerSet is created", create)
    name = body["metadata"]["name"]
    found = Replicas(world, f"{collection}/{name}", name)
    yield found
    await world.api.request("DELETE", found.path, {"propagationPolicy": "Background"})
    await found.are(running=0, gated=0)
    await world.nothing_used(world.namespace)


async def test_each_replica_of_the_page_on_serving_starts_as_a_whole(world: World) -> None:
    await test_single_pods.class_of_page(world)
    (text,) = (one for one in test_single_pods._of_page("yaml") if "LeaderWorkerSet" in one)
    misplaced = yaml.safe_load(text)
    misplaced["metadata"] |= {"name": "other", "labels": {"queuectl.dev/queue-name": "main"}}
    async with made(world, yaml.safe_load(text)) as found:
        dry_run = ("create", "--dry-run=server", "-n", world.namespace, "-f", "-")
        said = await world.site.kubectl(*dry_run, stdin=yaml.safe_dump(misplaced))
        assert "queuectl does not queue leaderworkersets: the label" in said.err
        await found.are(running=8, gated=0)
        await found.merge({"replicas": 3})
        await found.are(running=8, gated=4)
        reason = await world.reason_is("server-2", "WaitingForQuota", "PodGroup")
        assert reason["shortBy"] == 4
        listed = (await world.site.queuectl("get", "workloads", "-n", world.namespace, "-o", "json")).json
        assert sorted((one["kind"], one["name"]) for one in listed["items"]) == [
            ("PodGroup", f"server-{index}") for index in range(3)
        ]
        await found.merge({"replicas": 1})
        await found.are(running=4, gated=0)


async def test_its_pods_are_of_the_user_that_created_it(world: World) -> None:
    alice = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/rolebindings"
    rules = [{"apiGroups": ["leaderworkerset.x-k8s.io"], "resources": ["leaderworkersets"], "verbs": ["*"]}]
    roles = bindings.replace("rolebindings", "roles")
    await world.api.request("POST", roles, {"metadata": {"name": "alice"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "alice"}
    await world.api.request(
        "POST", bindings, {"metadata": {"name": "alice"}, "roleRef": role, "subjects": [alice]}
    )
    body = server(replicas=1, size=3)
    as_alice = ("create", "-n", world.namespace, "--as=alice", "-f", "-")
    for template in ("leaderTemplate", "workerTemplate"):
        forged = copy.deepcopy(body)
        metadata = forged["spec"]["leaderWorkerTemplate"][template]["metadata"]
        metadata["annotations"] = {"queuectl.dev/user": "bob"}
        said = await world.site.kubectl(*as_alice, stdin=yaml.safe_dump(forged))
        assert f"queuectl-attribution-of-{template.removesuffix('Template')}s" in said.err
    async with made(world, body, user="alice") as found:
        pods = await found.are(running=3, gated=0)
        assert {one["metadata"]["annotations"]["queuectl.dev/user"] for one in pods} == {"alice"}
        assert (await world.workload("server-0", "PodGroup"))["submitter"] == "alice"


LATER: dict[str, Json] = {
    "leader ready": {"spec": {"startupPolicy": "LeaderReady"}},
    "exclusive topology": {
        "metadata": {"annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": LABEL}}
    },
}
STARTUP = ["LeaderCreated", "LeaderReady"]


@pytest.mark.parametrize("startup", STARTUP)
async def test_a_preempted_replica_goes_as_a_whole_and_comes_again(world: World, startup: str) -> None:
    high = await priority(world, "high", 1000)
    async with made(world, server(replicas=1, size=3, gpus=3, startupPolicy=startup)) as found:
        first = {one["metadata"]["uid"] for one in await found.are(running=3, gated=0)}
        await world.submit(pod("high", gpus=2, labels={"queuectl.dev/priority-class": high}))
        again = await found.are(running=0, gated=3 if startup == "LeaderCreated" else 1)
        assert first.isdisjoint(one["metadata"]["uid"] for one in again)
        await world.delete("high", "Pod")
        await found.are(running=3, gated=0)


@pytest.mark.parametrize("startup", STARTUP)
async def test_a_replica_of_which_a_worker_is_lost_is_made_again_by_its_controller(
    world: World, startup: str
) -> None:
    async with made(world, server(replicas=2, size=2, startupPolicy=startup)) as found:
        await found.are(1, running=2, gated=0)
        first = await found.are(0, running=2, gated=0)
        await world.delete("server-0-1", "Pod")

        async def new() -> bool:
            pods = await found.are(0, running=2, gated=0)
            return {one["metadata"]["uid"] for one in pods}.isdisjoint(
                one["metadata"]["uid"] for one in first
            )

        await eventually("leader and worker are new", new)
        await found.are(running=4, gated=0)


async def test_a_waiting_pod_that_is_deleted_comes_again_and_its_replica_starts_as_a_whole(
    world: World,
) -> None:
    async with made(world, server(replicas=3, size=4)) as found:
        await found.are(running=8, gated=4)
        waits = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await found.pods() if _waits(one)}
        leader = min(waits)
        await world.delete(f"{leader}-2", "Pod")

        async def again() -> bool:
            pods = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await found.pods()}
            return pods.keys() >= waits.keys() and pods[f"{leader}-2"] != waits[f"{leader}-2"]

        await eventually("another pod has its name", again)
        await found.are(running=8, gated=4)
        await found.merge({"replicas": int(leader.rpartition("-")[2]) + 1})
        await found.merge({"replicas": 2})
        await found.are(running=8, gated=0)


async def test_subgroups_of_a_replica_start_with_it_as_one_workload(world: World) -> None:
    body = server(replicas=3, size=4)
    body["spec"]["leaderWorkerTemplate"]["subGroupPolicy"] = {"subGroupSize": 2}
    async with made(world, body) as found:
        pods = await found.are(running=8, gated=4)
        for group in {one["metadata"]["labels"][GROUP] for one in pods}:
            members = [one for one in pods if one["metadata"]["labels"][GROUP] == group]
            subgroups = {
                one["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/subgroup-index"] for one in members
            }
            assert (len(members), len(subgroups)) == (4, 2)
            assert len({_workload(one) for one in members}) == 1


@pytest.mark.parametrize("later", LATER)
async def test_workers_that_are_created_after_the_start_of_their_leader_have_their_places(
    world: World, later: str
) -> None:
    body = server(replicas=2, size=3, gpus=2)
    for part, fields in LATER[later].items():
        body[part] |= fields
    async with made(world, body) as found:
        runs, waits = await found.are(0, running=3, gated=0), await found.are(1, running=0, gated=1)
        assert len(runs) + len(waits) == 4
        reason = await world.reason_is("server-1", "WaitingForQuota", "PodGroup")
        assert reason["shortBy"] in (1, 2)  # 5 are charged, 3 are free; by the order of the podsets
        (row,) = await _admissions(world, "server-0")
        assert sum(row.values()) == 3
        config = str(world.site.data.parent / "queuectl.yaml")
        verified = await world.site.queuectl("verify", "--cluster", "--config", config)
        assert verified.code == 0, verified.out + verified.err
        await found.merge({"replicas": 1})
        await found.are(running=3, gated=0)
        await found.merge({"leaderWorkerTemplate": {"size": 4}})  # every pod is made again
        await found.are(running=4, gated=0)
        await found.merge({"replicas": 0})
        await found.are(running=0, gated=0)
        await found.merge({"replicas": 1})
        await found.are(running=4, gated=0)


async def _admissions(world: World, name: str) -> list[dict[str, int]]:
    """Number of pods by podset, of each admission."""
    told = await world.site.rest(f"/workloads/{world.namespace}/PodGroup/{name}/history")
    rows = [row for row in told["items"] if row["verdict"] == "Admitted"]
    return [{one["name"]: one["count"] for one in row["details"]["podSets"]} for row in rows]


@pytest.mark.parametrize(
    ("surge", "startup"), [(0, "LeaderCreated"), (1, "LeaderCreated"), (0, "LeaderReady")]
)
async def test_a_rollout_ends_within_the_quota(world: World, surge: int, startup: str) -> None:
    """Without surge in a full queue."""
    rolling = {"maxSurge": surge, "maxUnavailable": 1}
    strategy = {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling}
    size = 4 - 2 * surge
    body = server(replicas=2, size=size, rolloutStrategy=strategy, startupPolicy=startup)
    async with made(world, body) as found:
        await found.are(running=2 * size, gated=0)
        template = {"metadata": {"annotations": {"example.com/edit": "1"}}}
        await found.merge({"leaderWorkerTemplate": {"leaderTemplate": template, "workerTemplate": template}})

        async def new() -> bool:
            pods = await found.pods()
            edited = ["example.com/edit" in one["metadata"].get("annotations", {}) for one in pods]
            return len(pods) == 2 * size and all(edited)

        await eventually("all pods are of the new revision", new)
        await found.are(running=2 * size, gated=0)


async def test_a_pod_that_names_a_set_that_is_not_there_is_charged_as_a_group_of_its_own(
    world: World,
) -> None:
    body = pod("forged-0", gpus=9, labels={"leaderworkerset.sigs.k8s.io/name": "none"})
    body["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/size"] = "1"
    body["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] = "0"
    await test_single_pods._created(world, body)
    reason = await world.reason_is("forged-0", "ExceedsMaxQuota", "PodGroup")
    assert "9" in reason["message"]
    assert GATE in (await world.get("forged-0", "Pod"))["spec"]["schedulingGates"]


async def test_a_worker_that_is_replaced_alone_takes_its_place_without_a_turn(world: World) -> None:
    """With the restart policy None."""
    body = server(replicas=3, size=4)
    body["spec"]["leaderWorkerTemplate"]["restartPolicy"] = "None"
    async with made(world, body) as found:
        await found.are(running=8, gated=4)
        runs = {one["metadata"]["name"]: one for one in await found.pods() if not _waits(one)}
        name = next(one for one in ("server-0-1", "server-1-1") if one in runs)
        await world.delete(name, "Pod")

        async def again() -> bool:
            pods = [one for one in await found.pods() if one["metadata"]["name"] == name]
            return [_workload(one) for one in pods if _differ(one, runs[name])] == [_workload(runs[name])]

        await eventually("another pod of the same workload runs", again)
        await found.are(running=8, gated=4)

        async def kept() -> bool:
            group = await world.workload(name.rpartition("-")[0], "PodGroup")
            return (group["attempts"], group["phase"]) == (1, "Admitted")

        await eventually("REST has its first attempt", kept)


def _waits(one: Json) -> bool:
    return GATE in (one["spec"].get("schedulingGates") or ())


def _workload(one: Json) -> str | None:
    found: str | None = one["metadata"]["labels"].get("queuectl.dev/workload")
    return found


def _differ(one: Json, other: Json) -> bool:
    return bool(one["metadata"]["uid"] != other["metadata"]["uid"])


@pytest.mark.parametrize("later", [False, True])
async def test_a_replica_whose_pods_end_slowly_comes_again_after_a_stop_and_an_edit(
    world: World, later: bool
) -> None:
    body = server(replicas=2, size=4, **(LATER["leader ready"]["spec"] if later else {}))
    for part in ("leaderTemplate", "workerTemplate"):
        template = body["spec"]["leaderWorkerTemplate"][part]
        template["metadata"]["annotations"] = {"sandbox.queuectl.dev/terminate-seconds": "2"}
    async with made(world, body) as found:
        await found.are(running=8, gated=0)
        queue = f"/apis/queuectl.dev/v1beta1/clusterqueues/{world.namespace}"
        for policy, gated in (("HoldAndDrain", 2 if later else 8), ("None", 0)):
            changed = {"spec": {"stopPolicy": policy}}
            await world.api.request("PATCH", queue, changed, content_type=MERGE_PATCH)
            if gated:
                await found.are(running=0, gated=gated)
                await world.nothing_used(world.namespace)
                await found.merge({"leaderWorkerTemplate": {"size": 3}})  # while its leaders wait
        await found.are(running=6, gated=0)

        async def charged() -> bool:
            return (await world.used(world.namespace)).get(("a100", GPU)) == 6

        await eventually("what runs is charged", charged)
