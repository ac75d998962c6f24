"""Running documents: the engine's decisions, and differences from the expected ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import queuectl
from queuectl.scenarios.reader import read_policy, read_scenarios
from queuectl.scenarios.verdicts import CaseResult, judge
from tests.unit.scenarios.cases import GPU, cycle, findings, holding, judged, lines, manifest, pending, queue

EXAMPLES = Path(queuectl.__file__).parent.parent / "docs" / "examples"
RECLAIM = {"preemption": {"reclaimWithinCohort": "Any"}, "cohortName": "rack"}
TWO = [*queue("a", 8, **RECLAIM), *queue("b", 8, **RECLAIM)]


def observed(document: dict[str, Any]) -> dict[str, Any]:
    found = judged(document).observed
    assert found is not None
    return found.model_dump(mode="json", by_alias=True, exclude_none=True)


def test_a_cycle_evaluates_at_most_the_head_of_each_queue() -> None:
    waiting = [pending("a/one"), pending("a/two"), pending("b/three")]
    found = observed(cycle(TWO, waiting, config={"cycles": 1}))
    assert list(found["admitted"]) == ["a/one", "b/three"]
    assert found["pending"] == {"a": ["a/two"]}
    assert list(observed(cycle(TWO, waiting, config={"cycles": 2}))["admitted"]) == [
        "a/one",
        "b/three",
        "a/two",
    ]


def test_workloads_created_at_the_same_time_are_in_the_order_of_the_document() -> None:
    waiting = [pending("a/z"), pending("a/a"), pending("a/late", createdAt="2023-01-01T00:00:00Z")]
    assert list(observed(cycle(TWO, waiting, config={"cycles": 3}))["admitted"]) == ["a/z", "a/a", "a/late"]


def test_a_victim_keeps_its_quota_and_the_preemptor_stays_pending() -> None:
    document = cycle(TWO, [holding("b/lent", 16), pending("a/owner", 8)])
    assert observed(document) == {
        "admitted": {},
        "preempted": [
            {"workload": "b/lent", "reason": "InCohortReclamation", "by": "a/owner", "clusterQueue": "b"}
        ],
        "evicted": [],
        "finished": [],
        "pending": {"a": ["a/owner"]},
        "inadmissible": {},
        "holding": {"b/lent": "b"},
        "reasons": {"a/owner": "WaitingForPreemptedWorkloads"},
    }


def test_steps_delete_workloads_and_continue() -> None:
    steps = [{"do": "cycle"}, {"do": "deleteWorkloads", "workloads": ["b/lent"]}, {"do": "cycle"}]
    document = cycle(TWO, [holding("b/lent", 16), pending("a/owner", 8)], {}, steps=steps)
    verdict = judged(document)
    first, deleted, last = verdict.steps
    assert first is not None
    assert first.admitted == {}
    assert deleted is None
    assert last is not None
    assert list(last.admitted or {}) == ["a/owner"]
    assert verdict.observed is not None
    assert observed(document)["holding"] == {"a/owner": "a"}
    assert [victim["workload"] for victim in observed(document)["preempted"]] == ["b/lent"]


def test_an_already_terminating_workload_is_no_new_victim() -> None:
    leaving = holding("b/lent", 16, evicted={"reason": "Preempted", "at": "2024-01-01T00:00:00Z"})
    found = observed(cycle(TWO, [leaving, pending("a/owner", 8)]))
    assert (found["preempted"], found["pending"]) == ([], {"a": ["a/owner"]})


def test_only_named_values_are_compared() -> None:
    waiting = [pending("a/runs", 4), pending("a/waits", 8)]
    assert lines(cycle(TWO, waiting, {}, config={"cycles": 2})) == []
    right = {
        "admitted": {"a/runs": {}, "a/waits": {"podSets": {"main": {"flavors": {GPU: "h100"}}}}},
        "pending": {},
    }
    assert lines(cycle(TWO, waiting, right, config={"cycles": 2})) == []


def test_a_difference_has_its_path_and_the_expected_and_actual_value() -> None:
    expect = {
        "admitted": {"a/runs": {"clusterQueue": "b", "podSets": {"main": {"usage": {GPU: 5}}}}, "a/no": {}},
        "pending": {"b": ["a/no"]},
        "reasons": {"a/no": "ExceedsMaxQuota"},
        "holding": {"a/runs": "a"},
        "preempted": [{"workload": "a/runs", "reason": "InClusterQueue"}],
    }
    full = [pending("a/runs", 4), pending("a/no", 16)]
    assert lines(cycle(TWO, full, expect, config={"cycles": 2})) == [
        "- admitted.a/no: {}",
        "- admitted.a/runs.clusterQueue: b",
        "+ admitted.a/runs.clusterQueue: a",
        f"- admitted.a/runs.podSets.main.usage.{GPU}: 5",
        f"+ admitted.a/runs.podSets.main.usage.{GPU}: 4",
        "+ pending.a: a/no",
        "- pending.b: a/no",
        '- preempted.a/runs: {"workload":"a/runs","reason":"InClusterQueue"}',
        "- reasons.a/no: ExceedsMaxQuota",
        "+ reasons.a/no: WaitingForQuota",
    ]


def test_a_step_is_compared_on_its_own() -> None:
    steps = [{"do": "cycle", "expect": {"admitted": {"b/w": {}}}}, {"do": "cycle"}]
    assert lines(cycle(TWO, [pending("a/w"), pending("b/w")], {}, steps=steps)) == [
        '+ steps[0].admitted.a/w: {"clusterQueue":"a","podSets":{"main":{"count":1,"flavors":'
        f'{{"{GPU}":"h100"}},"usage":{{"{GPU}":"1"}}}}}},"state":"admitted"}}'
    ]


def test_a_difference_is_explained_by_the_reason_and_the_findings_behind_it() -> None:
    """The priority of what lent is not lower, so it is not preempted."""
    lent = holding("b/lent", 16, priority=5)
    lower = {"preemption": {"reclaimWithinCohort": "LowerPriority"}, "cohortName": "rack"}
    objects = [*queue("a", 8, **lower), *queue("b", 8, **lower)]
    expect = {"preempted": [{"workload": "b/lent"}], "admitted": {}}
    assert findings(cycle(objects, [lent, pending("a/owner", 8), pending("a/next")], expect)) == [
        "  b/lent: holds quota of ClusterQueue b since the start",
        "  a/owner: WaitingForQuota: requests 8 nvidia.com/gpu in flavor h100, 0 available, short by 8 "
        "(bound by nominalQuota of Cohort/rack); not preempted: 1 whose priority is not lower",
        "    not preempted: b/Job/lent: its priority is not lower",
        "  a/next: not evaluated: each cycle takes at most the head of its ClusterQueue",
    ]


def test_the_flavors_that_were_tried_are_behind_the_reason() -> None:
    quotas = [
        {"name": name, "resources": [{"name": GPU, "nominalQuota": gpus}]}
        for name, gpus in (("h100", 8), ("spot", 4))
    ]
    groups = [{"coveredResources": [GPU], "flavors": quotas}]
    objects = [manifest("ResourceFlavor", "spot"), *queue("a", 0, resourceGroups=groups)]
    assert findings(cycle(objects, [pending("a/big", 9)], {"pending": {}})) == [
        "  a/big: ExceedsMaxQuota: requests 9 nvidia.com/gpu in flavor h100, at most 8 ever, short by 1 "
        "(bound by nominalQuota of ClusterQueue/a)",
        "    also tried: ExceedsMaxQuota: requests 9 nvidia.com/gpu in flavor spot, at most 4 ever, short "
        "by 5 (bound by nominalQuota of ClusterQueue/a)",
    ]


def test_only_workloads_that_a_difference_names_are_explained() -> None:
    waiting = [pending("a/train", 4), pending("a/train-2", 4), pending("b/other")]
    expect: dict[str, Any] = {"admitted": {"a/train-2": {}, "b/other": {}}}
    document = cycle(TWO, waiting, expect, config={"cycles": 2})
    assert findings(document) == [
        "  a/train: admitted to ClusterQueue a: main: 1 x (4 nvidia.com/gpu of h100)"
    ]


def test_findings_are_those_after_the_step_that_differs() -> None:
    steps = [
        {"do": "cycle", "expect": {"preempted": []}},
        {"do": "deleteWorkloads", "workloads": ["b/lent"]},
        {"do": "cycle"},
    ]
    document = cycle(TWO, [holding("b/lent", 16), pending("a/owner", 8)], {"holding": {}}, steps=steps)
    assert findings(document) == [
        "  steps[0].b/lent: Preempted (InCohortReclamation) by a/Job/owner",
        "  steps[0].a/owner: WaitingForPreemptedWorkloads: requests 8 nvidia.com/gpu in flavor h100, "
        "0 available, short by 8 (bound by nominalQuota of Cohort/rack): 1 workload has to end first",
        "  a/owner: admitted to ClusterQueue a: main: 1 x (8 nvidia.com/gpu of h100)",
    ]


def test_pending_and_inadmissible_workloads_are_compared_together() -> None:
    expect = {"pending": {"a": ["a/big"]}, "inadmissible": {"b": ["b/big"], "a": []}}
    assert lines(cycle(TWO, [pending("a/big", 99), pending("b/big", 99)], expect)) == []


@pytest.mark.parametrize(
    ("code", "workload"),
    [
        ("QueueNotFound", pending("a/w", queue="none")),
        ("Misconfigured", pending("a/w", podSets=[{"containers": [
            {"name": "c", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}]}])),
        ("QuantityOutOfRange", pending("a/w", podSets=[{"requests": {GPU: "1e30"}}])),
        ("NegativeRequest", pending("a/w", podSets=[{"requests": {GPU: -1}}])),
        ("ResourceNotCovered", pending("a/w", podSets=[{"requests": {"tpu": 1}}])),
    ],
)  # fmt: skip
def test_reasons_are_compared_by_their_code(code: str, workload: dict[str, Any]) -> None:
    assert lines(cycle(TWO, [workload], {"reasons": {"a/w": code}})) == []


def test_the_documents_configuration_is_in_force() -> None:
    fair = {"fairSharing": {"enabled": True}}
    third = [*TWO, *queue("bank", 8, cohortName="rack")]
    workloads = [holding("b/x", 12), holding("b/y", 4, uid="1"), pending("a/w", 12)]
    assert observed(cycle(third, workloads))["preempted"] == []
    (victim,) = observed(cycle(third, workloads, config=fair))["preempted"]
    assert victim["reason"] == "InCohortFairSharing"


def test_kueues_manifests_are_read_as_they_are() -> None:
    theirs = [
        {**obj, "apiVersion": "kueue.x-k8s.io/v1beta1"}
        for obj in (manifest("Cohort", "rack", parent="hall"), *queue("a", 1, cohort="rack"))
    ]
    assert list(observed(cycle(theirs, [pending("a/w")]))["admitted"]) == ["a/w"]


def test_the_examples_of_the_documentation_pass() -> None:
    policy = read_policy((EXAMPLES / "policy" / "queues.yaml").read_bytes(), "queues.yaml")
    text = (EXAMPLES / "policy-tests.yaml").read_bytes()
    for scenario in read_scenarios(text, "policy-tests.yaml", policy):
        verdict = judge(scenario)
        assert verdict.result is CaseResult.PASSED, [one.lines() for one in verdict.differences]


def test_a_workload_evicted_without_ready_pods_is_ordered_by_its_eviction() -> None:
    late = {"reason": "PodsReadyTimeout", "at": "2024-01-01T00:00:00Z"}
    old = pending("a/old", 8, createdAt="2023-12-31T10:00:00Z", evicted=late)
    young = pending("a/young", 8, createdAt="2023-12-31T20:00:00Z")
    assert list(observed(cycle(TWO, [old, young]))["admitted"]) == ["a/young"]


def test_a_preempted_workload_keeps_its_place() -> None:
    gone = {"reason": "Preempted", "at": "2024-01-01T00:00:00Z"}
    old = pending("a/old", 8, createdAt="2023-12-31T10:00:00Z", evicted=gone)
    young = pending("a/young", 8, createdAt="2023-12-31T20:00:00Z")
    assert list(observed(cycle(TWO, [old, young]))["admitted"]) == ["a/old"]
