"""Thirty situations: the limits that are named have to give way, by exactly what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from queuectl.answers.explanation import binding
from queuectl.answers.state import CommittedState
from queuectl.answers.what_if.trials import Trials, trials_of
from queuectl.core.model.policy import DEFAULT_CONFIGURATION
from queuectl.core.model.reasons import Code, Limit
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    ConfigKey,
    LedgerSnapshot,
    ObjectRef,
    Phase,
    PodSet,
    PodSetAssignment,
    StoredWorkload,
    WorkloadId,
)
from queuectl.kinds.policy import parse_policy
from queuectl.ports.reader import Reading

GPU, CPU = "nvidia.com/gpu", "cpu"
NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
Quota = Mapping[str, Any]


class Runs(NamedTuple):
    queue: str
    flavor: str
    gpus: int
    cpus: int = 0


class Case(NamedTuple):
    sentence: str
    queues: Mapping[str, Mapping[str, Any]]
    """By name: `cohort`, other fields of its spec, and by flavor its quota."""
    runs: Sequence[Runs]
    asks: Mapping[str, int]
    """By resource, of one pod in queue `own`."""
    code: Code
    binds: str
    """`FIELD of NODE` that the reason names."""
    cohorts: Mapping[str, Mapping[str, Any]] = {}
    flavor: str = "a100"
    others: Sequence[str] = ()
    """Further limits that bind for that flavor, `FIELD of NODE`."""
    resource: str = GPU


W, X = Code.WAITING_FOR_QUOTA, Code.EXCEEDS_MAX_QUOTA
NOMINAL, BORROWING = "nominalQuota", "borrowingLimit"


def own(nominal: int, **more: Any) -> dict[str, Any]:
    return {
        "a100": {"nominal": nominal, **{k: more.pop(k) for k in ("borrowing", "lending") if k in more}},
        **more,
    }


CASES = [
    Case(
        "a queue of its own is full",
        {"own": own(8)},
        [Runs("own", "a100", 8)],
        {GPU: 1},
        W,
        f"{NOMINAL} of ClusterQueue/own",
    ),
    Case(
        "a queue of its own is full but for less than is asked",
        {"own": own(8)},
        [Runs("own", "a100", 5)],
        {GPU: 4},
        W,
        f"{NOMINAL} of ClusterQueue/own",
    ),
    Case(
        "more is asked than a queue of its own has",
        {"own": own(8)},
        [],
        {GPU: 9},
        X,
        f"{NOMINAL} of ClusterQueue/own",
    ),
    Case(
        "a queue without quota of its own has no cohort",
        {"own": own(0)},
        [],
        {GPU: 1},
        X,
        f"{NOMINAL} of ClusterQueue/own",
    ),
    Case(
        "the cohort is full",
        {"own": own(4, cohort="all"), "b": own(4, cohort="all")},
        [Runs("own", "a100", 4), Runs("b", "a100", 4)],
        {GPU: 1},
        W,
        f"{NOMINAL} of Cohort/all",
    ),
    Case(
        "the cohort is full, and the queue is not",
        {"own": own(4, cohort="all"), "b": own(4, cohort="all")},
        [Runs("b", "a100", 8)],
        {GPU: 2},
        W,
        f"{NOMINAL} of Cohort/all",
    ),
    Case(
        "more is asked than the cohort has",
        {"own": own(4, cohort="all"), "b": own(4, cohort="all")},
        [],
        {GPU: 9},
        X,
        f"{NOMINAL} of Cohort/all",
    ),
    Case(
        "the borrowing limit is less than the cohort has free",
        {"own": own(4, cohort="all", borrowing=1), "b": own(8, cohort="all")},
        [Runs("own", "a100", 4)],
        {GPU: 2},
        W,
        f"{BORROWING} of ClusterQueue/own",
    ),
    Case(
        "the borrowing limit is reached",
        {"own": own(4, cohort="all", borrowing=2), "b": own(8, cohort="all")},
        [Runs("own", "a100", 6)],
        {GPU: 1},
        W,
        f"{BORROWING} of ClusterQueue/own",
    ),
    Case(
        "a queue may not borrow",
        {"own": own(4, cohort="all", borrowing=0), "b": own(8, cohort="all")},
        [Runs("own", "a100", 3)],
        {GPU: 2},
        W,
        f"{BORROWING} of ClusterQueue/own",
    ),
    Case(
        "more is asked than the borrowing limit ever allows",
        {"own": own(4, cohort="all", borrowing=1), "b": own(8, cohort="all")},
        [],
        {GPU: 6},
        X,
        f"{BORROWING} of ClusterQueue/own",
    ),
    Case(
        "the borrowing limit binds more than the full cohort",
        {"own": own(4, cohort="all", borrowing=0), "b": own(8, cohort="all")},
        [Runs("own", "a100", 4), Runs("b", "a100", 7)],
        {GPU: 3},
        W,
        f"{BORROWING} of ClusterQueue/own",
        others=[f"{NOMINAL} of Cohort/all"],
    ),
    Case(
        "the full cohort binds more than the borrowing limit",
        {"own": own(4, cohort="all", borrowing=2), "b": own(8, cohort="all")},
        [Runs("own", "a100", 4), Runs("b", "a100", 8)],
        {GPU: 3},
        W,
        f"{NOMINAL} of Cohort/all",
        others=[f"{BORROWING} of ClusterQueue/own"],
    ),
    Case(
        "the other queue lends only a part",
        {"own": own(2, cohort="all"), "b": own(8, cohort="all", lending=3)},
        [Runs("own", "a100", 4)],
        {GPU: 2},
        W,
        f"{NOMINAL} of Cohort/all",
    ),
    Case(
        "the other queue lends nothing",
        {"own": own(2, cohort="all"), "b": own(8, cohort="all", lending=0)},
        [Runs("own", "a100", 2)],
        {GPU: 1},
        W,
        f"{NOMINAL} of Cohort/all",
    ),
    Case(
        "more is asked than the other queue ever lends",
        {"own": own(2, cohort="all"), "b": own(8, cohort="all", lending=3)},
        [],
        {GPU: 6},
        X,
        f"{NOMINAL} of Cohort/all",
    ),
    Case(
        "the quota of the cohort itself is in use",
        {"own": own(0, cohort="all")},
        [Runs("own", "a100", 4)],
        {GPU: 1},
        W,
        f"{NOMINAL} of Cohort/all",
        {"all": own(4)},
    ),
    Case(
        "an upper cohort is full",
        {"own": own(2, cohort="low"), "b": own(2, cohort="top")},
        [Runs("own", "a100", 2), Runs("b", "a100", 2)],
        {GPU: 1},
        W,
        f"{NOMINAL} of Cohort/top",
        {"low": {"parent": "top"}},
    ),
    Case(
        "a lower cohort may not borrow from the one above",
        {"own": own(2, cohort="low"), "b": own(8, cohort="top")},
        [Runs("own", "a100", 2)],
        {GPU: 1},
        W,
        f"{BORROWING} of Cohort/low",
        {"low": own(0, parent="top", borrowing=0)},
    ),
    Case(
        "a lower cohort may borrow a little from the one above",
        {"own": own(2, cohort="low"), "b": own(8, cohort="top")},
        [Runs("own", "a100", 2)],
        {GPU: 4},
        W,
        f"{BORROWING} of Cohort/low",
        {"low": own(0, parent="top", borrowing=3)},
    ),
    Case(
        "more is asked than a lower cohort ever borrows",
        {"own": own(2, cohort="low"), "b": own(8, cohort="top")},
        [],
        {GPU: 6},
        X,
        f"{BORROWING} of Cohort/low",
        {"low": own(0, parent="top", borrowing=3)},
    ),
    Case(
        "a lower cohort keeps its quota from the one above",
        {"own": own(1, cohort="top"), "b": own(8, cohort="low")},
        [Runs("own", "a100", 1)],
        {GPU: 3},
        X,
        f"{NOMINAL} of Cohort/top",
        {"low": own(0, parent="top", lending=0)},
    ),
    Case(
        "three levels are full up to the root",
        {"own": own(1, cohort="c"), "b": own(1, cohort="b"), "a": own(1, cohort="a")},
        [Runs("own", "a100", 1), Runs("b", "a100", 1), Runs("a", "a100", 1)],
        {GPU: 1},
        W,
        f"{NOMINAL} of Cohort/a",
        {"c": {"parent": "b"}, "b": {"parent": "a"}},
    ),
    Case(
        "a queue uses more than it has",
        {"own": own(2, cohort="all"), "b": own(2, cohort="all")},
        [Runs("own", "a100", 7)],
        {GPU: 1},
        W,
        f"{NOMINAL} of Cohort/all",
    ),
    Case(
        "a queue of its own uses more than it has",
        {"own": own(2)},
        [Runs("own", "a100", 5)],
        {GPU: 1},
        W,
        f"{NOMINAL} of ClusterQueue/own",
    ),
    Case(
        "the second flavor is nearer to a fit by its code",
        {"own": {"a100": {"nominal": 1}, "h100": {"nominal": 4}}},
        [Runs("own", "h100", 4)],
        {GPU: 2},
        W,
        f"{NOMINAL} of ClusterQueue/own",
        flavor="h100",
    ),
    Case(
        "both flavors are full, and the first one is named",
        {"own": {"a100": {"nominal": 4}, "h100": {"nominal": 4}}},
        [Runs("own", "a100", 4), Runs("own", "h100", 4)],
        {GPU: 2},
        W,
        f"{NOMINAL} of ClusterQueue/own",
    ),
    Case(
        "cpu is missing, and not GPUs",
        {"own": {"a100": {"nominal": 8, CPU: 16}}},
        [Runs("own", "a100", 2, 14)],
        {GPU: 2, CPU: 4},
        W,
        f"{NOMINAL} of ClusterQueue/own",
        resource=CPU,
    ),
    Case(
        "GPUs are missing, and not cpu",
        {"own": {"a100": {"nominal": 8, CPU: 16}}},
        [Runs("own", "a100", 7, 2)],
        {GPU: 2, CPU: 4},
        W,
        f"{NOMINAL} of ClusterQueue/own",
    ),
    Case(
        "a StrictFIFO queue is full for its head",
        {"own": own(8, queueingStrategy="StrictFIFO")},
        [Runs("own", "a100", 7)],
        {GPU: 2},
        W,
        f"{NOMINAL} of ClusterQueue/own",
    ),
]


Raised = Mapping[tuple[str, Limit], int]
"""By node and field, what is added to it, in base units."""


def groups(quota: Quota, cell: tuple[str, str], nominal: int, borrowing: int) -> list[dict[str, Any]]:
    """The resource groups, with more of one cell."""
    flavors = {name: value for name, value in quota.items() if isinstance(value, Mapping)}
    if nominal and cell[0] not in flavors:
        flavors[cell[0]] = {"nominal": 0}
    covered = [GPU, CPU] if any(CPU in one for one in flavors.values()) else [GPU]
    found = []
    for name, one in flavors.items():
        limits = {f"{key}Limit": one[key] for key in ("borrowing", "lending") if key in one}
        gpus = {"name": GPU, "nominalQuota": one["nominal"], **limits}
        if (name, GPU) == cell:
            gpus["nominalQuota"] += nominal
            if borrowing:
                gpus["borrowingLimit"] += borrowing
        more = nominal if (name, CPU) == cell else 0
        cpus = {"name": CPU, "nominalQuota": f"{1000 * one.get(CPU, 0) + more}m"}
        found.append({"name": name, "resources": [gpus, cpus][: len(covered)]})
    return [{"coveredResources": covered, "flavors": found}] if found else []


def specs(case: Case, raised: Raised) -> dict[ConfigKey, str]:
    cell = (case.flavor, case.resource)

    def of(node: str, quota: Quota) -> list[dict[str, Any]]:
        more = (raised.get((node, limit), 0) for limit in (Limit.NOMINAL_QUOTA, Limit.BORROWING_LIMIT))
        return groups(quota, cell, *more)

    found: dict[ConfigKey, Any] = {
        ConfigKey("Namespace", "", "team"): {"labels": {}},
        ConfigKey("LocalQueue", "team", "main"): {"clusterQueue": "own"},
        **{ConfigKey("ResourceFlavor", "", name): {} for name in ("a100", "h100")},
    }
    for name, quota in case.queues.items():
        spec = {key: value for key, value in quota.items() if not isinstance(value, Mapping)}
        if cohort := spec.pop("cohort", None):
            spec["cohortName"] = cohort
        spec |= {"namespaceSelector": {}, "resourceGroups": of(f"ClusterQueue/{name}", quota)}
        found[ConfigKey("ClusterQueue", "", name)] = spec
    cohorts: dict[str, Quota] = {
        node.partition("/")[2]: {} for node, _ in raised if node.startswith("Cohort/")
    }
    for name, quota in (cohorts | dict(case.cohorts)).items():
        parent = {"parentName": quota["parent"]} if "parent" in quota else {}
        found[ConfigKey("Cohort", "", name)] = {"resourceGroups": of(f"Cohort/{name}", quota), **parent}
    return {key: json.dumps(spec) for key, spec in found.items()}


def stored(number: int, name: str, queue: str, pods: PodSet, flavor: str | None = None) -> StoredWorkload:
    id, attempt = WorkloadId(f"uid-{name}"), None
    if flavor is not None:
        flavors = tuple((resource, flavor) for resource, _ in pods.requests)
        held = PodSetAssignment(name=pods.name, count=1, requests=pods.requests, flavors=flavors)
        attempt = Attempt(
            workload=id,
            number=1,
            state=AttemptState.ADMITTED,
            assignment=Assignment(cluster_queue=queue, pod_sets=(held,)),
            admitted_at=NOW - timedelta(hours=1),
            sequence=number,
        )
    return StoredWorkload(
        id=id,
        ref=ObjectRef("team", "Job", name, id),
        queue="main",
        cluster_queue=queue,
        priority=0,
        created_at=NOW - timedelta(hours=2) + timedelta(seconds=number),
        arrival=number,
        phase=Phase.PENDING if attempt is None else Phase.ADMITTED,
        attempts=0 if attempt is None else 1,
        attempt=attempt,
        reason=None,
        pod_sets=(pods,),
    )


def workloads(case: Case) -> list[StoredWorkload]:
    found = []
    for number, (queue, flavor, gpus, cpus) in enumerate(case.runs, start=1):
        requests = {GPU: gpus, **({CPU: 1000 * cpus} if cpus else {})}
        pods = PodSet(name="main", count=1, requests=tuple(sorted(requests.items())))
        found.append(stored(number, f"runs-{number}", queue, pods, flavor))
    asks = {name: 1000 * amount if name == CPU else amount for name, amount in case.asks.items()}
    pods = PodSet(name="main", count=1, requests=tuple(sorted(asks.items())))
    return [*found, stored(len(found) + 1, "asks", "own", pods)]


ASKS = WorkloadId("uid-asks")


def trials(case: Case, raised: Raised) -> Trials:
    there = tuple(workloads(case))
    configs = tuple(specs(case, raised).items())
    snapshot = LedgerSnapshot(sequence=len(there), now=NOW, workloads=there, configs=configs)
    return trials_of(snapshot, DEFAULT_CONFIGURATION)


@pytest.mark.parametrize("case", CASES, ids=[case.sentence for case in CASES])
def test_the_limits_that_bind_are_named_and_give_way_by_what_is_short(case: Case) -> None:
    found = trials(case, {}).unchanged(ASKS)
    assert found.reason is not None
    why = found.reason
    assert (why.code, why.flavor, why.resource) == (case.code, case.flavor, case.resource)
    assert f"{why.limit} of {why.node}" == case.binds
    there = [replace(one, reason=why) if one.id == ASKS else one for one in workloads(case)]
    reading = Reading(
        sequence=1,
        committed_at=NOW,
        read_at=NOW,
        epoch=1,
        workloads=tuple(there),
        configs=tuple(specs(case, {}).items()),
    )
    told = binding(there[-1], CommittedState().advance(reading, parse_policy))
    limits = [one for one in told if (one.flavor, one.resource) == (case.flavor, case.resource)]
    assert {f"{one.limit} of {one.node}" for one in limits} == {case.binds, *case.others}
    assert any(not one.ever for one in limits) == (case.code is X)
    short = {(one.node, one.limit): one.requested - one.available for one in limits}
    assert trials(case, short).unchanged(ASKS).starts
    for limit in short:
        assert not trials(case, {**short, limit: short[limit] - 1}).unchanged(ASKS).starts, limit


def test_there_are_thirty_situations() -> None:
    assert len({case.sentence for case in CASES}) == 30
