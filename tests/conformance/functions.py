"""Vectors that look at one function of the core alone, by kind: each returns what is not as it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from queuectl.core.contest import Contest, Field
from queuectl.core.events import PolicyObserved
from queuectl.core.flavors import (
    Chance,
    Charge,
    Menu,
    Mode,
    assign,
    better,
    fewer_pods,
    keeps_looking,
)
from queuectl.core.folding import fold
from queuectl.core.model import (
    Assignment,
    Attempt,
    AttemptState,
    LocalQueueName,
    ObjectRef,
    PodSet,
    WorkloadId,
)
from queuectl.core.pending import Entry
from queuectl.core.quota import Cells, Node, QuotaTree
from queuectl.core.reasons import Reason
from queuectl.core.resources import FlavorResource, format_amount
from queuectl.core.rules import Fungibility, Settings
from queuectl.core.shares import dominant_share
from queuectl.core.state import State
from queuectl.simulator import documents
from queuectl.simulator.building import pod_set
from queuectl.simulator.manifests import read_manifests
from queuectl.simulator.words import WORDS

Vector = Mapping[str, Any]
_NOW: Final = datetime.fromisoformat("2024-01-01T00:00:00Z")


def _state(vector: Vector) -> State:
    """Its objects in force, with its usage added to the queues."""
    state = State(frozenset())
    fold(state, read_manifests(vector["objects"]).events)
    for queue, usage in vector.get("usage", {}).items():
        state.tree.add(state.tree.queue(queue), _cells(state.tree, usage))
    return state


def _cells(tree: QuotaTree, usage: Sequence[Mapping[str, Any]]) -> Cells:
    return [(tree.cell(FlavorResource(one["flavor"], one["resource"])), one["value"]) for one in usage]


def _queues(vector: Vector) -> list[str]:
    return [obj["metadata"]["name"] for obj in vector["objects"] if obj["kind"] == "ClusterQueue"]


def _unlike(expected: Any, observed: Any, path: str = "expect") -> list[str]:
    """Where `observed` is not as expected; lists of objects are sets."""
    if isinstance(expected, dict) and isinstance(observed, dict):
        return [
            line
            for key in sorted(expected.keys() | observed.keys())
            for line in _unlike(expected.get(key), observed.get(key), f"{path}.{key}")
        ]
    if isinstance(expected, list) and isinstance(observed, list) and path not in _ORDERED:
        expected, observed = sorted(expected, key=repr), sorted(observed, key=repr)
    if expected == observed or _same_reason(expected, observed):
        return []
    return [f"- {path}: {expected}", f"+ {path}: {observed}"]


_ORDERED: Final = ("expect.order", "expect.attempts")


def _same_reason(expected: Any, observed: Any) -> bool:
    return isinstance(expected, str) and observed in WORDS.get(expected, ())


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


def _named(tree: QuotaTree, kind: str, name: str) -> Node:
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
        Chance(_MODES[vector[side]["preemptionMode"]], vector[side]["borrowingLevel"]) for side in "ab"
    )
    given = vector["flavorFungibility"]
    rules = Fungibility(
        try_next_before_borrowing=given.get("whenCanBorrow") == "TryNextFlavor",
        try_next_before_preempting=given.get("whenCanPreempt", "TryNextFlavor") == "TryNextFlavor",
        preemption_over_borrowing=given.get("preference") == "PreemptionOverBorrowing",
    )
    return _unlike(vector["expect"], {"aPreferred": better(one, other, rules)})


def partial_admission_search(vector: Vector) -> list[str]:
    charges = [
        Charge(PodSet(name=p["name"], count=p["count"], min_count=p["minCount"] if "minCount" in p else None,
                      requests=()), ())
        for p in vector["podSets"]
    ]  # fmt: skip

    def look(fewer: Sequence[Charge]) -> int | None:
        total = sum(charge.pod_set.count for charge in fewer)
        return total if total <= vector["fitsWhenTotalPodsAtMost"] else None

    found = fewer_pods(charges, look)
    return _unlike(vector["expect"], {"found": found is not None, "totalPods": found or 0})


class _Assigning:
    """One request, with victims as the vector says they would be."""

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.state = _state(vector)
        request = vector["request"]
        self.menu: Menu = self.state.directory.menu(request["clusterQueue"])
        already = request.get("reclaimablePods", {})
        self.pod_sets = [
            documents.PodSet.model_validate({**given, "count": given["count"] - already.get(given["name"], 0)})
            for given in request["podSets"]
        ]
        self.charges = [Charge(pod_set(given), given.charged) for given in self.pod_sets]

    def search(self, cell: int, amount: int) -> Chance:
        raise NotImplementedError

    def observed(self) -> dict[str, Any]:
        found = assign(self.menu, self.charges, self.search)
        fits = found.mode is not Mode.NO_FIT
        told: dict[str, Any] = {
            "mode": _public(found.mode),
            "borrowing": found.level if fits else 0,
            "podSets": {},
            "usage": [],
        }
        if not fits:
            assert found.reason is not None
            told["noFitReason"] = found.reason.code
        for assigned in found.assignment.pod_sets:
            told["podSets"][assigned.name] = {
                "count": assigned.count,
                "flavors": {
                    resource: {"flavor": flavor, "mode": _public(found.modes[assigned.name, resource])}
                    for resource, flavor in (assigned.flavors if fits else ())
                },
                "requests": {r: format_amount(r, n * assigned.count) for r, n in assigned.requests},
            }
        if fits:
            told["usage"] = [
                {"flavor": cell.flavor, "resource": cell.resource, "value": amount}
                for cell, amount in found.assignment.usage().items()
            ]
        return told


def _public(mode: Mode) -> str:
    return "Preempt" if mode.preempts else {Mode.FIT: "Fit", Mode.NO_FIT: "NoFit"}[mode]


def flavor_assignment(vector: Vector) -> list[str]:
    expected = {**vector["expect"], "podSets": dict(vector["expect"]["podSets"])}
    for name, told in expected["podSets"].items():
        expected["podSets"][name] = {key: value for key, value in told.items() if key != "attempts"}
    return _unlike(expected, _Assigning(vector).observed())


# --- order -----------------------------------------------------------------------------------------------


def candidate_order(vector: Vector) -> list[str]:
    state = State(frozenset())
    usage: dict[LocalQueueName, float] = {}
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
    field = Field(
        tree=state.tree,
        queues=state.directory.queues,
        holders={},
        settings=Settings(),
        now=_NOW,
        past_usage=usage.__getitem__,
    )
    preemptor = Entry(WorkloadId("preemptor"), ObjectRef("default", "Job", "preemptor", "preemptor"))
    contest = Contest(field, state.tree.queue(vector["preemptorClusterQueue"]), preemptor, [], ())
    return _unlike(vector["expect"], {"order": [entry.id for entry in contest.sort(entries)]})


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
