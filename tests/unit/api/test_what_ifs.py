"""Counterfactuals and quotes: from a committed state, without a change of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml

from queuectl.answers import trial_snapshot as basis
from queuectl.answers.state import CommittedState
from queuectl.api import what_if_routes
from queuectl.api.what_if_routes import message
from queuectl.core.model.budgets import HOUR, BudgetPeriods, BudgetSum, PeriodKind
from queuectl.core.model.capacity import NodeFacts, PodsOnNode
from queuectl.core.model.policy import DEFAULT_CONFIGURATION, AccountKey, AccountSource, Node
from queuectl.core.model.reasons import Code, Reason
from queuectl.core.model.start_conditions import AFTER
from queuectl.core.model.what_if import Change, ChangeKind, Start, Tried
from queuectl.core.model.workload import AttemptState, ConfigKey, Phase, PodSet, UserOptions
from queuectl.kinds.jobs import PRIORITY_LABEL, QUEUE_LABEL
from queuectl.kinds.policy import parse_policy
from queuectl.kinds.reserved_keys import RESTRICTED_LABEL, USER_ANNOTATION
from queuectl.ports.budgets import BudgetBalances
from queuectl.ports.changes import Access
from queuectl.ports.reader import EvictionTimes
from tests.unit.api.canned import (
    EPOCH_START,
    GPU,
    WAITS,
    CannedReadings,
    decision,
    local_spec,
    queue_spec,
    workload,
)
from tests.unit.api.conftest import Rest, bearer
from tests.unit.api.reviews import CannedReviews

Serve = Callable[..., Awaitable[Rest]]
PREEMPTS: dict[str, Any] = {
    "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
}
WAITING = "/api/v1/workloads/default/job/waits/counterfactuals"


def ledger() -> CannedReadings:
    """team-a uses 6 of its 8, and `waits` requests 6. team-b uses 3 of 2: it borrows for `guest`."""
    readings = CannedReadings()
    asked = PodSet(name="main", count=6, requests=((GPU, 1),))
    readings.commit(
        workload("runs", 1, phase=Phase.ADMITTED, gpus=6),
        workload("guest", 2, namespace="other", cluster_queue="team-b", phase=Phase.ADMITTED, gpus=3),
        replace(workload("waits", 3, reason=WAITS), pod_sets=(asked,)),
        configs={
            ConfigKey("ResourceFlavor", "", "a100"): "{}",
            ConfigKey("Namespace", "", "default"): json.dumps({"labels": {}}),
            ConfigKey("Namespace", "", "other"): json.dumps({"labels": {}}),
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(8, cohort="all", **PREEMPTS),
            ConfigKey("ClusterQueue", "", "team-b"): queue_spec(2, cohort="all"),
            ConfigKey("LocalQueue", "default", "main"): local_spec("team-a"),
            ConfigKey("LocalQueue", "default", "small"): local_spec("team-b"),
            ConfigKey("LocalQueue", "other", "main"): local_spec("team-b"),
            ConfigKey("WorkloadPriorityClass", "", "high"): json.dumps({"value": 50}),
        },
    )
    return readings


def manifest(pods: int = 1, gpus: int = 1, **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "new",
            "namespace": "default",
            "labels": {"queuectl.dev/queue-name": "main"},
            **metadata,
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


async def quoted(rest: Rest, body: Any, token: str | None = None) -> Any:
    answer = await rest.client.post("/api/v1/quote", json=body, headers=bearer(token))
    assert answer.status == 200, await answer.text()
    return await answer.json()


LARGER = {
    "objects": [
        {
            "kind": "ClusterQueue",
            "metadata": {"name": "team-a"},
            "spec": json.loads(queue_spec(13, cohort="all")),
        }
    ]
}


async def planned(rest: Rest, body: Any, token: str | None = None) -> Any:
    answer = await rest.client.post("/api/v1/plan", json=body, headers=bearer(token))
    assert answer.status == 200, await answer.text()
    return await answer.json()


async def test_a_plan_says_which_workloads_another_policy_admits(serve: Serve) -> None:
    rest = await serve(ledger())
    found = await planned(rest, LARGER)
    assert (found["admitted"], found["evicted"], found["stranded"], found["inactive"]) == (1, 0, 0, [])
    assert [(one["name"], one["change"]) for one in found["items"]] == [("waits", "Admitted")]


def used_up(readings: CannedReadings) -> None:
    """A Budget of 10 GPU-hours in the month for all of Cohort all, of which 9.5 are used."""
    spec = {
        "target": {"kind": "Cohort", "name": "all"},
        "subject": {"kind": "All"},
        "resource": GPU,
        "hours": 10,
        "period": {"kind": "Month"},
        "mode": "Metered",
    }
    readings.commit(configs={ConfigKey("Budget", "", "whole"): json.dumps(spec)})
    period = BudgetPeriods(PeriodKind.MONTH).at(EPOCH_START)
    assert period is not None
    used = BudgetSum("whole", "", GPU, period, 19 * HOUR // 2)
    readings.budgets.balances = BudgetBalances((used,), ())


async def test_a_plan_knows_what_budgets_have_left(serve: Serve) -> None:
    readings = ledger()
    used_up(readings)
    found = await planned(await serve(readings), LARGER)
    assert (found["admitted"], found["evicted"]) == (0, 0)
    larger = {"kind": "Budget", "metadata": {"name": "whole"}, "spec": None}
    for hours, admitted in ((15, 0), (16, 1)):  # each of 6 GPUs needs an hour
        budget = larger | {"spec": json.loads(readings.spec("Budget", "whole")) | {"hours": hours}}
        found = await planned(await serve(readings), {"objects": [*LARGER["objects"], budget]})
        assert found["admitted"] == admitted, hours


async def test_a_plan_with_a_new_budget_counts_what_was_used_of_one_of_its_name(serve: Serve) -> None:
    readings = ledger()
    used_up(readings)
    spec = json.loads(readings.spec("Budget", "whole"))
    readings.commit(configs={ConfigKey("Budget", "", "whole"): None})
    budget = {"kind": "Budget", "metadata": {"name": "whole"}, "spec": spec}
    assert (await planned(await serve(readings), LARGER))["admitted"] == 1
    assert (await planned(await serve(readings), {"objects": [*LARGER["objects"], budget]}))["admitted"] == 0


async def test_a_quote_knows_what_budgets_have_left(serve: Serve) -> None:
    readings = ledger()
    rest = await serve(readings)
    assert (await quoted(rest, manifest()))["now"]["starts"] == "Now"
    used_up(readings)
    await rest.view.refresh()
    found = await quoted(rest, manifest())
    assert (found["now"]["starts"], found["reason"]["code"]) == ("NotYet", "BudgetExhausted")


@pytest.mark.parametrize(
    ("after", "starts", "code"),
    [
        ("ok:Job/done", "Now", None),
        ("any:Job/done,ok:Job/runs", "NotYet", "WaitingForDependency"),
        ("failed:Job/done", "Never", "DependencyNeverSatisfied"),
        ("ok:Job/nowhere", "NotYet", "WaitingForDependency"),
    ],
)
async def test_a_quote_knows_how_those_ended_that_it_starts_after(
    serve: Serve, after: str, starts: str, code: str | None
) -> None:
    readings = ledger()
    done = workload("done", 7)
    readings.commit(done)
    readings.end(done)
    end = decision(readings.sequence, done, "Retired")
    readings.rows.append(replace(end, payload={"outcome": "Succeeded"}))
    found = await quoted(await serve(readings), manifest(annotations={AFTER: after}))
    assert found["now"]["starts"] == starts
    assert (found["reason"] and found["reason"]["code"]) == code


async def test_a_quote_displaces_nothing_that_its_past_preemptions_protect(serve: Serve) -> None:
    readings = ledger()
    urgent = manifest(gpus=8, labels={QUEUE_LABEL: "main", PRIORITY_LABEL: "high"})
    rest = await serve(readings)
    found = await quoted(rest, urgent)
    assert "runs" in [one["name"] for one in found["now"]["displaces"]]
    times = tuple(EPOCH_START - timedelta(minutes=minutes) for minutes in range(40, 8, -4))
    assert len(times) == DEFAULT_CONFIGURATION.eviction_budget
    readings.evicted[readings.stored("runs").id] = EvictionTimes(times, None, None)
    found = await quoted(rest, urgent)
    assert (found["now"]["starts"], found["now"]["displaces"]) == ("NotYet", [])
    assert found["reason"]["code"] == "MinRunTimeProtected"


@pytest.mark.parametrize(("minutes", "starts"), [(1, "AfterPreemption"), (11, "NotYet")])
async def test_a_quote_counts_on_no_pods_that_do_not_end_in_time(
    serve: Serve, minutes: int, starts: str
) -> None:
    readings = ledger()
    runs = readings.stored("runs")
    preempted = Reason(code=Code.PREEMPTED, by="default/Job/gone")
    assert runs.attempt is not None
    stops = replace(runs.attempt, state=AttemptState.EVICTING)
    readings.commit(replace(runs, phase=Phase.EVICTING, attempt=stops, reason=preempted))
    since = EPOCH_START - timedelta(minutes=minutes)
    readings.evicted[runs.id] = EvictionTimes((since,), since, None)
    urgent = manifest(gpus=8, labels={QUEUE_LABEL: "main", PRIORITY_LABEL: "high"})
    assert (await quoted(await serve(readings), urgent))["now"]["starts"] == starts


def limit(target: dict[str, str], subject: str = "EachUser", **amounts: Any) -> str:
    return json.dumps({"target": target, "subject": {"kind": subject}, **amounts})


async def test_a_quote_counts_for_the_user_that_asks(serve: Serve) -> None:
    """`runs` is of alice, who may run one workload in team-a."""
    readings = ledger()
    each = limit({"kind": "ClusterQueue", "name": "team-a"}, running=1)
    readings.commit(configs={ConfigKey("UsageLimit", "", "each"): each})
    reviews = CannedReviews()
    for user in ("alice", "bob"):
        reviews.tenant(user, "default")
    rest = await serve(readings, reviews)
    found = await quoted(rest, manifest(), "alice")
    assert (found["now"]["starts"], found["reason"]["code"]) == ("NotYet", "WaitingForUsageLimit")
    assert found["reason"]["detail"].startswith("user alice at ClusterQueue/team-a")
    assert (await quoted(rest, manifest(), "bob"))["now"]["starts"] == "Now"


async def test_a_quote_counts_for_the_user_that_the_object_names(serve: Serve) -> None:
    """A limit of alice does not hold a portal that creates it for bob; one for each creator would."""
    readings = ledger()
    each = limit({"kind": "ClusterQueue", "name": "team-a"}, running=1)
    readings.commit(configs={ConfigKey("UsageLimit", "", "each"): each})
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    rest = await serve(readings, reviews)
    found = await quoted(rest, manifest(annotations={USER_ANNOTATION: "bob"}), "alice")
    assert found["now"]["starts"] == "Now"


async def test_a_quote_counts_for_the_groups_of_the_user_that_asks(serve: Serve) -> None:
    readings = ledger()
    project = {"kind": "Account", "name": "ml", "key": "team"}
    target = {"kind": "ClusterQueue", "name": "team-a"}
    none = json.dumps({"target": target, "subject": project, "resources": {GPU: 0}})
    readings.commit(configs={ConfigKey("UsageLimit", "", "ml"): none})
    keys = (AccountKey(name="team", label="", sources=(AccountSource.GROUP,)),)
    reviews = CannedReviews()
    for name, groups in (("alice", ("ml",)), ("bob", ("bio",))):
        reviews.tenant(name, "default")
        reviews.users[name] = replace(reviews.users[name], groups=("system:authenticated", *groups))
    rest = await serve(readings, reviews)
    state = rest.view.sight().state  # type: ignore[union-attr]
    object.__setattr__(state, "configuration", replace(DEFAULT_CONFIGURATION, account_keys=keys))
    assert (await quoted(rest, manifest(), "alice"))["reason"]["code"] == "OutsideUsageLimit"
    assert (await quoted(rest, manifest(), "bob"))["now"]["starts"] == "Now"


@pytest.mark.parametrize("kind", ["LocalQueue", "WorkloadPriorityClass"])
async def test_a_quote_with_what_is_restricted_is_refused_as_the_gate_would(serve: Serve, kind: str) -> None:
    readings = ledger()
    restricted = {"metadata": {"labels": {RESTRICTED_LABEL: "true"}}}
    if kind == "LocalQueue":
        spec = {"spec": {"clusterQueue": "team-a"}, **restricted}
        readings.commit(configs={ConfigKey(kind, "default", "main"): json.dumps(spec)})
    else:
        readings.commit(configs={ConfigKey(kind, "", "high"): json.dumps({"value": 50, **restricted})})
    readings.commit(
        configs={ConfigKey("Gate", "", "x"): json.dumps({"installedAt": EPOCH_START.isoformat()})}
    )
    plural, namespace = {
        "LocalQueue": ("localqueues", "default"),
        "WorkloadPriorityClass": ("workloadpriorityclasses", ""),
    }[kind]
    reviews = CannedReviews()
    reviews.tenant("bob", "default")
    reviews.tenant("ann", "default")
    name = "main" if namespace else "high"
    reviews.rights["ann"].add(Access("use", plural, namespace, name))
    rest = await serve(readings, reviews)
    body = manifest(labels={QUEUE_LABEL: "main", PRIORITY_LABEL: "high"})
    answer = rest.client.post("/api/v1/quote", json=body, headers=bearer("bob"))
    assert f"{kind}/" in (problem := await rest.refused(answer, 403))
    assert "is restricted: the object would be refused" in problem
    assert (await quoted(rest, body, "ann"))["now"]["starts"] == "Now"


async def test_a_quote_counts_workloads_of_a_limited_class_in_every_tree(serve: Serve) -> None:
    readings = ledger()
    of_class = UserOptions(priority_class="high")
    running = workload("elsewhere", 4, namespace="far", cluster_queue="team-c", phase=Phase.ADMITTED, gpus=1)
    readings.commit(
        replace(running, options=of_class, priority=50),
        configs={
            ConfigKey("ClusterQueue", "", "team-c"): queue_spec(2),
            ConfigKey("LocalQueue", "far", "main"): local_spec("team-c"),
            ConfigKey("Namespace", "", "far"): json.dumps({"labels": {}}),
            ConfigKey("UsageLimit", "", "high"): limit(
                {"kind": "WorkloadPriorityClass", "name": "high"}, "All", running=1
            ),
        },
    )
    rest = await serve(readings)
    assert (await quoted(rest, manifest()))["now"]["starts"] == "Now"
    labels = {QUEUE_LABEL: "main", PRIORITY_LABEL: "high"}
    found = await quoted(rest, manifest(labels=labels))
    assert (found["now"]["starts"], found["reason"]["code"]) == ("NotYet", "WaitingForUsageLimit")


async def test_a_quote_counts_all_that_wait_for_a_limit_of_pending_workloads(serve: Serve) -> None:
    """Those that are alike count too: three of team-b wait, and three may."""
    readings = ledger()
    alike = [workload(f"w{n}", n, namespace="other", cluster_queue="team-b", reason=WAITS) for n in (4, 5, 6)]
    readings.commit(
        *(replace(one, pod_sets=(PodSet(name="main", count=3, requests=((GPU, 1),)),)) for one in alike),
        configs={
            ConfigKey("UsageLimit", "", "few"): limit(
                {"kind": "ClusterQueue", "name": "team-b"}, "All", pending=3
            )
        },
    )
    found = await quoted(await serve(readings), manifest(labels={QUEUE_LABEL: "small"}))
    assert found["reason"]["code"] == "WaitingForUsageLimit"


async def test_the_next_user_takes_what_would_start_the_workload(serve: Serve) -> None:
    """`a0` to `a2` of ann and `b` of bob are alike, and ann may run no more: a GPU more starts `b`."""
    readings = ledger()
    users = (("ann", "a0"), ("ann", "a1"), ("ann", "a2"), ("bob", "b"))
    ahead = [
        replace(workload(name, n, namespace="other", reason=WAITS), submitter=user)
        for n, (user, name) in enumerate(users, start=10)
    ]
    one = (PodSet(name="main", count=1, requests=((GPU, 1),)),)
    held = replace(workload("held", 9, phase=Phase.ADMITTED, gpus=2), submitter="ann")
    last = replace(workload("last", 20, reason=WAITS), pod_sets=one, submitter="carl")
    readings.commit(
        *(replace(each, pod_sets=one) for each in ahead),
        held,
        last,
        replace(readings.stored("waits"), phase=Phase.DELETED),
        configs={
            ConfigKey("ClusterQueue", "", "team-a"): queue_spec(8),
            ConfigKey("LocalQueue", "other", "main"): local_spec("team-a"),
            ConfigKey("UsageLimit", "", "each"): limit({"kind": "ClusterQueue", "name": "team-a"}, running=1),
        },
    )
    found = await (await serve(readings)).get("/api/v1/workloads/default/job/last/counterfactuals")
    more = next(one for one in found["items"] if one["kind"] == "MoreQuota")
    assert (more["before"], more["after"]) == (8, 10)


async def test_counterfactuals_know_what_budgets_have_left(serve: Serve) -> None:
    readings = ledger()
    rest = await serve(readings)
    found = await rest.get(WAITING)
    assert found["items"]
    used_up(readings)
    await rest.view.refresh()
    found = await rest.get(WAITING)
    assert (found["now"]["starts"], found["items"]) == ("NotYet", [])


async def test_a_plan_names_the_objects_and_fields_that_change(serve: Serve) -> None:
    rest = await serve(ledger())
    cohort = {"kind": "Cohort", "metadata": {"name": "fresh"}}
    gone = [{"kind": "ResourceFlavor", "metadata": {"name": name}} for name in ("a100", "nowhere")]
    found = await planned(rest, {"objects": [*LARGER["objects"], cohort], "deleted": gone})
    quota = f"spec.resourceGroups[0].flavors[a100].resources[{GPU}].nominalQuota"
    assert found["objects"] == [
        {
            "object": "ClusterQueue/team-a",
            "change": "Changed",
            "fields": [
                {"field": "spec.preemption.reclaimWithinCohort", "before": "Any", "after": "Never"},
                {"field": "spec.preemption.withinClusterQueue", "before": "LowerPriority", "after": "Never"},
                {"field": quota, "before": "8", "after": "13"},
            ],
        },
        {"object": "Cohort/fresh", "change": "Created", "fields": []},
        {"object": "ResourceFlavor/a100", "change": "Deleted", "fields": []},
    ]
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    spec = {**json.loads(queue_spec(8, cohort="all")), "preemption": preemption}
    same = {**LARGER["objects"][0], "spec": spec}
    assert (await planned(rest, {"objects": [same]}))["objects"] == []


async def test_a_plan_names_fields_of_a_priority_class_as_its_object_has_them(serve: Serve) -> None:
    rest = await serve(ledger())
    found = {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 60}
    (changed,) = (await planned(rest, {"objects": [found]}))["objects"]
    assert changed["fields"] == [{"field": "value", "before": "50", "after": "60"}]


async def test_a_plan_says_which_workloads_are_stranded_and_which_queues_stop(serve: Serve) -> None:
    rest = await serve(ledger())
    gone = {"deleted": [{"kind": "ResourceFlavor", "metadata": {"name": "a100"}}]}
    found = await planned(rest, gone)
    assert {one["clusterQueue"] for one in found["inactive"]} == {"team-a", "team-b"}
    assert (found["evicted"], found["stranded"]) == (0, 1)
    small = {**LARGER["objects"][0], "spec": json.loads(queue_spec(2, cohort=None))}
    assert (await planned(rest, {"objects": [small]}))["stranded"] == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "there is nothing to try"),
        ({"object": []}, "'object' is not known"),
        ({"objects": {}}, "objects must be a list"),
        (
            {"objects": [{"kind": "Job", "metadata": {"name": "x"}}]},
            "objects[0].kind must be one of ClusterQueue",
        ),
        ({"objects": [{"kind": [], "metadata": {"name": "x"}}]}, "objects[0].kind must be one of"),
        ({"objects": [{"kind": "Cohort"}]}, "objects[0] must be an object with metadata.name"),
        (
            {"objects": [{"kind": "Cohort", "metadata": {"name": "x"}, "spec": {"parentName": 1}}]},
            "Cohort/x: spec.parentName",
        ),
    ],
)
async def test_a_bad_plan_is_refused_with_object_and_field(serve: Serve, body: Any, says: str) -> None:
    rest = await serve(ledger())
    assert says in await rest.refused(rest.client.post("/api/v1/plan", json=body), 400)


async def test_a_plan_takes_a_text_with_control_characters_as_the_ledger_does(serve: Serve) -> None:
    rest = await serve(ledger())
    spec = json.loads(queue_spec(13, cohort="all")) | {"stopReason": "moved\nsoon"}
    found = await planned(rest, {"objects": [{**LARGER["objects"][0], "spec": spec}]})
    assert found["warnings"] == []


async def test_a_plan_names_fields_that_do_not_exist_and_what_may_be_meant(serve: Serve) -> None:
    rest = await serve(ledger())
    spec = json.loads(queue_spec(13, cohort="all"))
    spec["preemptions"] = {"withinClusterQueue": "Any"}
    spec["resourceGroups"][0]["flavors"][0]["resources"][0]["borowingLimit"] = 1
    cohort = {"kind": "Cohort", "metadata": {"name": "all"}, "spec": {"": 1, "zzzz": 2}, "spex": {}}
    body = {"objects": [{**LARGER["objects"][0], "spec": spec}, cohort]}
    found = await planned(rest, body)
    assert found["admitted"] == 1
    hints = {(one["object"], one["field"]): one["message"].partition(", ")[2] for one in found["warnings"]}
    quota = "spec.resourceGroups[0].flavors[0].resources[0]"
    assert hints == {
        ("ClusterQueue/team-a", f"{quota}.borowingLimit"): "did you mean borrowingLimit?",
        ("ClusterQueue/team-a", "spec.preemptions"): "did you mean preemption?",
        ("Cohort/all", "spec."): "",
        ("Cohort/all", "spec.zzzz"): "",
        ("Cohort/all", "spex"): "did you mean spec?",
    }
    many = {f"x{n}": n for n in range(1000)}
    found = await planned(rest, {"objects": [{**cohort, "spec": many}]})
    assert len(found["warnings"]) == 100


async def test_a_plan_names_objects_that_do_not_exist_and_what_may_be_meant(serve: Serve) -> None:
    rest = await serve(ledger())
    local = {"kind": "LocalQueue", "metadata": {"name": "new", "namespace": "defalt"}}
    body = {
        "objects": [
            {
                "kind": "ClusterQueue",
                "metadata": {"name": "team-a"},
                "spec": json.loads(queue_spec(8, cohort="al")),
            },
            {**local, "spec": {"clusterQueue": "team-b2"}},
            {"kind": "Cohort", "metadata": {"name": "all"}, "spec": {"parentName": "root"}},
        ]
    }
    found = await planned(rest, body)
    assert [(one["object"], one["field"], one["message"]) for one in found["warnings"]] == [
        (
            "ClusterQueue/team-a",
            "spec.cohortName",
            "there is no Cohort 'al', and no other object names it, did you mean all?",
        ),
        (
            "LocalQueue/defalt/new",
            "spec.clusterQueue",
            "there is no ClusterQueue 'team-b2', did you mean team-b?",
        ),
        (
            "LocalQueue/defalt/new",
            "metadata.namespace",
            "no LocalQueue is in namespace 'defalt' so far: check that it exists, did you mean default?",
        ),
        ("Cohort/all", "spec.parentName", "there is no Cohort 'root', and no other object names it"),
    ]
    root = {"kind": "Cohort", "metadata": {"name": "root"}}
    metadata = {"name": "new", "namespace": "default"}
    right = {"kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": "team-b"}}
    known = {"objects": [body["objects"][2], root, right]}
    assert (await planned(rest, known))["warnings"] == []


async def test_a_plan_needs_the_right_to_list_all_workloads(serve: Serve) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    reviews.admin("admin")
    rest = await serve(ledger(), reviews)
    refused = rest.client.post("/api/v1/plan", json=LARGER, headers=bearer("alice"))
    assert "list all workloads" in await rest.refused(refused, 403)
    assert (await planned(rest, LARGER, "admin"))["admitted"] == 1


async def test_a_new_workload_that_fits_would_start_now_and_nothing_is_written(serve: Serve) -> None:
    rest = await serve(ledger())
    before = await rest.get("/api/v1/workloads")
    found = await quoted(rest, manifest(gpus=1))
    assert found["now"]["starts"] == "Now"
    assert found["now"]["admission"]["podSets"][0]["flavors"] == {GPU: "a100"}
    assert (found["clusterQueue"], found["priority"], found["items"]) == ("team-a", 0, [])
    assert found["reason"] is None
    after = await rest.get("/api/v1/workloads")
    assert after["items"] == before["items"]


async def test_pods_of_other_trees_take_room_and_do_not_end(serve: Serve) -> None:
    """`theirs` has all devices of node `b`, and `runs` has those of node `a`, which may be preempted."""
    readings = ledger()
    key = ConfigKey("ClusterQueue", "", "team-c")
    theirs = workload("theirs", 9, namespace="far", cluster_queue="team-c", phase=Phase.ADMITTED, gpus=8)
    readings.commit(theirs, configs={key: queue_spec(8)})
    for name, namespace, owner in (("a", "default", "uid-1"), ("b", "far", theirs.id)):
        there = Node(name, allocatable=((GPU, 8),))
        pods = (PodsOnNode(namespace, owner, ((GPU, 1),), 8),)
        readings.node(NodeFacts(name=name, node=there, pods=pods))
    rest = await serve(readings)
    body = manifest(gpus=1, labels={QUEUE_LABEL: "main", PRIORITY_LABEL: "high"})
    found = await quoted(rest, body)
    assert found["now"]["starts"] == "AfterPreemption", "to wait for pods of other trees would be in vain"
    assert [one["name"] for one in found["now"]["displaces"]] == ["runs"]


async def test_a_pending_workload_is_told_the_smallest_changes_that_start_it(serve: Serve) -> None:
    rest = await serve(ledger())
    found = await rest.get(WAITING)
    assert found["now"]["starts"] == "NotYet"
    assert found["triedAt"] == found["sequence"]
    assert {one["kind"]: one["message"] for one in found["items"]} == {
        "FewerPods": "With 2 of 6 pods in podset main it starts as soon as 1 workload is preempted",
        "OtherPriority": "With WorkloadPriorityClass high (50, not 0) it starts as soon as 1 workload is "
        "preempted",
        "MoreQuota": "If nominalQuota of ClusterQueue/team-a were 12, not 8 nvidia.com/gpu of flavor a100, "
        "it starts as soon as 1 workload is preempted",
    }
    (fewer,) = (one for one in found["items"] if one["kind"] == "FewerPods")
    guest = {"namespace": "other", "kind": "Job", "name": "guest", "cause": "InCohortReclamation"}
    assert fewer["displaces"] == [guest]
    assert (fewer["podSet"], fewer["before"], fewer["after"]) == ("main", 6, 2)
    fits = {one["kind"]: one["fit"] for one in found["items"]}
    assert fits.pop("FewerPods") == {"gpus": 2, "pods": None, "podSet": None}
    assert set(fits.values()) == {None}


def test_a_change_that_needs_no_victim_of_its_own_waits_for_pods_that_end_already() -> None:
    larger = Change(
        kind=ChangeKind.MORE_QUOTA,
        resource=GPU,
        flavor="a100",
        node="ClusterQueue/team-a",
        before=8,
        after=11,
    )
    assert message(larger, Tried(start=Start.AFTER_PREEMPTION)) == (
        "If nominalQuota of ClusterQueue/team-a were 11, not 8 nvidia.com/gpu of flavor a100, it starts as "
        "soon as the pods of workloads that are being preempted have ended"
    )


async def test_a_copy_has_the_trees_of_a_namespace_and_what_counts_for_their_workloads() -> None:
    readings = ledger()
    readings.commit(
        workload("alone", 4, namespace="far", cluster_queue="team-c"),
        configs={
            ConfigKey("ClusterQueue", "", "team-c"): queue_spec(2),
            ConfigKey("LocalQueue", "far", "main"): local_spec("team-c"),
            ConfigKey("Namespace", "", "far"): json.dumps({"labels": {}}),
        },
    )
    state = CommittedState().advance(await readings.since(0), parse_policy)
    of = basis.of_namespace(state, EPOCH_START, "other")
    assert of.namespace == "other"
    found = of.snapshot()
    assert {one.ref.name for one in found.workloads} == {"runs", "guest", "waits"}
    everything = basis.everything(state, EPOCH_START).snapshot()
    assert {key.name for key, _ in everything.configs if key.namespace == "far"} == {"main"}
    left_out = {key for key, _ in everything.configs} - {key for key, _ in found.configs}
    assert {str(key) for key in left_out} == {"ClusterQueue/team-c", "LocalQueue/far/main", "Namespace/far"}


async def test_a_running_workload_needs_no_change(serve: Serve) -> None:
    rest = await serve(ledger())
    found = await rest.get("/api/v1/workloads/default/job/runs/counterfactuals")
    assert (found["now"]["starts"], found["items"]) == ("Now", [])


async def test_a_quote_says_which_workloads_it_would_displace_and_who_may_take_it_back(serve: Serve) -> None:
    rest = await serve(ledger())
    found = await quoted(rest, manifest(pods=2))
    assert found["now"]["starts"] == "AfterPreemption"
    assert [one["name"] for one in found["now"]["displaces"]] == ["guest"]
    small = await quoted(rest, manifest(labels={"queuectl.dev/queue-name": "small"}))
    assert small["now"]["starts"] == "Now"
    assert small["borrows"] == {"a100": {GPU: 2}}
    assert small["threats"] == [{"clusterQueue": "team-a", "cause": "InCohortReclamation", "pending": 1}]


async def test_a_quote_of_a_workload_that_waits_names_its_place_and_what_would_help(serve: Serve) -> None:
    rest = await serve(ledger())
    found = await quoted(rest, manifest(pods=9))
    assert found["now"]["starts"] in ("NotYet", "Never")
    assert found["reason"]["message"]
    assert found["ahead"] == 1
    assert "FewerPods" in {one["kind"] for one in found["items"]}
    assert {one["fit"] for one in found["items"]} == {None}, "there is no object yet"


async def test_names_of_others_are_not_told(serve: Serve) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    rest = await serve(ledger(), reviews)
    for found in (await rest.get(WAITING, token="alice"), await quoted(rest, manifest(pods=2), "alice")):
        assert "guest" not in json.dumps(found)
        assert '"other"' not in json.dumps(found)
    small = await quoted(rest, manifest(labels={"queuectl.dev/queue-name": "small"}), "alice")
    assert small["threats"] == [{"clusterQueue": None, "cause": "InCohortReclamation", "pending": 1}]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "one JSON object"),
        ({"kind": "Pod", "apiVersion": "v1"}, "apiVersion and kind must be one of Job"),
        (manifest(labels={}), "metadata.labels: there is no queuectl.dev/queue-name"),
        (manifest(namespace=None), "namespace, name or labels"),
        (manifest(namespace="A B"), "metadata.namespace is not a name"),
    ],
)
async def test_a_bad_object_is_refused_with_its_field(serve: Serve, body: Any, says: str) -> None:
    rest = await serve(ledger())
    assert says in await rest.refused(rest.client.post("/api/v1/quote", json=body), 400)


async def test_a_bad_body_is_refused(serve: Serve) -> None:
    rest = await serve(ledger())
    post, as_json = rest.client.post, {"Content-Type": "application/json"}
    await rest.refused(post("/api/v1/quote", data=b"{", headers=as_json), 400)
    await rest.refused(post("/api/v1/quote", data=b"{}"), 415)
    await rest.refused(post("/api/v1/quote", data=b" " * 300_000, headers=as_json), 413)
    await rest.refused(rest.client.get("/api/v1/quote"), 405)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"a": 1, "b": 2, "a": 3}', "the body: key 'a' is given twice"),
        (b'{"a": NaN}', "the body: NaN is not a number that is read here"),
        (b'{"a": 1e309}', "the body: 1e309 is not a number that is read here"),
        ('{"a": 1}'.encode("utf-16"), "the body: byte 0xff at 0 is not UTF-8"),
        (b'{"a": 1}{}', "the body: not JSON: line 1, column 9: Extra data"),
    ],
)
async def test_json_of_a_body_is_as_strict_as_that_of_a_file(serve: Serve, body: bytes, says: str) -> None:
    """What has two meanings is refused: one of two quantities was quoted without a word."""
    rest = await serve(ledger())
    for path in ("/api/v1/quote", "/api/v1/plan"):
        answer = rest.client.post(path, data=body, headers={"Content-Type": "application/json"})
        assert await rest.refused(answer, 400) == says


async def test_another_tenant_s_namespace_is_not_quoted(serve: Serve) -> None:
    reviews = CannedReviews()
    reviews.tenant("alice", "default")
    rest = await serve(ledger(), reviews)
    answer = rest.client.post("/api/v1/quote", json=manifest(namespace="other"), headers=bearer("alice"))
    await rest.refused(answer, 404)


POLICY_YAML = """
apiVersion: v1
kind: List
items:
- kind: Cohort
  metadata: {name: all}
---
kind: ClusterQueue
metadata: {name: team-a}
spec:
  namespaceSelector: {}
  cohortName: all
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: a100
      resources: [{name: nvidia.com/gpu, nominalQuota: 13}]
"""
AS_YAML = {"Content-Type": "application/yaml"}


async def test_policy_and_workloads_may_be_yaml(serve: Serve) -> None:
    rest = await serve(ledger())
    post = rest.client.post
    found = await (await post("/api/v1/plan", data=POLICY_YAML, headers=AS_YAML)).json()
    assert [(one["name"], one["change"]) for one in found["items"]] == [("waits", "Admitted")]
    quoted = await (await post("/api/v1/quote", data=yaml.safe_dump(manifest()), headers=AS_YAML)).json()
    assert quoted["now"]["starts"] == "Now"


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("quote", "a: 1\nb: [", 400, "body: line 3, column 1"),
        ("quote", "a: 1\n---\nb: 2", 400, "the body must have one object, and has 2"),
        ("quote", "- 1", 400, "the body must be one YAML object"),
        ("quote", "kind: Job\nwhen: 2026-01-01", 400, "apiVersion and kind must be one of"),
        ("quote", "a: &x 1\nb: *y", 400, "the alias *y has no anchor before it"),
        ("quote", " " * 70_000, 413, "more than 65536 bytes"),
        ("plan", "kind: Cohort", 400, "objects[0] must be an object with metadata.name"),
        ("plan", "", 400, "there is nothing to try"),
    ],
)
async def test_bad_yaml_is_refused_with_its_place(
    serve: Serve, path: str, body: str, status: int, says: str
) -> None:
    rest = await serve(ledger())
    answer = rest.client.post(f"/api/v1/{path}", data=body, headers=AS_YAML)
    assert says in await rest.refused(answer, status)


@pytest.mark.parametrize("module", ["trials", "engines"])
async def test_a_state_that_does_not_come_to_rest_is_said_to_be_so(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    rest = await serve(ledger())
    monkeypatch.setattr(f"queuectl.answers.what_if.{module}.PLANS", 0)
    asked: list[tuple[str, str, Any]] = [("POST", "/api/v1/plan", LARGER)]
    if module == "trials":
        asked += [("GET", WAITING, None), ("POST", "/api/v1/quote", manifest())]
    for method, path, body in asked:
        detail = await rest.refused(rest.client.request(method, path, json=body), 503)
        assert detail.startswith("the state cannot be tried: it does not come to rest within")


async def test_a_plan_of_too_many_objects_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if_routes, "MAX_OBJECTS", 2)
    rest = await serve(ledger())
    some = {**LARGER, "deleted": [{"kind": "Cohort", "metadata": {"name": "all"}}]}
    assert (await planned(rest, some))["admitted"] == 1
    many = {**LARGER, "deleted": some["deleted"] * 2}
    said = await rest.refused(rest.client.post("/api/v1/plan", json=many), 400)
    assert said == "deleted: one plan tries at most 2 objects"
