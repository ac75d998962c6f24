"""Facts for readers of the ledger that are not stored yet (docs/decisions/0026-facts-for-readers.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from queuectl.core.model.capacity import ClusterQueueDemand, FlavorCapacity
from queuectl.core.model.node_facts import NodeFacts
from queuectl.core.model.workload import ForReaders, PendingLine, PodsReady

Fact = PodsReady | PendingLine | FlavorCapacity | ClusterQueueDemand | NodeFacts | frozenset[str]
Key = tuple[str, str]
"""The field of ForReaders, and the name of the fact in it."""

_ALL_NODES: Final = ("all_nodes", "")
_PAUSE: Final = 10.0
"""After a try that failed, the others wait for so many times its duration: decisions wait for each try."""


@dataclass(slots=True)
class FactsBatch:
    """Facts that are stored in one transaction."""

    facts: dict[Key, Fact]
    failures: int = 0
    failed_at: float = field(default=float("-inf"))
    """When it failed last, in seconds."""

    @property
    def told(self) -> ForReaders:
        fields: dict[str, list[Fact]] = {}
        for (name, _), fact in self.facts.items():
            fields.setdefault(name, []).append(fact)
        every = fields.pop(_ALL_NODES[0], None)
        found = ForReaders(**{name: tuple(facts) for name, facts in fields.items()})  # type: ignore[arg-type]
        return found if every is None else found._replace(all_nodes=tuple(sorted(every[0])))  # type: ignore[arg-type]


class PendingFacts:
    """Keeps each fact until it is stored. Facts that fail are divided until the one that fails is alone."""

    def __init__(self) -> None:
        self._fresh: dict[Key, Fact] = {}
        self._failed: list[FactsBatch] = []
        self._pause_until = float("-inf")

    def __bool__(self) -> bool:
        return bool(self._fresh or self._failed)

    def tell(self, name: str, facts: Iterable[tuple[str, Fact]]) -> None:
        """Store these instead of earlier facts with the same names. `name`: a field of ForReaders."""
        for key, fact in facts:
            self._place_of((name, key))[name, key] = fact
            if isinstance(fact, NodeFacts) and not fact.gone:
                self._add_node(fact.name)

    def tell_all_nodes(self, names: tuple[str, ...]) -> None:
        """All nodes that there are: readers are told that the others are gone."""
        self._place_of(_ALL_NODES)[_ALL_NODES] = frozenset(names)

    def take(self, now: float) -> FactsBatch | None:
        """Return what to store next: `stored` or `failed` must follow. `now`: seconds of one clock."""
        if self._fresh:
            part, self._fresh = FactsBatch(self._fresh), {}
            return part
        if not self._failed or now < self._pause_until:
            return None
        part = min(self._failed, key=lambda one: one.failures)
        self._failed.remove(part)
        return part

    def failed(self, part: FactsBatch, begun: float, now: float, stored_at: float) -> None:
        """A part was not stored. `stored_at`: when anything was stored last. All in seconds of one clock.

        It is divided only if anything was stored since it failed before: in an outage no fact is the cause.
        """
        part.facts |= {key: self._fresh.pop(key) for key in part.facts.keys() & self._fresh.keys()}
        self._pause_until = now + _PAUSE * (now - begun)
        keys = sorted(part.facts)
        if part.failed_at < stored_at and part.failures and len(keys) > 1:
            halves = keys[: len(keys) // 2], keys[len(keys) // 2 :]
            self._failed += (FactsBatch({key: part.facts[key] for key in half}, 1, now) for half in halves)
        else:
            self._failed.append(FactsBatch(part.facts, part.failures + 1, now))

    def _place_of(self, key: Key) -> dict[Key, Fact]:
        """A fact of which an earlier value failed takes its place, so that it fails with no others again."""
        return next((part.facts for part in self._failed if key in part.facts), self._fresh)

    def _add_node(self, name: str) -> None:
        place = self._place_of(_ALL_NODES)
        every = place.get(_ALL_NODES)
        if isinstance(every, frozenset) and name not in every:
            place[_ALL_NODES] = every | {name}
