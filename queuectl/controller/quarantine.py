"""What the controller decides nothing about for a time, and when it tries again.

A root that the ledger refuses: memory and ledger disagree. A workload of which a decision is illegal. A
workload that the ledger fails to store although it can store its like: before that is known, it is a suspect,
left out silently, because in an outage no workload is the cause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Set
from typing import Final, Protocol, TypeVar

from queuectl.core.decisions import Configure, Keep, Plan, Verdict, subject
from queuectl.core.engine import Engine
from queuectl.core.model.workload import LedgerSnapshot, WorkloadId
from queuectl.ports.ledger import LedgerRefused, PlanFailed

Frozen = TypeVar("Frozen", str, WorkloadId)
log = logging.getLogger(__name__)

_FIRST_THAW, _LAST_THAW = 1.0, 60.0
_SUSPECTED = 2.0
"""Seconds for which a workload is left out to find out whether its like can be stored."""
_MOST_SUSPECTS: Final = 64


class QuarantineObserver(Protocol):
    def ledger_refused(self) -> None: ...
    def set_aside(self) -> None: ...


class SetAside:
    """Freezes and thaws roots and workloads of an engine. Call between plans only."""

    def __init__(self, engine: Engine, observer: QuarantineObserver, wake: Callable[[], None]) -> None:
        """`wake` is called when something is to be tried again."""
        self._engine = engine
        self._observer = observer
        self._wake = wake
        self._delays: dict[str, float] = {}
        """Of roots, and of workloads that are known to fail: seconds until the last try."""
        self._suspects: dict[WorkloadId, frozenset[Verdict]] = {}
        """The decisions of each that failed."""
        self.roots: set[str] = set()
        """To be loaded again now."""
        self._workloads: set[WorkloadId] = set()
        """To be decided about again now."""

    @property
    def due(self) -> bool:
        return bool(self.roots or self._workloads)

    @property
    def full(self) -> bool:
        """Too many suspects: it is an outage rather."""
        return len(self._suspects) >= _MOST_SUSPECTS

    def freeze(self, root: str, error: LedgerRefused) -> None:
        log.critical("%s is frozen, the ledger refuses it: %s", root or "work without a queue", error)
        self._observer.ledger_refused()
        self._engine.freeze(root)
        self._later(self._longer(root), root, self.roots)

    def add(self, workload: WorkloadId, error: Exception) -> None:
        """Set a workload aside, with a reason, and try again less and less often."""
        log.critical("workload %s is set aside, the others go on: %s", workload, error)
        self._observer.set_aside()
        self._engine.freeze(workload)
        self._later(self._longer(workload), workload, self._workloads)

    def judge(self, stored: Set[Verdict], failed: Iterable[tuple[Plan, PlanFailed]]) -> None:
        """Set aside what can't be stored while its like can; suspect the others.

        `stored`: decisions that could be stored now; `failed`: parts of a plan about one subject each.
        """
        for part, failure in failed:
            decision = part.decisions[0]
            if isinstance(decision, Configure):
                log.critical("%s can't be stored: %s", decision.key, failure)
                continue
            workload = subject(decision)
            verdicts = frozenset(decision.verdict for decision in part.recorded)
            if workload in self._engine.frozen:
                self._engine.freeze(workload)  # even that reason can't be stored
            elif workload in self._delays or verdicts <= stored:
                self.add(workload, failure)
            elif not self.full:
                self._suspects[workload] = verdicts
                for _ in range(2):  # without a reason: in an outage it would be wrong
                    self._engine.freeze(workload)
                self._later(_SUSPECTED, workload, self._workloads)

    def note_stored(self, plan: Plan) -> None:
        """Try suspects again whose like was stored: those that fail once more are the cause."""
        if not (self._delays or self._suspects):
            return
        for decision in plan.recorded:
            if not isinstance(decision, Configure | Keep):
                self._delays.pop(subject(decision), None)
        stored = {decision.verdict for decision in plan.recorded}
        for workload in [one for one, verdicts in self._suspects.items() if verdicts <= stored]:
            self._delays[workload] = _FIRST_THAW / 2
            self._workloads.add(workload)
            self._wake()

    def thaw(self, snapshot: LedgerSnapshot | None) -> None:
        """Go on with what is due; `snapshot`: the ledger as it is, if `roots` are due."""
        if snapshot is not None:
            for root in sorted(self.roots):
                self._engine.thaw(root, snapshot)
            self.roots.clear()
        for workload in sorted(self._workloads):
            self._suspects.pop(workload, None)
            self._engine.thaw(workload)
        self._workloads.clear()

    def _longer(self, what: str) -> float:
        delay = self._delays[what] = min(self._delays.get(what, _FIRST_THAW / 2) * 2, _LAST_THAW)
        return delay

    def _later(self, delay: float, what: Frozen, due: set[Frozen]) -> None:
        def is_due() -> None:
            due.add(what)
            self._wake()

        asyncio.get_running_loop().call_later(delay, is_due)
