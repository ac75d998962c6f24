from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from queuectl.kube.lease import EXIT_CODE, LEDGER_ANNOTATION, KubeLease, LeaseProcess, LeaseTimes
from queuectl.kube.session import Deadlines, Session
from queuectl.ports.cluster import Lease
from queuectl.ports.ledger import ForeignLedger
from tests.doubles.inprocess import InProcessTransport

QUICK = LeaseTimes(duration=1.0, slow_duration=1.0, margin=0.4, renew=0.05, patience=0.15)


@dataclass
class _Answer:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class _Server:
    """One Lease with optimistic locking, shared by threads; it can hang or refuse."""

    def __init__(self, **spec: Any) -> None:
        self.lease: dict[str, Any] = {"metadata": {"name": "l", "resourceVersion": "1"}, "spec": spec}
        self.trouble = ""
        self.takes = 0.0
        """Seconds for each answer."""
        self.reads = self.writes = 0
        self._lock = threading.Lock()

    async def handle(self, method: str, path: str, query: Any, headers: Any, body: bytes) -> _Answer:
        while self.trouble == "hang":
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.takes)
        if self.trouble:
            return _Answer(500, b"<html>")
        with self._lock:
            if method == "GET":
                self.reads += 1
            if method == "PUT":
                asked = json.loads(body)
                if asked["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                    return _Answer(409, b"{}")
                version = str(int(asked["metadata"]["resourceVersion"]) + 1)
                self.lease = asked | {"metadata": asked["metadata"] | {"resourceVersion": version}}
                self.writes += 1
            return _Answer(200, json.dumps(self.lease).encode())

    def annotate(self, name: str, value: str) -> None:
        """As an admin does."""
        with self._lock:
            metadata = self.lease["metadata"]
            version = str(int(metadata["resourceVersion"]) + 1)
            annotations = {**metadata.get("annotations", {}), name: value}
            self.lease["metadata"] = {**metadata, "resourceVersion": version, "annotations": annotations}

    @property
    def holder(self) -> str:
        return str(self.lease["spec"].get("holderIdentity"))


@asynccontextmanager
async def _lease(
    server: _Server,
    holder: str = "a",
    *,
    ended: list[int] | None = None,
    ledger: str | None = None,
    times: LeaseTimes = QUICK,
) -> AsyncIterator[KubeLease]:
    async def connect() -> Session:
        return Session(InProcessTransport(server.handle), deadlines=Deadlines(unary=30))

    end = (ended if ended is not None else []).append
    lease = KubeLease(
        connect,
        name="n/l",
        holder=holder,
        ledger=ledger,
        times=times,
        process=LeaseProcess(random=Random(holder), end=end),
    )
    _: Lease = lease
    try:
        async with asyncio.timeout(20):
            yield lease
    finally:
        server.trouble = ""
        await lease.release()


async def test_a_free_lease_is_acquired_and_released() -> None:
    server = _Server(leaseTransitions=4)
    async with _lease(server) as lease:
        assert lease.age() is None
        await lease.acquire()
        assert (server.holder, server.lease["spec"]["leaseTransitions"]) == ("a", 5)
        age = lease.age()
        assert age is not None
        assert 0 <= age < QUICK.duration
    assert server.holder == ""


async def test_a_renewed_lease_is_acquired_only_after_its_holder_stops_renewing() -> None:
    # A renewTime of another clock, hours ahead, must have no effect.
    server = _Server(holderIdentity="b", renewTime="2999-01-01T00:00:00.000000Z", leaseDurationSeconds=1)
    async with _lease(server) as lease, asyncio.TaskGroup() as group:
        waiting = group.create_task(lease.acquire())
        for beat in range(6):
            await asyncio.sleep(0.25)
            server.lease["spec"]["renewTime"] = str(beat)
            assert not waiting.done()
        begun = time.monotonic()
        await waiting
        assert time.monotonic() - begun > 0.7
        assert server.holder == "a"


async def test_a_holder_gives_up_on_a_hanging_server_before_another_can_take_over() -> None:
    server = _Server()
    async with _lease(server) as lease:
        await lease.acquire()
        begun = time.monotonic()
        server.trouble = "hang"
        await lease.lost()
        assert time.monotonic() - begun < QUICK.duration - QUICK.margin + 0.3


async def test_a_holder_reads_the_lease_again_only_after_somebody_else_wrote_it() -> None:
    server = _Server()
    async with _lease(server) as lease:
        await lease.acquire()

        async def renewed(times: int) -> int:
            wanted = server.writes + times
            while server.writes < wanted:
                await asyncio.sleep(0.005)
            return server.reads

        assert await renewed(4) == 1
        server.annotate("note", "mine")
        assert await renewed(4) == 2
        assert server.lease["metadata"]["annotations"] == {"note": "mine"}


async def test_a_lease_of_a_slow_server_lasts_longer() -> None:
    server = _Server()
    server.takes = 0.05
    times = replace(QUICK, slow_duration=9.0, slow_answer=0.04)
    async with _lease(server, times=times) as lease:
        await lease.acquire()
        assert server.lease["spec"]["leaseDurationSeconds"] == 9
        server.trouble = "hang"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lease.lost(), QUICK.duration)


async def test_a_holder_gives_up_when_the_server_refuses_renewals() -> None:
    server = _Server()
    async with _lease(server) as lease:
        await lease.acquire()
        server.trouble = "refuse"
        await lease.lost()


async def test_errors_that_end_in_time_change_nothing() -> None:
    server = _Server()
    async with _lease(server) as lease, asyncio.TaskGroup() as group:
        await lease.acquire()
        lost = group.create_task(lease.lost())
        for _ in range(3):
            server.trouble = "refuse"
            await asyncio.sleep(0.2)
            server.trouble = ""
            writes = server.writes
            while server.writes == writes:
                await asyncio.sleep(0.005)
        assert not lost.done()
        lost.cancel()


async def test_a_blocked_main_loop_keeps_the_lease() -> None:
    server = _Server()
    async with _lease(server) as lease:
        await lease.acquire()
        writes = server.writes
        time.sleep(1.5)  # noqa: ASYNC251
        assert server.writes > writes + 5


async def test_a_lease_taken_by_another_process_is_lost_at_once() -> None:
    server = _Server()
    async with _lease(server) as lease:
        await lease.acquire()
        version = str(int(server.lease["metadata"]["resourceVersion"]) + 1)
        taken = {"holderIdentity": "b", "renewTime": "x", "leaseDurationSeconds": 1}
        server.lease = {"metadata": {"name": "l", "resourceVersion": version}, "spec": taken}
        await lease.lost()
        assert server.holder == "b"


async def test_the_process_is_ended_if_work_does_not_stop() -> None:
    server, ended = _Server(), list[int]()
    async with _lease(server, ended=ended) as lease:
        await lease.acquire()
        server.trouble = "hang"
        await lease.lost()
        while not ended:
            await asyncio.sleep(0.005)
    assert ended == [EXIT_CODE]


async def test_the_process_is_not_ended_if_work_stops_in_time() -> None:
    server, ended = _Server(), list[int]()
    async with _lease(server, ended=ended) as lease:
        await lease.acquire()
        server.trouble = "refuse"
        await lease.lost()
        await lease.release()
    assert ended == []


async def test_of_two_processes_one_leads_and_the_other_takes_over_at_its_release() -> None:
    server = _Server()
    async with _lease(server, "a") as first, asyncio.TaskGroup() as group:
        await first.acquire()
        async with _lease(server, "b") as second:
            waiting = group.create_task(second.acquire())
            await asyncio.sleep(0.3)
            assert not waiting.done()
            begun = time.monotonic()
            await first.release()
            await waiting
            assert time.monotonic() - begun < 0.6
            assert server.holder == "b"


async def test_60_a_cluster_is_led_from_one_database_and_the_error_names_both_ids() -> None:
    server = _Server()
    async with _lease(server, ledger="ledger-a") as first:
        await first.acquire()
        # Also while it is held: a process with another database fails at once.
        async with _lease(server, "b", ledger="ledger-b") as second:
            with pytest.raises(ForeignLedger, match=r"led from ledger ledger-a.*is ledger ledger-b.*-n n l "):
                await second.acquire()
    written = server.writes
    async with _lease(server, "b", ledger="ledger-b") as second:
        with pytest.raises(ForeignLedger):
            await second.acquire()
    assert server.writes == written
    async with _lease(server, "c", ledger="ledger-a") as third:
        await third.acquire()
    del server.lease["metadata"]["annotations"]  # the command in the message
    async with _lease(server, "b", ledger="ledger-b") as second:
        await second.acquire()
        assert server.lease["metadata"]["annotations"] == {LEDGER_ANNOTATION: "ledger-b"}


async def test_60_a_leader_stops_when_the_lease_names_another_database() -> None:
    server = _Server()
    ended: list[int] = []
    async with _lease(server, ledger="ledger-a", ended=ended) as lease:
        await lease.acquire()
        server.annotate(LEDGER_ANNOTATION, "ledger-b")
        await lease.lost()
