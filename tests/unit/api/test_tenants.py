"""Two tenants and every endpoint: no response to one reveals data of the other, by body or by status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from queuectl.core.model.capacity import NO_FLAVOR, FlavorCapacity, FlavorResourceCapacity
from queuectl.core.model.policy import CapacityMode
from queuectl.core.model.reasons import Code, PreemptionCause, Reason, RejectedCandidate
from queuectl.core.model.workload import ConfigKey, Phase, WorkloadId
from queuectl.ports.changes import Access
from queuectl.ports.reader import DecisionRow, Held
from tests.unit.api.canned import (
    EPOCH_START,
    GPU,
    CannedReadings,
    decision,
    local_spec,
    queue_spec,
    two_teams,
    workload,
)
from tests.unit.api.changing import OWN_PAGE, CannedChanges
from tests.unit.api.conftest import Clock, Rest, Serve, bearer
from tests.unit.api.reviews import CannedReviews

SECRET = "zz"
"""Part of every name in bob's namespace."""
BOBS = "zz-bobs"
TAKEN = Reason(
    code=Code.PREEMPTED,
    cause=PreemptionCause.IN_CLUSTER_QUEUE,
    by=f"{BOBS}/Job/zz-urgent",
    detail="zz-urgent has priority 5 > 0",
)


IN_VAIN = Reason(
    code=Code.WAITING_FOR_QUOTA,
    considered="2 whose priority is not lower",
    victims=(RejectedCandidate("default/Job/mine", "so"), RejectedCandidate(f"{BOBS}/Job/zz-urgent", "so")),
)


def ledger() -> CannedReadings:
    """Both share ClusterQueue team-a; bob's workloads hold quota that alice needs, and preempted hers."""
    readings = two_teams()
    readings.commit(
        configs={
            ConfigKey("LocalQueue", BOBS, "zz-queue"): local_spec("team-a"),
            ConfigKey("ClusterQueue", "", "zz-private"): queue_spec(4),
            ConfigKey("ResourceFlavor", "", "shared"): json.dumps({}),
        }
    )
    bob: dict[str, Any] = {"namespace": BOBS, "queue": "zz-queue"}
    mine = workload("mine", 20, reason=TAKEN)
    readings.commit(
        replace(workload("zz-urgent", 10, gpus=1, phase=Phase.ADMITTED, **bob), submitter="zz-bob"),
        replace(workload("zz-waits", 11, reason=replace(TAKEN, by="default/Job/mine"), **bob)),
        mine,
        replace(
            workload("nested", 21), reason=Reason(code=Code.WAITING_FOR_PREEMPTED_WORKLOADS, others=(TAKEN,))
        ),
    )
    readings.commit(workload("spares", 23, reason=IN_VAIN))
    ended = workload("zz-ended", 12, phase=Phase.ADMITTED, **bob)
    readings.commit(ended, workload("ended", 22))
    readings.end(ended)
    readings.end(workload("ended", 22))
    gpus = FlavorResourceCapacity(
        resource=GPU, mode=CapacityMode.ENFORCE, unmanaged=((BOBS, 3), ("default", 1))
    )
    readings.capacity(FlavorCapacity(flavor="shared", nodes=(("Ready", 1),), resources=(gpus,)))
    readings.capacity(FlavorCapacity(flavor=NO_FLAVOR, nodes=(("Ready", 1),)))
    readings.rows = list(_rows(readings, mine))
    readings.sequence = 50
    readings.keep(EPOCH_START)
    return readings


def _rows(readings: CannedReadings, mine: Any) -> Iterator[DecisionRow]:
    urgent = workload("zz-urgent", 10, namespace=BOBS, queue="zz-queue")
    yield replace(
        decision(1, mine, "Configured"),
        workload=None,
        ref=None,
        payload={"kind": "ClusterQueue", "namespace": "", "name": "zz-private", "spec": {"zz": 1}},
    )
    yield decision(2, mine, "Queued")
    yield decision(3, urgent, "Queued")
    yield replace(decision(4, mine, "Evicted", TAKEN), payload={"preemptor": "zz-uid-10"})
    yield replace(
        decision(5, mine, "Evicted", replace(TAKEN, by=None, detail=None)), payload={"preemptor": "zz-uid-10"}
    )
    yield replace(decision(6, urgent, "Admitted"), payload={"clusterQueue": "team-a"})


@pytest.fixture
def reviews() -> CannedReviews:
    found = CannedReviews()
    found.tenant("alice", "default")
    found.rights["alice"].add(Access("get", "clusterqueues", "", "team-a"))
    found.rights["alice"].add(Access("get", "resourceflavors", "", "shared"))
    found.tenant("bob", BOBS)
    found.admin("admin")
    return found


@pytest.fixture
async def rest(serve: Serve, reviews: CannedReviews) -> Rest:
    return await serve(ledger(), reviews, Clock())


THEN = f"asOf={EPOCH_START.isoformat().replace('+00:00', 'Z')}"
LISTS = {
    "/api/v1/workloads": (
        "",
        THEN,
        f"{THEN}&reason=Preempted",
        "phase=Finished",
        "phase=Pending&clusterqueue=team-a",
        "reason=Preempted",
    ),
    "/api/v1/localqueues": ("", THEN, "clusterqueue=team-a"),
    "/api/v1/clusterqueues": ("", THEN),
    "/api/v1/cohorts": ("", THEN),
    "/api/v1/resourceflavors": ("", THEN),
    "/api/v1/capacity": ("", THEN),
    "/api/v1/demand": ("", THEN),
    "/api/v1/preemptions": ("", THEN, "since=2026-01-01T00:00:00Z", "queue=zz-queue", "clusterqueue=team-a"),
    "/api/v1/decisions": (
        "after=0",
        "queue=zz-queue&after=0",
        "queue=main&after=0",
        "after=0&wait=0",
        f"after=0&{THEN}",
    ),
}
ONES = {
    "/api/v1/workloads/{namespace}/{kind}/{name}": (BOBS, "job", "zz-urgent"),
    "/api/v1/workloads/{namespace}/{kind}/{name}/history": (BOBS, "job", "zz-urgent"),
    "/api/v1/workloads/{namespace}/{kind}/{name}/story": (BOBS, "job", "zz-urgent"),
    "/api/v1/workloads/{namespace}/{kind}/{name}/waited": (BOBS, "job", "zz-urgent"),
    "/api/v1/workloads/{namespace}/{kind}/{name}/eta": (BOBS, "job", "zz-urgent"),
    "/api/v1/workloads/{namespace}/{kind}/{name}/exposure": (BOBS, "job", "zz-urgent"),
    "/api/v1/workloads/{namespace}/{kind}/{name}/counterfactuals": (BOBS, "job", "zz-urgent"),
    "/api/v1/localqueues/{namespace}/{name}": (BOBS, "", "zz-queue"),
    "/api/v1/clusterqueues/{name}": ("", "", "zz-private"),
    "/api/v1/clusterqueues/{name}/share": ("", "", "zz-private"),
    "/api/v1/cohorts/{name}": ("", "", "all"),
    "/api/v1/cohorts/{name}/share": ("", "", "all"),
    "/api/v1/resourceflavors/{name}": ("", "", "a100"),
    "/api/v1/capacity/{name}": ("", "", "a100"),
    "/api/v1/capacity/{name}/trend": ("", "", "a100"),
    "/api/v1/demand/{name}": ("", "", "zz-private"),
}
_JOB = (BOBS, "job", "zz-urgent")
CHANGES = {
    "/api/v1/workloads/{namespace}/{kind}/{name}/hold": _JOB,
    "/api/v1/workloads/{namespace}/{kind}/{name}/release": _JOB,
    "/api/v1/workloads/{namespace}/{kind}/{name}/move": _JOB,
    "/api/v1/workloads/{namespace}/{kind}/{name}/priority": _JOB,
    "/api/v1/workloads/{namespace}/{kind}/{name}/fit": _JOB,
    "/api/v1/workloads/{namespace}/{kind}/{name}/cancel": _JOB,
    "/api/v1/localqueues/{namespace}/{name}/stop": (BOBS, "", "zz-queue"),
    "/api/v1/localqueues/{namespace}/{name}/resume": (BOBS, "", "zz-queue"),
    "/api/v1/clusterqueues/{name}/stop": ("", "", "zz-private"),
    "/api/v1/clusterqueues/{name}/resume": ("", "", "zz-private"),
}
CONTENT = {"move": {"queue": "main"}, "priority": {"priorityClass": None}, "fit": {"pods": 1}}


async def test_the_tables_of_this_module_have_every_path(rest: Rest) -> None:
    paths = set((await rest.get("/openapi.json"))["paths"]) - {"/healthz", "/readyz"}
    # For a quote and a plan: tests/unit/api/test_what_ifs.py; for usage: test_usage.py; for statements:
    # test_monthly_statements.py; for idle devices: test_idle.py; for budgets: test_budgets.py; for nodes:
    # test_nodes.py; for past usage: test_past_usage.py; for UsageLimits: test_usage_limits.py; for counts:
    # test_workload_counts.py.
    of_money = {f"/api/v1/statements{rest}" for rest in ("", "/{month}", "/{month}/focus")}
    others = {"/api/v1/quote", "/api/v1/plan", "/api/v1/usage", "/api/v1/idle", "/api/v1/budgets"}
    others |= {"/api/v1/workloadcounts", "/api/v1/usagelimits", "/api/v1/nodes", "/api/v1/nodes/{name}"}
    others |= {f"/api/v1/{kinds}/{{name}}/pastusage" for kinds in ("cohorts", "clusterqueues")}
    assert paths == {*LISTS, *ONES, *CHANGES, *others, *of_money}


@pytest.mark.parametrize("path", CHANGES)
async def test_an_object_that_a_tenant_may_not_read_is_not_asked_for_and_looks_like_a_missing_one(
    serve: Serve, reviews: CannedReviews, path: str
) -> None:
    changes = CannedChanges()
    rest = await serve(ledger(), reviews, Clock(), changes)
    namespace, kind, name = CHANGES[path]
    content = CONTENT.get(path.rpartition("/")[2], {})
    answers = []
    for place, named in ((namespace, name), (namespace, "missing"), ("elsewhere", name)):
        asked = path.format(namespace=place, kind=kind, name=named)
        answer = await rest.client.post(asked, json=content, headers={**bearer("alice"), **OWN_PAGE})
        answers.append((answer.status, await answer.text()))
    assert answers == [answers[0]] * 3
    assert answers[0][0] == 404
    assert changes.made == []


async def test_a_change_has_the_token_of_its_caller(serve: Serve, reviews: CannedReviews) -> None:
    changes = CannedChanges()
    rest = await serve(ledger(), reviews, Clock(), changes)
    for token, namespace, name in (("alice", "default", "mine"), ("bob", BOBS, "zz-urgent")):
        path = f"/api/v1/workloads/{namespace}/job/{name}/hold"
        answer = await rest.client.post(path, json={}, headers={**bearer(token), **OWN_PAGE})
        assert answer.status == 200, await answer.text()
    assert [(token, wanted.namespace) for wanted, token in changes.made] == [
        ("alice", "default"),
        ("bob", BOBS),
    ]


@pytest.mark.parametrize("path", LISTS)
async def test_a_list_has_nothing_of_other_tenants(rest: Rest, path: str) -> None:
    whole = 0
    for query in LISTS[path]:
        for limit in ("limit=1", "limit=100"):
            text, next = "", None
            while True:
                asked = "&".join(part for part in (query, limit, f"next={next}" if next else "") if part)
                answer = await rest.client.get(f"{path}?{asked}", headers=bearer("alice"))
                body = await answer.text()
                assert answer.status == 200, body
                text += body
                next = json.loads(body)["next"]
                if next is None:
                    break
            assert SECRET not in text
            seen = await rest.client.get(f"{path}?{query}", headers=bearer("admin"))
            whole += SECRET in await seen.text()
    # The admin sees what alice must not: the search would find it.
    assert whole > 0 or path in ("/api/v1/cohorts", "/api/v1/resourceflavors")


@pytest.mark.parametrize("path", ONES)
async def test_49_an_object_of_another_tenant_looks_like_a_missing_one(rest: Rest, path: str) -> None:
    namespace, kind, name = ONES[path]
    foreign = path.format(namespace=namespace, kind=kind, name=name)
    missing_name = path.format(namespace=namespace, kind=kind, name="missing")
    missing_namespace = path.format(namespace="nowhere", kind=kind, name=name)
    assert await rest.status(foreign, token="admin") == 200
    answers = []
    for asked in (
        foreign,
        missing_name,
        missing_namespace,
        path.format(namespace="default", kind=kind, name="x-y"),
    ):
        answer = await rest.client.get(asked, headers=bearer("alice"))
        headers = {k: v for k, v in answer.headers.items() if k not in ("Date", "Content-Length")}
        answers.append((answer.status, headers, await answer.text()))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 404


@pytest.mark.parametrize(
    "path", ["/api/v1/workloads", "/api/v1/localqueues", "/api/v1/decisions", "/api/v1/preemptions"]
)
async def test_49_another_tenant_s_namespace_as_a_filter_looks_like_a_missing_one(
    rest: Rest, path: str
) -> None:
    answers = [
        await (await rest.client.get(f"{path}?namespace={name}", headers=bearer("alice"))).text()
        for name in (BOBS, "nowhere")
    ]
    assert answers[0] == answers[1]
    assert json.loads(answers[0])["status"] == 404
    assert await rest.status(f"{path}?namespace=default", token="alice") == 200


async def test_49_objects_of_others_and_missing_ones_cost_the_same_reviews_and_reads(
    rest: Rest, reviews: CannedReviews
) -> None:
    counts = []
    for path in (f"/api/v1/workloads/{BOBS}/job/zz-urgent", "/api/v1/workloads/nowhere/job/nobody"):
        reviews.asked.clear()
        rest.readings.reads.clear()
        assert await rest.status(path, token="alice") == 404
        counts.append((len(reviews.asked) - reviews.count(str), len(rest.readings.reads)))
    assert counts[0] == counts[1] == (1, 0)


async def test_holders_of_other_tenants_are_counted_and_not_named(rest: Rest) -> None:
    found = await rest.get("/api/v1/workloads/default/job/waits", token="alice")
    assert [(holder["name"], holder["amount"]) for holder in found["holders"]] == [
        ("large", 4),
        ("small", 2),
        (None, 1),
    ]
    assert SECRET not in json.dumps(found)
    # Alice may see size and position, though they count bob's pending workloads.
    assert found["line"] >= found["position"] >= 1


async def test_names_in_lists_take_the_right_to_list(rest: Rest, reviews: CannedReviews) -> None:
    """A caller of pages has those reviews: no others are needed to name what its workloads wait for."""
    for verb in ("list", "get"):
        token = f"may-{verb}"
        reviews.tenant(token, "default")
        reviews.rights[token].add(Access(verb, "workloads", BOBS))
        page = await rest.get("/api/v1/workloads", token=token, namespace="default")
        assert (SECRET in json.dumps(page)) == (verb == "list")
        decisions = await rest.get("/api/v1/decisions", token=token, after="0", namespace="default")
        assert (SECRET in json.dumps(decisions)) == (verb == "list")
        for path in ("mine", "mine/history"):
            one = await rest.get(f"/api/v1/workloads/default/Job/{path}", token=token)
            assert (SECRET in json.dumps(one)) == (verb == "get"), path


async def test_a_queue_that_borrows_is_named_to_callers_that_may_read_it(rest: Rest) -> None:
    waits = replace(IN_VAIN, flavor="a100", resource=GPU, requested=9, node="Cohort/all", victims=())
    rest.readings.commit(
        workload("owned", 30, cluster_queue="owner", reason=waits),
        workload("zz-big", 31, namespace=BOBS, cluster_queue="zz-private", phase=Phase.ADMITTED, gpus=6),
        configs={
            ConfigKey("ClusterQueue", "", "owner"): queue_spec(8, cohort="lend"),
            ConfigKey("ClusterQueue", "", "zz-private"): queue_spec(4, cohort="lend"),
        },
    )
    await rest.view.refresh()
    path = "/api/v1/workloads/default/job/owned"
    for user, name in (("alice", None), ("admin", "zz-private")):
        found = (await rest.get(path, token=user))["lent"]
        assert found["amount"] == 2
        assert found["borrowers"] == [{"clusterQueue": name, "amount": 2, "share": None}]


async def test_who_borrows_and_lends_is_named_to_callers_that_may_read_it(rest: Rest) -> None:
    big = workload("zz-big", 31, namespace=BOBS, cluster_queue="zz-private", phase=Phase.ADMITTED, gpus=6)
    rest.readings.commit(
        big,
        configs={
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(9, cohort="lend"),
            ConfigKey("ClusterQueue", "", "zz-private"): queue_spec(4, cohort="lend"),
        },
    )
    rest.readings.held = [Held("zz-private", "a100", GPU, 6, EPOCH_START - timedelta(hours=3), None)]
    await rest.view.refresh()
    path = "/api/v1/clusterqueues/team-a/share"
    since = {
        "since": (EPOCH_START - timedelta(hours=2)).isoformat(),
        "until": EPOCH_START.isoformat(),
    }
    for user, node in (("alice", None), ("admin", "ClusterQueue/zz-private")):
        found = await rest.get(path, token=user, **since)
        assert found["accounts"][0]["lentTo"] == [{"node": node, "amount": 2}]
        assert found["statement"]["accounts"][0]["lentTo"] == [{"node": node, "amount": 4}]
        assert (SECRET in json.dumps(found)) == (user == "admin")


async def test_the_share_of_a_cohort_has_the_queues_that_the_caller_may_read(
    rest: Rest, reviews: CannedReviews
) -> None:
    big = workload("zz-big", 31, namespace=BOBS, cluster_queue="zz-private", phase=Phase.ADMITTED, gpus=6)
    rest.readings.commit(
        big,
        configs={
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(9, cohort="lend"),
            ConfigKey("ClusterQueue", "", "zz-private"): queue_spec(4, cohort="lend"),
        },
    )
    rest.readings.held = [Held("zz-private", "a100", GPU, 6, EPOCH_START - timedelta(hours=3), None)]
    await rest.view.refresh()
    reviews.rights["alice"].add(Access("get", "cohorts", "", "lend"))
    since = {"since": (EPOCH_START - timedelta(hours=2)).isoformat(), "until": EPOCH_START.isoformat()}
    since["steps"] = "2"
    hers, all_ = [
        await rest.get("/api/v1/cohorts/lend/share", token=one, **since) for one in ("alice", "admin")
    ]
    assert SECRET not in json.dumps(hers)
    both = hers["statement"], all_["statement"]
    steps = zip(*(one["steps"] for one in both), strict=True)
    for told, whole in ((hers, all_), both, *steps):
        assert [one["clusterQueue"] for one in told["accounts"]] == ["team-a"]
        assert [one["clusterQueue"] for one in whole["accounts"]] == ["team-a", "zz-private"]
        assert [one["node"] for one in told["accounts"][0]["lentTo"]] == [None]


async def test_a_preemptor_is_named_to_callers_that_may_read_it(rest: Rest) -> None:
    path = "/api/v1/workloads/default/job/mine"
    hers = (await rest.get(path, token="alice"))["reason"]
    assert (hers["code"], hers["cause"], hers["by"], hers["detail"]) == (
        "Preempted",
        "InClusterQueue",
        None,
        None,
    )
    assert SECRET not in hers["message"]
    theirs = (await rest.get(path, token="admin"))["reason"]
    assert theirs["by"] == f"{BOBS}/Job/zz-urgent"
    history = await rest.get(f"{path}/history", token="alice")
    assert [item["verdict"] for item in history["items"]] == ["Queued", "Evicted", "Evicted"]
    assert SECRET not in json.dumps(history)
    assert "zz-uid-10" in json.dumps(await rest.get(f"{path}/history", token="admin"))
    story = await rest.get(f"{path}/story", token="alice")
    assert [item["detail"].partition(":")[0] for item in story["items"]] == ["Queued", "Evicted", "Evicted"]
    assert SECRET not in json.dumps(story)
    assert "zz-urgent" in json.dumps(await rest.get(f"{path}/story", token="admin"))


async def test_a_preemption_names_its_preemptor_to_callers_that_may_read_it(rest: Rest) -> None:
    for user, by in (("alice", None), ("admin", f"{BOBS}/Job/zz-urgent")):
        items = (await rest.get("/api/v1/preemptions", token=user))["items"]
        assert [(item["name"], item["by"]) for item in items] == [("mine", None), ("mine", by)]
    assert (await rest.get("/api/v1/preemptions", token="bob"))["items"] == []


async def test_queues_that_may_preempt_a_workload_are_named_to_callers_that_may_read_them(rest: Rest) -> None:
    rest.readings.commit(
        workload("runs", 40, phase=Phase.ADMITTED, gpus=5),
        workload("zz-next", 41, namespace=BOBS, cluster_queue="zz-private"),
        configs={
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(4, cohort="lend"),
            ConfigKey("ClusterQueue", "", "zz-private"): queue_spec(
                4, cohort="lend", preemption={"reclaimWithinCohort": "Any"}
            ),
        },
    )
    await rest.view.refresh()
    for user, name in (("alice", None), ("admin", "zz-private")):
        found = await rest.get("/api/v1/workloads/default/job/runs/exposure", token=user)
        assert [(one["clusterQueue"], one["pending"]) for one in found["threats"]] == [(name, 1)]


async def test_where_a_wait_went_names_no_workload_of_others(rest: Rest) -> None:
    found = await rest.get("/api/v1/workloads/default/job/mine/waited", token="alice")
    assert found["parts"]
    assert SECRET not in json.dumps(found)


async def test_workloads_that_could_not_be_preempted_are_not_named_to_other_tenants(
    rest: Rest,
) -> None:
    path = "/api/v1/workloads/default/job/spares"
    hers = (await rest.get(path, token="alice"))["reason"]
    assert [one["who"] for one in hers["victims"]] == ["default/Job/mine", None]
    assert hers["message"] == "WaitingForQuota; not preempted: 2 whose priority is not lower"
    theirs = (await rest.get(path, token="admin"))["reason"]
    assert theirs["victims"][1] == {"who": f"{BOBS}/Job/zz-urgent", "why": "so"}


async def test_a_user_that_caused_a_decision_is_named_to_the_owner_of_the_workload(rest: Rest) -> None:
    by = Reason(code=Code.BYPASS, by="https://issuer.example/users#carol")
    rest.readings.commit(workload("let-go", 30, reason=by))
    await rest.view.refresh()
    found = await rest.get("/api/v1/workloads/default/job/let-go", token="alice")
    assert found["reason"]["by"] == "https://issuer.example/users#carol"


async def test_each_user_sees_the_queues_that_rbac_names(rest: Rest) -> None:
    async def names(path: str, token: str) -> list[str]:
        return [item["name"] for item in (await rest.get(f"/api/v1/{path}", token=token))["items"]]

    assert await names("clusterqueues", "alice") == ["team-a"]
    assert await names("clusterqueues", "bob") == []
    assert await names("clusterqueues", "admin") == ["team-a", "team-b", "zz-private"]
    assert await names("localqueues", "alice") == ["main"]
    assert await names("localqueues", "bob") == ["zz-queue"]
    assert await names("cohorts", "alice") == []
    assert await names("cohorts", "admin") == ["all"]


async def test_46_a_cursor_of_one_user_is_invalid_for_another(rest: Rest) -> None:
    for path in ("/api/v1/workloads", "/api/v1/decisions"):
        query = {"limit": "1", **({"after": "0"} if "decisions" in path else {})}
        first = await rest.get(path, token="alice", **query)
        assert first["next"]
        for token in ("bob", "admin"):
            answer = rest.client.get(path, params={**query, "next": first["next"]}, headers=bearer(token))
            assert "parameter next" in await rest.refused(answer, 400)
        await rest.get(path, token="alice", **query, next=first["next"])


async def test_46_a_cursor_is_invalid_for_a_later_user_of_the_same_name(
    rest: Rest, reviews: CannedReviews
) -> None:
    reviews.tenant("first", "default")
    reviews.add("first", name="carol", uid="1")
    reviews.add("second", name="carol", uid="2")
    reviews.rights["carol"] = reviews.rights["alice"]
    found = await rest.get("/api/v1/workloads", token="first", limit="1")
    for token, status in (("second", 400), ("first", 200)):
        answer = await rest.client.get(
            f"/api/v1/workloads?limit=1&next={found['next']}", headers=bearer(token)
        )
        assert answer.status == status


async def test_a_page_of_one_tenant_reads_nothing_of_others(rest: Rest) -> None:
    """Objects in other namespaces are not even iterated."""
    state = rest.view.sight()
    assert state is not None
    ids = [one.id for one in state.state.in_order({"default"}, None)]
    assert ids
    assert all(state.state.workloads[WorkloadId(id)].ref.namespace == "default" for id in ids)


async def test_two_hundred_namespaces_cost_one_review_each_and_then_none(
    serve: Serve, reviews: CannedReviews
) -> None:
    readings = two_teams()
    readings.commit(*(workload(f"w-{n}", 100 + n, namespace=f"ns-{n}") for n in range(200)))
    reviews.tenant("carol", *(f"ns-{n}" for n in range(20)))
    clock = Clock()
    rest = await serve(readings, reviews, clock)
    found = await rest.get("/api/v1/workloads", token="carol", limit="500")
    assert len(found["items"]) == 20
    assert reviews.count(Access) <= 203
    reviews.asked.clear()
    # For a list a cached denial is used while a newer review is fetched: pages do not wait for it.
    clock.now += 20
    assert len((await rest.get("/api/v1/workloads", token="carol", limit="500"))["items"]) == 20
    assert reviews.asked == []
    # One review is enough for a caller that may read everything.
    assert len((await rest.get("/api/v1/workloads", token="admin", limit="500"))["items"]) == 205
    assert reviews.count(Access) == 1


async def test_a_response_is_of_one_state(rest: Rest) -> None:
    found = await rest.get("/api/v1/decisions", token="admin", after="0")
    assert [item["sequence"] for item in found["items"]] == [1, 2, 3, 4, 5, 6]
    assert found["items"][0]["details"]["spec"] == {"zz": 1}
    assert found["items"][1]["time"].startswith(EPOCH_START.date().isoformat())
