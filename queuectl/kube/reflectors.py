"""All sources of one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from random import Random
from typing import NamedTuple

from queuectl.core.model.events import Event
from queuectl.core.model.workload import WorkloadId
from queuectl.kube.definitions import Definitions
from queuectl.kube.reflector import Reflector, Timings
from queuectl.kube.session import Session
from queuectl.kube.sources import Source
from queuectl.ports.cluster import KindState


class LeaderState(NamedTuple):
    """What a leader leaves to the next one."""

    read_up_to: Mapping[str, int]
    """By kind, the resourceVersion up to which it had read; empty: not known."""
    unobserved: Set[WorkloadId]
    """Workloads that it had and the next one has not observed."""


class Reflectors:
    def __init__(self, session: Session, each: Sequence[Reflector[Event]], definitions: Definitions) -> None:
        self._session = session
        self._each = each
        self._definitions = definitions
        self.sources = frozenset(reflector.source.name for reflector in each)
        """Each of them sends a `Listed`."""

    async def run(self, former: LeaderState | None = None) -> None:
        """Until cancelled. `former`: of the leader before; None: this process does not lead."""
        read_up_to, unobserved = former or LeaderState({}, frozenset())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._definitions.run())
            for reflector in self._each:
                name = reflector.source.name
                run = reflector.run(read_up_to.get(name), unobserved)
                group.create_task(run, name=f"reflect {name}")

    def read_up_to(self) -> dict[str, int]:
        """By source, the version up to which another process must have read it to know all that this one was
        told, by watches and by answers to its own requests."""
        answered = self._session.newest
        each = ((one.source.name, one.read_up_to) for one in self._each)
        return {name: max(at, answered.get(name, 0)) for name, at in each if at is not None}

    def ages(self) -> dict[str, float | None]:
        """Seconds since the server's last answer, by source; None: none yet."""
        return {reflector.source.name: self._age(reflector) for reflector in self._each}

    def _age(self, reflector: Reflector[Event]) -> float | None:
        definition = reflector.definition
        if definition is None or definition.served or definition.versions is None:
            return reflector.age()
        return self._definitions.age()  # nothing is asked about a kind that is not served

    def unread(self, *, leads: bool) -> list[str]:
        """Names of sources of which nothing is known yet; before it leads, without those that wait for the
        ledger."""
        each = (one for one in self._each if leads or one.source.ready is None)
        return sorted(one.source.name for one in each if not one.told)

    @property
    def early(self) -> frozenset[str]:
        """Names of the sources that are read before it leads."""
        return frozenset(one.source.name for one in self._each if one.source.ready is None)

    def kinds(self) -> dict[str, KindState]:
        """Kinds of jobs, by name."""
        return {
            reflector.source.name: _state(reflector) for reflector in self._each if reflector.source.workloads
        }


def _state(reflector: Reflector[Event]) -> KindState:
    definition, problem = reflector.definition, reflector.problem
    if definition is None:
        return KindState(installed=True, served=(), problem=problem)
    served = definition.versions if definition.there else ()
    return KindState(definition.there, served or (), definition.problem or problem)


def reflectors(
    session: Session,
    emit: Callable[[Sequence[Event]], None],
    watched: Sequence[Source[Event]],
    *,
    random: Random | None = None,
    timings: Timings | None = None,
) -> Reflectors:
    """`emit` must not block. `random` spreads requests in time."""
    spread, times = random or Random(), timings or Timings()
    wanted = {source.name: source.defined for source in watched if source.defined is not None}
    definitions = Definitions(session, wanted, random=spread, timings=times)
    each = [
        Reflector(session, source, emit, spread, times, definitions.of(source.name)) for source in watched
    ]
    return Reflectors(session, each, definitions)
