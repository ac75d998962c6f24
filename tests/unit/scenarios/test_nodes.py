"""Nodes, their failures and pods of no queue in simulations and policy tests."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from queuectl.scenarios.manifests import read_manifests
from queuectl.scenarios.nodes import MOST_NODES, MOST_PODS
from queuectl.scenarios.reader import BadScenarios, read_scenarios
from queuectl.scenarios.verdicts import judge
from queuectl.simulation import stage
from tests.doubles.invariants import checked_commits
from tests.unit.scenarios.cases import GPU, H100, cycle, holding, judged, manifest, pending, queue, read

STATIC = manifest("ResourceFlavor", "h100", nodes={"mode": "Static"})
DOCS = Path(__file__).resolve().parents[3] / "docs"
TWO = [{"name": "main", "count": 2, "requests": {GPU: 8}}]
PREEMPTS = {"withinClusterQueue": "LowerPriority"}
play = checked_commits()(stage.play)


def nodes(count: int = 2, gpus: int = 8, **fields: Any) -> dict[str, Any]:
    return {"name": "gpu", "count": count, "allocatable": {GPU: gpus}, **fields}


def gang(name: str, pods: int = 1, gpus: int = 8, run: float | None = 100, **fields: Any) -> dict[str, Any]:
    shape = [{"count": pods, "requests": {GPU: gpus}}]
    ends = {} if run is None else {"runSeconds": run}
    return {"name": name, "namespace": "team", "queue": "main", "podSets": shape, **ends, **fields}


def simulation(
    *workloads: dict[str, Any], quota: int = 100, flavor: Any = H100, **fields: Any
) -> dict[str, Any]:
    preemption = fields.pop("preemption", {})
    objects = [flavor, *queue("team", quota, preemption=preemption)]
    head = {"format": "scenario/v1", "kind": "simulation", "name": "a case"}
    return {**head, "nodes": [nodes()], "objects": objects, "workloads": list(workloads), **fields}


def played(*workloads: dict[str, Any], **fields: Any) -> dict[str, Any]:
    text = json.dumps(simulation(*workloads, **fields)).encode()
    return play(stage.read_simulation(text, "case.json"))


def happens(*events: tuple[float, str, str]) -> list[dict[str, Any]]:
    return [{"at": at, "node": node, "do": what} for at, node, what in events]


def room(found: dict[str, Any]) -> dict[str, float]:
    seconds = found["total"]["room"]
    return {**seconds["waitSeconds"], "stalled": seconds["stalledSeconds"]}


def shares(found: dict[str, Any]) -> dict[str, float]:
    (one,) = (one for one in found["nodes"] if one["resource"] == GPU)
    return {key.removesuffix("Percent"): value for key, value in one.items() if key.endswith("Percent")}


# --- simulations --------------------------------------------------------------------------------------


def test_a_workload_waits_for_nodes_although_it_has_quota() -> None:
    found = played(gang("a", 2), gang("b"), gang("c"))
    assert found["seconds"] == 200
    assert room(found) == {"CapacityMissing": 200, "NoNodeFits": 0, "stalled": 0}


def test_free_devices_in_pieces_that_are_too_small_are_fragmented() -> None:
    notebooks = {"name": "notebook", "count": 2, "requests": {GPU: 4}, "runSeconds": 60}
    found = played(gang("a", arrival=10), pods=[notebooks])
    assert found["total"]["wait"]["max"] == 50
    assert room(found)["NoNodeFits"] == 50
    # 60 of 160 seconds half of the GPUs are free, and in 50 of these the gang waits; then 100 seconds.
    assert shares(found) == {
        "used": 31.25,
        "unmanaged": 18.75,
        "unusable": 0.0,
        "idle": 50.0,
        "fragmented": 15.62,
    }


def test_pods_that_no_node_fits_hold_the_quota_of_a_flavor_that_nodes_do_not_limit() -> None:
    found = played(gang("a", 3), flavor=STATIC, nodeEvents=[], until=500)
    assert (found["total"]["started"], found["total"]["finished"]) == (1, 0)
    assert room(found) == {"CapacityMissing": 0, "NoNodeFits": 0, "stalled": 500}


def test_pods_that_no_node_fits_are_bound_when_a_node_is_added() -> None:
    more = {"name": "more", "addedAt": 40, "allocatable": {GPU: 8}}
    found = played(gang("a", 3), flavor=STATIC, nodes=[nodes(), more])
    assert (found["seconds"], room(found)["stalled"]) == (140, 40)


def test_a_workload_does_not_progress_while_a_node_under_it_has_failed_and_begins_again() -> None:
    found = played(gang("a", 2), nodeEvents=happens((30, "gpu-1", "fail"), (50, "gpu-1", "return")))
    assert (found["seconds"], found["total"]["finished"]) == (150, 1)
    assert (room(found)["stalled"], found["total"]["lostSeconds"]) == (20, 30)


def test_a_node_that_fails_under_no_pod_stops_no_workload() -> None:
    found = played(gang("a", 1), nodeEvents=happens((30, "gpu-2", "fail")))
    assert (found["seconds"], room(found)["stalled"]) == (100, 0)
    assert shares(found)["unusable"] == 35.0


def test_a_failed_node_is_no_room_until_it_has_settled() -> None:
    events = happens((10, "gpu-1", "fail"), (40, "gpu-1", "return"))
    found = played(gang("a", arrival=20), nodes=[nodes(1)], nodeEvents=events)
    assert found["total"]["wait"]["max"] == 50
    at_once = played(
        gang("a", arrival=20), nodes=[nodes(1)], nodeEvents=events, config={"nodes": {"settleSeconds": 0}}
    )
    assert at_once["total"]["wait"]["max"] == 20


def test_a_workload_whose_node_fails_starts_elsewhere_although_its_pods_there_never_end() -> None:
    found = played(gang("a"), gang("b"), nodes=[nodes(3)], nodeEvents=happens((30, "gpu-1", "fail")))
    assert found["total"]["evictions"] == {"NodeFailures": 1}
    assert (found["seconds"], found["total"]["lostSeconds"], room(found)["stalled"]) == (190, 90, 60)
    assert found["total"]["finished"] == 2


def test_a_workload_whose_node_is_removed_starts_when_another_node_has_room() -> None:
    later = {"name": "more", "addedAt": 50, "allocatable": {GPU: 8}}
    found = played(gang("a", 2), nodes=[nodes(), later], nodeEvents=happens((30, "gpu-1", "remove")))
    assert found["total"]["evictions"] == {"NodeFailures": 1}
    assert (found["seconds"], room(found)["CapacityMissing"]) == (150, 20)


def test_in_an_outage_the_pods_of_removed_nodes_are_made_again_on_others() -> None:
    gone = [(30.0, f"gpu-{number}", "remove") for number in (1, 2, 3)]
    later = {"name": "more", "count": 3, "addedAt": 100, "allocatable": {GPU: 8}}
    found = played(gang("a", 4), nodes=[nodes(4), later], nodeEvents=happens(*gone))
    assert found["total"]["evictions"] == {}
    assert (found["seconds"], found["total"]["lostSeconds"], room(found)["stalled"]) == (200, 30, 70)


def test_a_cordoned_node_keeps_its_pods_and_takes_no_more() -> None:
    events = happens((10, "gpu", "cordon"), (300, "gpu-2", "uncordon"))
    found = played(gang("a"), gang("b", arrival=20), nodeEvents=events)
    assert found["seconds"] == 400
    assert room(found) == {"CapacityMissing": 280, "NoNodeFits": 0, "stalled": 0}


def test_a_preemptor_starts_when_the_pods_of_its_victim_have_left_the_nodes() -> None:
    found = played(
        gang("low", 2, run=None),
        gang("high", 1, arrival=10, priority=100),
        preemption=PREEMPTS,
        evictionSeconds=30,
        until=200,
    )
    assert found["total"]["preemptions"]["suffered"] == 1
    assert found["total"]["wait"]["max"] == 30


@pytest.mark.parametrize(("gpus", "victims"), [(8, 2), (16, 0)])
def test_no_workload_is_preempted_for_one_that_fits_no_node(gpus: int, victims: int) -> None:
    low = [gang(f"low-{number}", gpus=4, run=None) for number in range(4)]
    found = played(
        *low, gang("high", gpus=gpus, arrival=10, priority=100), quota=16, preemption=PREEMPTS, until=60
    )
    assert found["total"]["preemptions"]["suffered"] == victims


def test_a_workload_that_runs_at_the_start_has_the_nodes_that_its_document_names() -> None:
    admission = {"clusterQueue": "team", "podSets": {"main": {"flavors": {GPU: "h100"}, "nodes": ["gpu-2"]}}}
    runs = gang("runs", state="admitted", admission=admission)
    assert played(runs, nodeEvents=happens((30, "gpu-1", "remove")))["total"]["evictions"] == {}
    assert played(runs, nodeEvents=happens((30, "gpu-2", "remove")))["total"]["evictions"] != {}


def test_pods_on_a_given_node_run_there_whether_they_fit_or_not() -> None:
    big = {"name": "big", "requests": {GPU: 12}, "node": "gpu-1", "at": 0}
    found = played(gang("a", 2), pods=[big], until=50)
    assert found["total"]["started"] == 0


def test_further_pods_of_a_workload_run_at_the_start_on_their_nodes() -> None:
    admission = {"clusterQueue": "team", "podSets": {"main": {"flavors": {GPU: "h100"}}}}
    runs = gang("runs", state="admitted", admission=admission)
    one = {"name": "one", "namespace": "team", "requests": {GPU: 8}, "node": "gpu-2", "workload": "team/runs"}
    over = {"name": "over", "requests": {GPU: 8}, "node": "gpu-1", "terminating": True}
    pods = [one, over]
    assert played(runs, pods=pods, nodeEvents=happens((30, "gpu-1", "remove")))["total"]["evictions"] == {}
    assert played(runs, pods=pods, nodeEvents=happens((30, "gpu-2", "remove")))["total"]["evictions"] != {}


def test_a_node_that_is_avoided_at_the_start_counts_later() -> None:
    avoided = nodes(avoidedUntil="2024-01-01T01:00:00Z")
    found = played(gang("a", 2), nodes=[avoided], until=3_700)
    assert room(found) == {"CapacityMissing": 3_600, "NoNodeFits": 0, "stalled": 0}


def test_labels_and_taints_of_nodes_select_pods() -> None:
    flavor = manifest("ResourceFlavor", "h100", nodeLabels={"gpu": "h100"}, nodes={"mode": "Static"})
    taint = [{"key": "broken", "effect": "NoSchedule"}]
    kinds = [nodes(1, labels={"gpu": "h100"}), nodes(1, name="other"), nodes(1, name="bad", taints=taint)]
    found = played(gang("a", 2), flavor=flavor, nodes=kinds, until=50)
    assert room(found)["stalled"] == 50


def test_cpu_that_no_node_states_limits_no_pods() -> None:
    shape = [{"requests": {GPU: 8, "cpu": 500}}]
    quota = {"coveredResources": [GPU, "cpu"], "flavors": [{"name": "h100", "resources": [
        {"name": GPU, "nominalQuota": 8}, {"name": "cpu", "nominalQuota": 999}]}]}  # fmt: skip
    objects = [H100, *queue("team", 8, resourceGroups=[quota])]
    assert played(gang("a", podSets=shape), objects=objects)["total"]["finished"] == 1
    stated = {"name": "gpu", "allocatable": {GPU: 8, "cpu": 400}}
    assert (
        played(gang("a", podSets=shape), objects=objects, nodes=[stated], until=50)["total"]["finished"] == 0
    )


def test_a_document_without_nodes_has_no_figures_of_nodes() -> None:
    found = played(gang("a", 20), nodes=[], quota=160)
    assert (found["seconds"], found["nodes"], found["total"]["room"]) == (100, [], None)


def node_manifest(name: str, *, ready: str | None = None, **fields: Any) -> dict[str, Any]:
    """As `kubectl get node -o yaml` prints it, as far as it matters."""
    since = "2026-05-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": since}] if ready else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": "2020-01-01T00:00:00Z"},
        "status": {"allocatable": {GPU: "8", "cpu": "64"}, "conditions": conditions},
        **fields,
    }


def test_node_manifests_are_taken_as_they_are() -> None:
    policy = read_manifests(
        [node_manifest("a", ready="True"), node_manifest("b"), node_manifest("c", ready="False")]
    )
    text = json.dumps(simulation(gang("x", 2), gang("y", 1), nodes=[], until=150)).encode()
    found = play(stage.read_simulation(text, "case.json", policy))
    assert (found["total"]["started"], found["total"]["wait"]["max"]) == (2, 100)
    assert found["nodes"][-1]["allocatable"] == 24


def test_a_node_of_the_document_replaces_the_manifest_of_its_name() -> None:
    policy = read_manifests([node_manifest("gpu-1"), node_manifest("gpu-2")])
    text = json.dumps(simulation(gang("x", 3), until=150)).encode()
    found = play(stage.read_simulation(text, "case.json", policy))
    assert found["nodes"][0]["allocatable"] == 16


@pytest.mark.acceptance
def test_the_same_simulation_gives_the_same_figures() -> None:
    many = {"poisson": {"perHour": 200}, "runSeconds": {"exponential": 300}}
    arrivals = [{**gang("many", 3, gpus=2, run=None), **many}]
    events = happens((600, "gpu-1", "fail"), (900, "gpu-1", "return"), (1800, "gpu-2", "remove"))
    whole = {"arrivals": arrivals, "nodeEvents": events, "nodes": [nodes(3)], "until": 3600.0}
    first = played(**whole, evictionSeconds=20)
    assert first == played(**whole, evictionSeconds=20)
    assert first["total"]["started"] > 20


# --- policy tests -------------------------------------------------------------------------------------


def differences(document: dict[str, Any]) -> Sequence[object]:
    (scenario,) = read(document)
    return judge(scenario).differences


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"nodes": [nodes(1)]}, "CapacityMissing", id="too few nodes"),
        pytest.param({"nodes": [nodes(2, ready=False)]}, "CapacityMissing", id="nodes that are not ready"),
        pytest.param({"nodes": [nodes(2, cordoned=True)]}, "CapacityMissing", id="cordoned nodes"),
        pytest.param({"nodes": [nodes(4, 4)]}, "NoNodeCanFit", id="nodes that are too small"),
        pytest.param(
            {
                "nodes": [nodes(2, conditions={"GpuFault": "True"})],
                "config": {"nodes": {"unusableConditions": [{"type": "GpuFault"}]}},
            },
            "CapacityMissing",
            id="nodes with a condition that the configuration names",
        ),
        pytest.param(
            {"nodes": [nodes(3)], "pods": [{"name": "x", "node": "gpu-1", "requests": {GPU: 1}},
                                           {"name": "y", "node": "gpu-2", "requests": {GPU: 1}}]},
            "NoNodeFits",
            id="pods of no queue in the way",
        ),
    ],
)  # fmt: skip
def test_a_policy_test_names_the_reason_of_a_workload_without_room(
    fields: dict[str, Any], reason: str
) -> None:
    work = [pending("team/a", podSets=[{"count": 2, "requests": {GPU: 8}}])]
    expect = {"admitted": {}, "reasons": {"team/a": reason}}
    assert not differences(cycle(queue("team", 100), work, expect, **fields))
    enough: dict[str, Any] = {"admitted": {"team/a": {}}}
    assert not differences(cycle(queue("team", 100), work, enough, nodes=[nodes(5)]))


def test_pods_of_a_workload_that_holds_quota_are_on_the_nodes_that_its_document_names() -> None:
    spread = holding("team/runs", podSets=[{"count": 2, "requests": {GPU: 1}}])
    packed = json.loads(json.dumps(spread))
    packed["admission"]["podSets"]["main"]["nodes"] = ["gpu-1", "gpu-1"]
    waits = pending("team/a", 8)
    for runs, expect in (
        (spread, {"reasons": {"team/a": "NoNodeFits"}}),
        (packed, {"admitted": {"team/a": {}}}),
    ):
        document = cycle(queue("team", 100), [runs, waits], expect, nodes=[nodes(2)])
        assert not differences(document)


# --- bad documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param({"nodes": [{"name": "x"}]}, "nodes[0].allocatable: is missing", id="no allocatable"),
        pytest.param(
            {"nodes": [nodes(MOST_NODES), nodes(1, name="x")]},
            "nodes: more than 5000 nodes",
            id="too many nodes",
        ),
        pytest.param({"nodes": [nodes(0)]}, "nodes[0].count: 0: ", id="a count of 0"),
        pytest.param(
            {"nodes": [nodes(), {"name": "gpu-2", "allocatable": {}}]},
            "nodes[1].name: gpu-2 is given twice",
            id="a node given twice",
        ),
        pytest.param(
            {"nodes": [nodes(1, taints=[{"key": "x", "effect": "No"}])]},
            "nodes[0].taints[0].effect: 'No': ",
            id="an unknown effect",
        ),
        pytest.param(
            {"nodeEvents": happens((1, "gpu-3", "fail"))},
            "nodeEvents[0].node: there is no node gpu-3",
            id="an event of an unknown node",
        ),
        pytest.param(
            {"nodeEvents": happens((1, "gpu-1", "explode"))},
            "nodeEvents[0].do: 'explode': ",
            id="an unknown event",
        ),
        pytest.param(
            {"pods": [{"name": "x", "node": "y", "requests": {}}]},
            "pods[0].node: there is no node y",
            id="a pod on an unknown node",
        ),
        pytest.param(
            {"pods": [{"name": "x", "requests": {}, "tolerations": [{"key": 5}]}]},
            "pods[0].tolerations: ",
            id="a bad toleration",
        ),
        pytest.param(
            {"pods": [{"name": "x", "requests": {}, "count": MOST_PODS + 1}]},
            "pods[0].count: 50001: ",
            id="too many pods",
        ),
        pytest.param(
            {"workloads": [gang("a", MOST_PODS + 1)]},
            "workloads[0].podSets: more than 50000 pods",
            id="a workload with too many pods",
        ),
        pytest.param(
            {"pods": [{"name": "x", "requests": {}, "workload": "team/x"}]},
            "pods[0].workload: team/x is not a workload of this document",
            id="a pod of an unknown workload",
        ),
        pytest.param(
            {"pods": [{"name": "x", "requests": {}, "workload": "team/a"}], "workloads": [gang("a")]},
            "pods[0].node: missing: only pods of workloads that are bound are given",
            id="a pod of a workload that is not bound",
        ),
        pytest.param(
            {"nodes": [], "pods": [{"name": "x", "requests": {}}]}, "pods[0]: there are no nodes", id="none"
        ),
    ],
)
def test_bad_nodes_are_reported_with_their_place(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadScenarios) as found:
        stage.read_simulation(json.dumps(simulation(**fields)).encode(), "case.json")
    (line,) = found.value.problems
    assert line.startswith("case.json: line 1, column ")
    assert problem in line


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param(
            {"pods": [{"name": "x", "requests": {}}]}, "pods[0]: node is missing", id="pods without a node"
        ),
        pytest.param({"nodeEvents": []}, "nodeEvents: there is no such field", id="events in virtual time"),
    ],
)
def test_a_policy_test_has_no_virtual_time(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadScenarios, match=problem.replace("[", r"\[")):
        read(cycle(queue("team", 8), [], nodes=[nodes()], **fields))


def test_more_nodes_than_pods_of_a_workload_are_refused() -> None:
    runs = holding("team/runs", 1)
    runs["admission"]["podSets"]["main"]["nodes"] = ["gpu-1", "gpu-2"]
    with pytest.raises(BadScenarios, match="2 nodes are given for 1 pods"):
        read(cycle(queue("team", 8), [runs], nodes=[nodes()]))


def test_the_policy_tests_in_the_documentation_pass() -> None:
    example = DOCS / "examples" / "node-tests.yaml"
    scenarios = read_scenarios(example.read_bytes(), example.name)
    assert len(scenarios) == 2
    assert all(not judge(scenario).differences for scenario in scenarios)


def does(what: str, *names: str) -> dict[str, Any]:
    return {"do": what, "nodes": list(names)}


@pytest.mark.parametrize(
    ("steps", "admitted"),
    [
        ([does("cordonNodes", "gpu")], []),
        ([does("removeNodes", "gpu-1")], []),
        ([does("failNodes", "gpu")], []),
        ([does("failNodes", "gpu"), does("returnNodes", "gpu-1", "gpu-2")], ["team/a"]),
        ([does("cordonNodes", "gpu-1"), does("uncordonNodes", "gpu")], ["team/a"]),
    ],
)
def test_a_step_changes_nodes(steps: list[dict[str, Any]], admitted: list[str]) -> None:
    document = cycle(
        queue("team", 16),
        [{**pending("team/a", 8), "podSets": TWO}],
        nodes=[nodes(count=2)],
        steps=[*steps, {"do": "cycle"}],
    )
    observed = judged(document).steps[-1]
    assert observed is not None
    assert sorted(observed.admitted or ()) == admitted


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"do": "failNodes"}, "steps[0].nodes: missing"),
        ({"do": "failNodes", "nodes": ["other"]}, "there is no node other"),
        ({"do": "cycle", "nodes": ["gpu-1"]}, "cycle is not about nodes"),
        ({"do": "breakNodes", "nodes": ["gpu-1"]}, "steps[0].do"),
    ],
)
def test_a_bad_step_is_refused(step: dict[str, Any], says: str) -> None:
    with pytest.raises(BadScenarios, match=re.escape(says)):
        read(cycle(queue("team", 16), [], nodes=[nodes(count=2)], steps=[step]))


def test_the_simulation_in_the_documentation_runs() -> None:
    example = DOCS / "examples" / "node-loss.yaml"
    found = play(stage.read_simulation(example.read_bytes(), example.name))
    assert (found["total"]["finished"], found["total"]["evictions"]) == (2, {"NodeFailures": 1})
    assert all(room(found)[name] > 0 for name in ("NoNodeFits", "stalled"))
