"""Replay of the decisions: what must be open, held and used after each of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from queuectl.core.decisions import Verdict
from queuectl.core.model.policy import ClusterQueue, Cohort
from queuectl.core.model.resources import FlavorResource, Usage, format_amount
from queuectl.core.model.workload import AttemptState, ConfigKey, Phase
from queuectl.core.quota.tree import QuotaTree
from queuectl.kinds.policy import parse_policy
from queuectl.kinds.policy_amounts import BadPolicy
from queuectl.ledger.codec import Json, dump

FINDINGS_KEPT: Final = 1000
"""At most this number of findings is listed."""

Line = tuple[str, int, str, str, int]
"""Podset, count, flavor, resource, amount of one pod."""


@dataclass(frozen=True, slots=True)
class LedgerFinding:
    """An inconsistency of the ledger. `subject` names the row, `detail` the numbers."""

    code: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code}: {self.subject}: {self.detail}"


@dataclass(slots=True)
class Holding:
    """An open attempt."""

    number: int
    state: AttemptState
    sequence: int
    debt: bool
    cluster_queue: str
    lines: tuple[Line, ...]
    effect: int | None
    """Sequence of the decision whose effect is or was due for it."""

    def usage(self) -> Usage:
        used: Usage = {}
        for _, count, flavor, resource, amount in self.lines:
            cell = FlavorResource(flavor, resource)
            used[cell] = used.get(cell, 0) + count * amount
        return used


@dataclass(slots=True)
class Expected:
    """A workload that is open."""

    phase: Phase
    attempts: int
    updated: int
    holding: Holding | None = None
    past: Json | None = None


@dataclass(slots=True)
class Replay:
    """The state after decision `sequence`. Feed it decisions in order; findings gather in `findings`."""

    sequence: int = 0
    epoch: int = 0
    now: datetime | None = None
    begins: int = 1
    """The first decision that is stored: the state before it cannot be checked."""
    workloads: dict[str, Expected] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    configs: dict[ConfigKey, tuple[int, str]] = field(default_factory=dict)
    tree: QuotaTree = field(default_factory=QuotaTree)
    """Quota and usage, to compute what was available to an admission at its time."""
    unreadable: set[ConfigKey] = field(default_factory=set)
    """Invalid specs: while there are any, availability cannot be computed."""
    trusted: set[str] = field(default_factory=set)
    """Open workloads whose first decisions are no longer stored."""
    findings: list[LedgerFinding] = field(default_factory=list)

    def find(self, code: str, subject: str, detail: str) -> None:
        if len(self.findings) < FINDINGS_KEPT:
            self.findings.append(LedgerFinding(code, subject, detail))

    def apply(self, row: Any) -> tuple[Line, ...] | None:
        """One row of `decision`. Returns the hold lines it closes, None if it closes no attempt."""
        self._follow(row)
        match row.verdict:
            case Verdict.CONFIGURED:
                self._configured(row)
                return None
            case Verdict.QUEUED:
                found = self.workloads.setdefault(row.workload, Expected(Phase.PENDING, 0, 0))
                found.updated, found.past = row.sequence, row.payload.get("past")
                return None
        expected = self.workloads.get(row.workload)
        if expected is None:
            if self.begins == 1:
                self.find("UnknownWorkload", _name(row), f"{row.verdict} without ever being queued")
            else:
                self.trusted.add(row.workload)
            return None
        expected.updated = row.sequence
        expected.past = row.payload.get("past", expected.past)
        return self._moved_on(row, expected)

    def forget(self, row: Any) -> None:
        """After all checks of a row: a workload that is over is not trusted any longer."""
        if row.verdict == Verdict.RETIRED:
            self.trusted.discard(row.workload)

    def _moved_on(self, row: Any, expected: Expected) -> tuple[Line, ...] | None:
        match row.verdict:
            case Verdict.AMENDED:
                self._held(row, expected)
            case Verdict.SHRUNK:
                return self._shrunk(row, expected)
            case Verdict.ADMITTED:
                self._admitted(row, expected)
            case Verdict.EVICTED:
                self._evicted(row, expected)
            case Verdict.RELEASED:
                return self._closed(row, expected)
            case Verdict.RETIRED:
                del self.workloads[row.workload]
                if row.attempt is not None:
                    return self._closed(row, expected)
                self._idle(row, expected)
        return None

    def _follow(self, row: Any) -> None:
        if self.sequence == 0:
            self.begins = row.sequence
        elif row.sequence != self.sequence + 1:
            self.find("Gap", f"decision {row.sequence}", f"follows decision {self.sequence}")
        if row.epoch < self.epoch:
            self.find("OldEpoch", f"decision {row.sequence}", f"epoch {row.epoch} after epoch {self.epoch}")
        if self.now is not None and row.now < self.now:
            self.find("TimeRanBack", f"decision {row.sequence}", f"{row.now} after {self.now}")
        self.sequence, self.epoch, self.now = row.sequence, row.epoch, row.now

    def _configured(self, row: Any) -> None:
        key = ConfigKey(row.payload["kind"], row.payload["namespace"], row.payload["name"])
        self.configure(key, row.sequence, row.payload["spec"])

    def configure(self, key: ConfigKey, sequence: int, spec: Json | None) -> None:
        """Policy that is in force from decision `sequence` on; None: it is deleted."""
        if spec is None:
            self.configs.pop(key, None)
        else:
            self.configs[key] = (sequence, dump(spec))
        if key.kind in ("ClusterQueue", "Cohort"):
            self._set_quota(key, spec)

    def _set_quota(self, key: ConfigKey, spec: Json | None) -> None:
        self.unreadable.discard(key)
        if spec is None:
            (self.tree.drop_queue if key.kind == "ClusterQueue" else self.tree.drop_cohort)(key.name)
            return
        try:
            policy = parse_policy(key, json.dumps(spec))
        except BadPolicy:
            self.unreadable.add(key)
            return
        if isinstance(policy, ClusterQueue):
            self.tree.set_queue(policy)
        elif isinstance(policy, Cohort):
            self.tree.set_cohort(policy)

    def _admitted(self, row: Any, expected: Expected) -> None:
        payload: Json = row.payload
        if expected.holding is not None:
            self.find(
                "SecondAttempt", _name(row), f"admitted while attempt {expected.holding.number} is open"
            )
            self.charge(expected.holding, -1)
        if row.attempt <= expected.attempts:
            self.find("AttemptAgain", _name(row), f"it has had {expected.attempts} attempts already")
        rebuilt: int | None = payload.get("rebuiltFrom")
        free = payload["debt"] or rebuilt is not None
        holding = Holding(
            number=row.attempt,
            state=AttemptState.ADMITTED,
            sequence=rebuilt if rebuilt is not None else row.sequence,
            debt=payload["debt"],
            cluster_queue=payload["clusterQueue"],
            lines=lines_of(payload["podSets"]),
            effect=None if free else row.sequence,
        )
        expected.holding, expected.attempts, expected.phase = holding, row.attempt, Phase.ADMITTED
        if not free and not self.unreadable:
            self._within_quota(row, holding)
        self.charge(holding, 1)

    def _within_quota(self, row: Any, holding: Holding) -> None:
        """Was all that it holds available to its queue, own and borrowed quota together (Q4)?

        What trusted workloads hold is not known, and counts as available.
        """
        node = self.tree.queue(holding.cluster_queue)
        for cell, amount in holding.usage().items():
            available = max(0, self.tree.available(node, self.tree.cell(cell)))
            if amount > available:
                resource = cell.resource
                self.find(
                    "OverQuota",
                    _name(row),
                    f"was given {format_amount(resource, amount)} of {cell}, "
                    f"{format_amount(resource, available)} was available to {node} then",
                )

    def _evicted(self, row: Any, expected: Expected) -> None:
        holding = self._held(row, expected)
        if holding is None:
            return
        if holding.state is AttemptState.EVICTING:
            self.find("EvictedAgain", _name(row), f"attempt {row.attempt} is terminating already")
        holding.state, holding.effect = AttemptState.EVICTING, row.sequence
        expected.phase = Phase.EVICTING

    def _shrunk(self, row: Any, expected: Expected) -> tuple[Line, ...]:
        holding = self._held(row, expected)
        if holding is None:
            return ()
        if holding.state is AttemptState.EVICTING:
            self.find("WrongAttempt", _name(row), f"attempt {row.attempt} shrinks while it is terminating")
        counts = {(pod_set, resource): count for pod_set, count, _, resource, _ in holding.lines}
        smaller = lines_of(row.payload["podSets"])
        for pod_set, count, _, resource, _ in smaller:
            if count > (before := counts.get((pod_set, resource), 0)):
                self.find("Grown", _name(row), f"{resource} of {count} pods of {pod_set}, before of {before}")
        self.charge(holding, -1)
        closed = tuple(sorted(set(holding.lines) - set(smaller)))
        holding.lines = smaller
        self.charge(holding, 1)
        return closed

    def _closed(self, row: Any, expected: Expected) -> tuple[Line, ...]:
        holding = self._held(row, expected)
        expected.holding, expected.phase = None, Phase.PENDING
        if holding is None:
            return ()
        self.charge(holding, -1)
        return holding.lines

    def _idle(self, row: Any, expected: Expected) -> None:
        if expected.holding is not None:
            self.find(
                "AttemptLeftOpen", _name(row), f"attempt {expected.holding.number} is not closed with it"
            )
            self.charge(expected.holding, -1)

    def _held(self, row: Any, expected: Expected) -> Holding | None:
        holding = expected.holding
        if holding is None or holding.number != row.attempt:
            open_one = f"attempt {holding.number} is" if holding else "no attempt is"
            self.find("WrongAttempt", _name(row), f"{row.verdict} attempt {row.attempt}, but {open_one} open")
            return None
        return holding

    def charge(self, holding: Holding, sign: int) -> None:
        """Add what an attempt holds to the usage of its queue (`sign` 1), or take it away (-1)."""
        usage = self.usage.setdefault(holding.cluster_queue, {})
        held = holding.usage()
        for cell, amount in held.items():
            usage[cell] = usage.get(cell, 0) + sign * amount
        node, cells = self.tree.queue(holding.cluster_queue), self.tree.numbered(held)
        (self.tree.add if sign > 0 else self.tree.remove)(node, cells)


def lines_of(pod_sets: list[Json]) -> tuple[Line, ...]:
    """Hold lines of an admission, sorted."""
    return tuple(
        sorted(
            (one["name"], one["count"], one["flavors"][resource], resource, amount)
            for one in pod_sets
            for resource, amount in one["requests"].items()
        )
    )


def _name(row: Any) -> str:
    attempt = "" if row.attempt is None else f", attempt {row.attempt}"
    return f"decision {row.sequence} on {row.namespace}/{row.kind}/{row.name}{attempt}"
