"""Vectors about one function of the core, by kind: each function returns the differences from its vector."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from queuectl.core.cycle.nomination import PreemptionSimulation
from queuectl.core.entries import Entry
from queuectl.core.features.feature_set import new_state
from queuectl.core.flavors.assignment import assign
from queuectl.core.flavors.queue_flavors import (
    Charge,
    GranularMode,
    Mode,
    QueueFlavors,
    better,
    fewer_pods,
    keeps_looking,
)
from queuectl.core.limits import Snapshot
from queuectl.core.model.events import PolicyObserved
from queuectl.core.model.pods import Pods
from queuectl.core.model.policy import (
    ClusterQueue,
    FlavorFungibility,
    LocalQueueName,
    SchedulingConfiguration,
)
from queuectl.core.model.reasons import Code
from queuectl.core.model.resources import FlavorResource, format_amount
from queuectl.core.model.workload import (
    Assignment,
    Attempt,
    AttemptState,
    ConfigKey,
    ObjectRef,
    PodSet,
    UsageAccount,
    WorkloadId,
)
from queuectl.core.observed_events import fold
from queuectl.core.past_usage import PlannedUsage
from queuectl.core.preemption.search import PreemptionSearch
from queuectl.core.quota.shares import dominant_share
from queuectl.core.quota.tree import Cells, QuotaNode, QuotaTree
from queuectl.core.state import EngineState
from queuectl.kinds.policy import policy_event
from queuectl.scenarios import documents
from queuectl.scenarios.build import pod_set, settings
from queuectl.scenarios.manifests import read_manifests
from tests.unit.conformance.repair import TOO
from tests.unit.conformance.vectors import document

Vector = Mapping[str, Any]
_NOW: Final = datetime.fromisoformat("2024-01-01T00:00:00Z")


def _state(vector: Vector) -> EngineState:
    """The vector's objects in force, with its usage added to the queues."""
    config = documents.Config.model_validate(document(vector)["config"])
    state, _ = new_state(frozenset(), settings(config))
    fold(state, read_manifests([obj for obj in vector["objects"] if not _overlaps(obj)]).events)
    fold(state, [_in_parts(obj) for obj in vector["objects"] if _overlaps(obj)])
    for queue, usage in vector.get("usage", {}).items():
        state.tree.add(state.tree.queue(queue), _cells(state.tree, usage))
    return state


def _overlaps(obj: Mapping[str, Any]) -> bool:
    """Two of its resource groups cover one resource: no API server accepts that, but the function does."""
    groups = obj["spec"].get("resourceGroups", ()) if obj["kind"] == "ClusterQueue" else ()
    covered = [resource for group in groups for resource in group["coveredResources"]]
    return len(covered) != len(set(covered))


def _in_parts(obj: Mapping[str, Any]) -> PolicyObserved:
    """A ClusterQueue parsed by resource group, and combined."""
    read: list[ClusterQueue] = []
    for group in obj["spec"]["resourceGroups"]:
        event = policy_event({**obj, "spec": {**obj["spec"], "resourceGroups": [group]}})
        assert isinstance(event, PolicyObserved)
        assert isinstance(event.value, ClusterQueue)
        read.append(event.value)
    whole = replace(read[0], resource_groups=tuple(group for one in read for group in one.resource_groups))
    return PolicyObserved(ConfigKey("ClusterQueue", "", whole.name), whole, "{}")


def _cells(tree: QuotaTree, usage: Sequence[Mapping[str, Any]]) -> Cells:
    return [(tree.cell(FlavorResource(one["flavor"], one["resource"])), one["value"]) for one in usage]


def _queues(vector: Vector) -> list[str]:
    return [obj["metadata"]["name"] for obj in vector["objects"] if obj["kind"] == "ClusterQueue"]


def _unlike(expected: Any, observed: Any, path: str = "expect") -> list[str]:
    """Differences of `observed` from the expectation; lists of objects are sets."""
    if isinstance(expected, dict) and isinstance(observed, dict):
        return [
            line
            for key in sorted(expected.keys() | observed.keys())
            for line in _unlike(expected.get(key), observed.get(key), f"{path}.{key}")
        ]
    if isinstance(expected, list) and isinstance(observed, list) and path != "expect.order":
        expected, observed = sorted(expected, key=_key), sorted(observed, key=_key)
    if expected == observed:
        return []
    return [f"- {path}: {expected}", f"+ {path}: {observed}"]


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


# --- quota ---------------------------------------------------------------------------------------------


def quota_available(vector: Vector) -> list[str]:
    state = _state(vector)
    found: dict[str, Any] = {"available": {}, "potentiallyAvailable": {}}
    for name in _queues(vector):
        queue, node = state.directory.queues[name], state.tree.queue(name)
        names = [
            FlavorResource(flavor.name, resource)
            for group in queue.resource_groups
            for flavor in group.flavors
            for resource, _ in flavor.resources
        ]
        cells = [(one, state.tree.cell(one)) for one in names]
        found["available"][name] = [
            {"flavor": f, "resource": r, "value": max(0, state.tree.available(node, cell))}
            for (f, r), cell in cells
        ]
        found["potentiallyAvailable"][name] = [
            {"flavor": f, "resource": r, "value": state.tree.potential(node, cell)} for (f, r), cell in cells
        ]
    return _unlike(vector["expect"], found)


def borrowing_on(vector: Vector) -> list[str]:
    state = _state(vector)
    node = state.tree.queue("cq")
    requested = _cells(state.tree, vector["requested"])
    found = {
        "borrowing": any(node.borrows(cell) for cell in range(len(state.tree.names))),
        "borrowingOnRequested": any(node.borrows(cell) for cell, _ in requested),
    }
    return _unlike(vector["expect"], found)


def dominant_shares(vector: Vector) -> list[str]:
    state = _state(vector)
    tree = state.tree
    tree.add(tree.queue("cq"), _cells(tree, vector["incomingRequest"]))
    found = []
    for expected in vector["expect"]["shares"]:
        node = _named(tree, expected["kind"], expected["name"])
        share = dominant_share(tree, node)
        told: dict[str, Any] = {"kind": node.kind, "name": node.name, "borrowing": share.borrowing}
        told |= {"dominantResource": share.resource}
        if share.reported is not None:
            told["share"] = share.reported
        else:
            told["infinite"] = True
        found.append({key: told.get(key) for key in expected} | told)
    return _unlike(vector["expect"], {"shares": found})


def _named(tree: QuotaTree, kind: str, name: str) -> QuotaNode:
    return next(node for node in tree.nodes() if (node.kind, node.name) == (kind, name))


# --- flavors ---------------------------------------------------------------------------------------------


_MODES: Final = {
    "NoFit": Mode.NO_FIT,
    "NoPreemptionCandidates": Mode.NO_CANDIDATES,
    "NoCandidates": Mode.NO_CANDIDATES,
    "Preempt": Mode.PREEMPT,
    "Reclaim": Mode.RECLAIM,
    "Fit": Mode.FIT,
}


def flavor_mode_preference(vector: Vector) -> list[str]:
    one, other = (
        GranularMode(_MODES[vector[side]["preemptionMode"]], vector[side]["borrowingLevel"]) for side in "ab"
    )
    given = vector["flavorFungibility"]
    rules = FlavorFungibility(
        try_next_before_borrowing=given.get("whenCanBorrow") == "TryNextFlavor",
        try_next_before_preempting=given.get("whenCanPreempt", "TryNextFlavor") == "TryNextFlavor",
        preemption_over_borrowing=given.get("preference") == "PreemptionOverBorrowing",
    )
    return _unlike(vector["expect"], {"aPreferred": better(one, other, rules)})


def partial_admission_search(vector: Vector) -> list[str]:
    charges = [
        Charge(PodSet(name=p["name"], count=p["count"], min_count=p.get("minCount"), requests=()), ())
        for p in vector["podSets"]
    ]

    def look(fewer: Sequence[Charge]) -> int | None:
        total = sum(charge.pod_set.count for charge in fewer)
        return total if total <= vector["fitsWhenTotalPodsAtMost"] else None

    found = fewer_pods(charges, look)
    return _unlike(vector["expect"], {"found": found is not None, "totalPods": found or 0})


class _Oracle(PreemptionSimulation):
    """Victims are not searched: the vector contains the result of a search."""

    def __init__(self, vector: Vector, state: EngineState, flavors: QueueFlavors) -> None:
        snapshot = Snapshot(
            tree=state.tree,
            limits=state.limits,
            queues=state.directory.queues,
            entries={},
            holders={},
            configuration=state.configuration,
            now=_NOW,
        )
        super().__init__(
            snapshot, Entry(WorkloadId("asks"), ObjectRef("default", "Job", "asks", "asks")), flavors
        )
        self._names = flavors.tree.names
        self._said = vector["preemptionSimulation"]

    def simulate(self, cell: int, amount: int, pods: Pods = ()) -> GranularMode:
        name = self._names[cell]
        said = next(
            (one for one in self._said["results"] if (one["flavor"], one["resource"]) == tuple(name)),
            self._said["default"],
        )
        return GranularMode(_MODES[said["result"]], said["borrowingAfter"])


def _placed(given: documents.ScenarioPodSet, wanted: Mapping[str, Any]) -> PodSet:
    """The podset with its topology request, as far as it concerns flavors."""
    asks = any(wanted.get(key) for key in ("required", "preferred", "unconstrained"))
    return replace(pod_set(given), group=wanted.get("podSetGroupName"), topology=asks)


class _Assigning:
    """Assign flavors to one request, with the victims that the vector gives."""

    def __init__(self, vector: Vector) -> None:
        state = _state(vector)
        request = vector["request"]
        self.menu: QueueFlavors = state.directory.queue_flavors(request["clusterQueue"])
        already = request.get("reclaimablePods", {})
        self.charges = []
        for fields in copy.deepcopy(request["podSets"]):
            fields["count"] -= already.get(fields["name"], 0)
            topology = fields.pop("topologyRequest", {})
            given = documents.ScenarioPodSet.model_validate(fields)
            self.charges.append(Charge(_placed(given, topology), given.charged))
        self.search = _Oracle(vector, state, self.menu)
        self.found = assign(self.menu, self.charges, self.search)

    def observed(self) -> dict[str, Any]:
        found = self.found
        fits = found.mode is not Mode.NO_FIT
        told: dict[str, Any] = {
            "mode": _public(found.mode),
            "borrowing": found.level if fits else 0,
            "podSets": {},
            "usage": [],
        }
        if not fits:
            assert found.reason is not None
            told["noFitReason"] = _WORD.get(found.reason.code, found.reason.code.value)
        for assigned, charge in zip(found.assignment.pod_sets, self.charges, strict=True):
            requests = dict(assigned.requests) | dict(charge.requests)
            told["podSets"][assigned.name] = {
                "count": assigned.count,
                "flavors": {
                    resource: {"flavor": flavor, "mode": self._mode(flavor, resource)}
                    for resource, flavor in (assigned.flavors if fits else ())
                },
                "requests": {r: format_amount(r, n * assigned.count) for r, n in requests.items()},
            }
        if fits:
            told["usage"] = [
                {"flavor": cell.flavor, "resource": cell.resource, "value": amount}
                for cell, amount in found.assignment.usage().items()
            ]
        return told

    def _mode(self, flavor: str, resource: str) -> str:
        options = (one for group in self.menu.groups for one in group if one.name == flavor)
        cells = {one.cells[resource] for one in options if resource in one.cells}
        return "Preempt" if cells & self.found.needed else "Fit"

    def attempts(self, name: str) -> list[list[dict[str, Any]]]:
        """For each resource group that podset `name` requests, the flavors that are tried, in order."""
        charge = next(one for one in self.charges if one.pod_set.name == name)
        together = charge.pod_set.group
        same = [one for one in self.charges if together and one.pod_set.group == together] or [charge]
        charge, before = same[0], self.charges[: self.charges.index(same[0])]
        asked = {resource: amount for one in same for resource, amount in one.requests}
        numbers = {self.menu.of_resource[r] for r in self.menu.of_resource if r in asked or r == "pods"}
        return [self._group(before, charge, number) for number in sorted(numbers)]

    def _group(self, before: Sequence[Charge], charge: Charge, number: int) -> list[dict[str, Any]]:
        pinned = {
            (p.name, self.menu.of_resource[resource]): flavor
            for p in self.found.assignment.pod_sets
            for resource, flavor in p.flavors
        }
        looked: list[dict[str, Any]] = []
        for option in self.menu.groups[number]:
            group = (charge.pod_set.name, number)
            found = assign(self.menu, [*before, charge], self.search, {}, {**pinned, group: option.name})
            chance = found.chances.get(group, GranularMode(Mode.NO_FIT, 0))
            told: dict[str, Any] = {"flavor": option.name.removesuffix(TOO), "mode": _public(chance.mode)}
            if chance.mode is Mode.NO_FIT:
                assert found.reason is not None
                told["noFitReason"] = _WORD.get(found.reason.code, found.reason.code.value)
            elif chance.mode is Mode.FIT:
                told["borrowing"] = chance.level
            else:
                told |= {"borrowing": chance.level, "preemption": _PREEMPTION[chance.mode]}
            looked.append(told)
            if not keeps_looking(chance, self.menu.fungibility):
                break
        return looked


_WORD: Final = {Code.RESOURCE_NOT_COVERED: "NoMatchingFlavor"}
_PREEMPTION: Final = {Mode.NO_CANDIDATES: "NoCandidates", Mode.PREEMPT: "Preempt", Mode.RECLAIM: "Reclaim"}


def _public(mode: Mode) -> str:
    return "Preempt" if mode.preempts else {Mode.FIT: "Fit", Mode.NO_FIT: "NoFit"}[mode]


def flavor_assignment(vector: Vector) -> list[str]:
    assigning = _Assigning(vector)
    expected, wrong = _without_nothing(vector["expect"]), []
    for name, told in expected["podSets"].items():
        attempts = told.pop("attempts", None)
        if attempts is not None:
            groups = assigning.attempts(name)
            # If one group does not fit, the others need not be tried.
            sets = [*groups, [one for looked in groups for one in looked]]
            if all(_unlike({"attempts": attempts}, {"attempts": found}) for found in sets):
                wrong += _unlike(attempts, sets[-1], f"expect.podSets.{name}.attempts")
    return wrong + _unlike(expected, assigning.observed())


def _without_nothing(expect: Mapping[str, Any]) -> dict[str, Any]:
    """queuectl has no requests of zero, and a flavor that does not fit has no level."""
    found = copy.deepcopy(dict(expect))
    found["usage"] = [one for one in found["usage"] if one["value"]]
    for told in found["podSets"].values():
        for resource in [name for name, amount in told["requests"].items() if amount == "0"]:
            del told["requests"][resource]
            told["flavors"].pop(resource, None)
        for attempt in told.get("attempts", ()):
            if attempt["mode"] == "NoFit":
                del attempt["borrowing"]
    return found


# --- order -----------------------------------------------------------------------------------------------


class _GivenUsage:
    """Past usage of LocalQueues as a vector has it."""

    def __init__(self, given: Mapping[UsageAccount, float]) -> None:
        self._given = given

    def growing(
        self, accounts: Iterable[UsageAccount], weight: int, now: datetime
    ) -> Callable[[Mapping[str, int]], float]:
        [account] = accounts
        return lambda adding: self._given[account]


def candidate_order(vector: Vector) -> list[str]:
    state, _ = new_state(frozenset())
    usage: dict[UsageAccount, float] = {}
    entries = []
    for given in vector["candidates"]:
        name = f"{given['namespace']}/{given['name']}"
        identity = WorkloadId(name)
        entry = Entry(identity, ObjectRef(given["namespace"], "Job", given["name"], name))
        entry.priority = given["priority"]
        entry.local_queue = LocalQueueName(given["namespace"], given.get("queue", ""))
        usage[entry.local_queue] = given.get("localQueueUsage", 0)
        entry.attempt = Attempt(
            workload=identity,
            number=1,
            state=AttemptState.ADMITTED,
            assignment=Assignment(cluster_queue=given["admission"]["clusterQueue"], pod_sets=()),
            admitted_at=datetime.fromisoformat(given["quotaReservedAt"]),
        )
        entries.append(entry)
    fold(state, read_manifests([_usage_based(vector["preemptorClusterQueue"])]).events)
    snapshot = Snapshot(
        tree=state.tree,
        limits=state.limits,
        queues=state.directory.queues,
        entries={},
        holders={},
        configuration=SchedulingConfiguration(),
        now=_NOW,
        past_usage=PlannedUsage(_GivenUsage(usage), {}, _NOW),
    )
    preemptor = Entry(WorkloadId("preemptor"), ObjectRef("default", "Job", "preemptor", "preemptor"))
    search = PreemptionSearch(snapshot, state.tree.queue(vector["preemptorClusterQueue"]), preemptor, [], ())
    return _unlike(vector["expect"], {"order": [entry.id for entry in search.sort(entries)]})


def _usage_based(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "queuectl.dev/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}},
    }


FUNCTIONS: Final[Mapping[str, Callable[[Vector], list[str]]]] = {
    "borrowing-on": borrowing_on,
    "candidate-order": candidate_order,
    "dominant-share": dominant_shares,
    "flavor-assignment": flavor_assignment,
    "flavor-mode-preference": flavor_mode_preference,
    "partial-admission-search": partial_admission_search,
    "quota-available": quota_available,
}
