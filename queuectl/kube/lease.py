"""Leader election by a coordination.k8s.io Lease, renewed by a thread with an event loop of its own.

Only durations on this machine's monotonic clock count; times written by other processes are never compared.
The holder regards the lease as its own from the start of its last successful write for the lease's duration
less a margin. A blocked main loop does not lose the lease; if its work does not stop after the lease is lost,
the process is ended. The Lease decides which process tries to lead; the epoch in the ledger decides which
process's writes count.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Any, Final

from queuectl.kinds.admission import rfc3339
from queuectl.kube.errors import ApiError, BadKubeconfig, Conflict
from queuectl.kube.session import Object, Session, api_path
from queuectl.ports.ledger import ForeignLedger

_log: Final = logging.getLogger(__name__)

LEDGER_ANNOTATION: Final = "queuectl.dev/ledger"
"""On the Lease: id of the database from which this cluster is led."""

EXIT_CODE: Final = 70
"""Exit status of a process that lost the lease and did not stop by itself."""

Work = Callable[[], Coroutine[Any, Any, None]]
Apart = Callable[[Work], Awaitable[None]]
"""Runs the work apart from the caller's tasks, whatever these do. Returns at once; what it returns ends with
the work."""


def on_a_thread(work: Work) -> Awaitable[None]:
    """Run it on a daemon thread with an event loop of its own."""
    main = asyncio.get_running_loop()
    ended: asyncio.Future[None] = main.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def run() -> None:
        try:
            asyncio.run(work())
        except Exception:
            _log.exception("the lease is not kept any more")
        _call(main, end)

    threading.Thread(target=run, name="lease", daemon=True).start()
    return ended


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """In seconds."""

    duration: float = 6.0
    """A holder that has written nothing for this long has lost it. The epoch keeps two leaders apart."""
    slow_duration: float = 15.0
    """The same where the API server answers slowly: a leader that ends then makes its load worse."""
    slow_answer: float = 0.25
    """An answer that takes longer is slow."""
    slow_for: float = 60.0
    """How long the API server counts as slow after a slow answer."""
    margin: float = 2.0
    """How much earlier the holder itself regards it as lost."""
    renew: float = 1.5
    """Between two writes; random from half of it upwards."""
    look: float = 0.75
    """The same between two reads while another process holds it."""
    patience: float = 2.0
    """After the lease is lost, until the process is ended if its work has not stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseProcess:
    """What a lease uses of its process."""

    random: Random = field(default_factory=Random)
    """Spreads requests in time."""
    end: Callable[[int], object] = os._exit
    """Ends the process with an exit status."""
    clock: Callable[[], float] = monotonic
    """Seconds."""
    apart: Apart = on_a_thread


class KubeLease:
    """Acquired once, then held until it is lost or released. When it is lost the process ends."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Session]],
        *,
        name: str,
        holder: str,
        ledger: str | None = None,
        times: LeaseTimes | None = None,
        process: LeaseProcess | None = None,
    ) -> None:
        """`connect` makes a session for the thread's own loop; `name`: NAMESPACE/NAME; `holder` names this
        process alone.

        `ledger` is the id of its database. It is written on the Lease; a Lease with another id is not taken.
        """
        self._connect = connect
        self._name = name
        self._path = api_path("coordination.k8s.io", "v1", "leases", *name.split("/"))
        self._holder = holder
        self._ledger = ledger
        self._foreign: str | None = None
        self._times = times or LeaseTimes()
        self._process = process or LeaseProcess()
        self._written: Object | None = None
        """The Lease as it was after our last write; None: it has to be read."""
        self._record: tuple[str, object] = ("", None)
        self._changed_at = self._clock()
        self._trusted_until: float | None = None
        self._renewed_at: float | None = None
        self._slow_until = self._clock()
        self._held = False
        self._main: asyncio.AbstractEventLoop | None = None
        self._acquired = asyncio.Event()
        self._lost = asyncio.Event()
        self._stopping = False
        self._stop: Callable[[], object] | None = None
        """Ends the wait of the thread; None: it has not begun."""
        self._asked = asyncio.Event()
        """On the thread's loop: to be released."""
        self._ended: Awaitable[None] | None = None

    # --- on the main loop -------------------------------------------------------------------------------

    async def acquire(self) -> None:
        """Wait until the lease is ours. Raises ForeignLedger, also for one that is held."""
        if self._main is None:
            self._main = asyncio.get_running_loop()
            self._ended = self._process.apart(self._work)
        await self._acquired.wait()
        if self._foreign is not None:
            raise ForeignLedger(
                f"the cluster is led from ledger {self._foreign} (annotation {LEDGER_ANNOTATION} of Lease "
                f"{self._name}), this database is ledger {self._ledger}: two would admit to the same quota "
                "twice. If the other is given up for good: kubectl annotate lease "
                f"-n {self._name.replace('/', ' ')} {LEDGER_ANNOTATION}-"
            )

    async def lost(self) -> None:
        """Return when it is no longer ours; the caller must then stop its work and call `release`."""
        await self._lost.wait()

    def age(self) -> float | None:
        """Seconds since our last successful write of it; None while it is not ours."""
        renewed_at = self._renewed_at
        return None if renewed_at is None or not self._held else self._clock() - renewed_at

    async def release(self) -> None:
        """All work has stopped: give the lease up if it is still ours."""
        self._stopping = True
        if self._stop is not None:
            self._stop()
        if self._ended is not None:
            await self._ended

    def _clock(self) -> float:
        return self._process.clock()

    # --- on the thread ----------------------------------------------------------------------------------

    @property
    def _trusted(self) -> bool:
        return self._trusted_until is not None and self._clock() < self._trusted_until

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        self._stop = lambda: _call(loop, self._asked.set)
        if self._stopping:  # before there was a way to say so
            self._asked.set()
        try:
            await self._keep()
        except Exception:
            _log.exception("the lease is not kept any more")
        if self._stopping:
            return
        self._tell(self._lost)
        if self._held and not await self._wait_for_release(self._times.patience):
            _log.critical("lease %s is lost and work goes on: ending the process", self._path)
            self._process.end(EXIT_CODE)

    async def _keep(self) -> None:
        """Try to get it, keep it; returns when it is lost or to be released."""
        session = await self._connected()
        if session is None:
            return
        try:
            while not self._stopping:
                await self._try(session)
                if self._foreign is not None:
                    self._tell(self._acquired)  # it is not: the waiting caller gets the reason
                    return
                if self._held and not self._trusted:
                    return
                if self._trusted and not self._held:
                    self._held = True
                    self._tell(self._acquired)
                await self._wait()
            if self._trusted:
                await self._hand_on(session)
        finally:
            await session.close()

    async def _connected(self) -> Session | None:
        while not self._stopping:
            try:
                return await self._connect()
            except BadKubeconfig as error:
                _log.warning("lease: %s", error)
                await self._wait()
        return None

    async def _try(self, session: Session) -> None:
        """One write if it is free or ours, before the lease would be lost.

        It is read before, unless the last write succeeded: then the resourceVersion of that write tells if it
        is still ours (the optimistic renewal of leaderelection in client-go).
        """
        begun = self._clock()
        trusted_until = self._trusted_until if self._held else None
        left = self._times.duration if trusted_until is None else trusted_until - begun
        lease, self._written = self._written, None
        try:
            async with asyncio.timeout(max(0.0, left)):
                if lease is not None:
                    try:
                        await self._write(session, lease, begun)
                        return
                    except Conflict:
                        _log.info("lease: another client wrote it")
                lease = await session.get(self._path)
                self._heard(begun)
                if (foreign := self._led_from(lease)) is not None:
                    self._foreign, self._trusted_until = foreign, None
                    return
                if not self._free(lease.get("spec") or {}):
                    self._trusted_until = None
                    return
                await self._write(session, lease, begun)
        except (ApiError, TimeoutError) as error:
            _log.warning("lease: %s", error or "no answer in time")

    async def _write(self, session: Session, lease: Object, begun: float) -> None:
        """Claim it for our duration from `begun`. Raises ApiError."""
        # Others wait as long as the Lease says.
        slow = self._clock() < self._slow_until
        duration = self._times.slow_duration if slow else self._times.duration
        asked = self._clock()
        written = await session.request("PUT", self._path, self._claimed(session, lease, duration))
        self._heard(asked)
        self._note(written.get("spec") or {})
        self._written = written
        self._renewed_at, self._trusted_until = begun, begun + duration - self._times.margin

    def _heard(self, asked: float) -> None:
        """The answer to a request of that time came."""
        now = self._clock()
        if now - asked > self._times.slow_answer:
            self._slow_until = now + self._times.slow_for

    def _led_from(self, lease: Object) -> str | None:
        """The ledger id on the Lease, if it is not ours."""
        noted = ((lease.get("metadata") or {}).get("annotations") or {}).get(LEDGER_ANNOTATION)
        return str(noted) if noted and self._ledger is not None and noted != self._ledger else None

    def _free(self, spec: Object) -> bool:
        """Whether it has no holder, is ours, or was not renewed for its holder's duration."""
        holder = spec.get("holderIdentity")
        self._note(spec)
        if not holder or holder == self._holder:
            return True
        seconds = spec.get("leaseDurationSeconds")
        patience = float(seconds) if isinstance(seconds, int) else self._times.duration
        return self._clock() - self._changed_at > patience

    def _note(self, spec: Object) -> None:
        record = (str(spec.get("holderIdentity") or ""), spec.get("renewTime"))
        if record != self._record:
            self._record = record
            self._changed_at = self._clock()

    def _claimed(self, session: Session, lease: Object, duration: float) -> Object:
        before = lease.get("spec") or {}
        now = rfc3339(session.server_time())
        spec: dict[str, Any] = {
            **before,
            "holderIdentity": self._holder,
            # Whole seconds, rounded up: others wait at least as long as we regard it as ours.
            "leaseDurationSeconds": max(1, -int(-duration // 1)),
            "renewTime": now,
        }
        if before.get("holderIdentity") != self._holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + 1
        # With its resourceVersion the write fails if another process was faster.
        claimed = {**lease, "spec": spec}
        if self._ledger is not None:
            metadata = lease.get("metadata") or {}
            annotations = {**(metadata.get("annotations") or {}), LEDGER_ANNOTATION: self._ledger}
            claimed["metadata"] = {**metadata, "annotations": annotations}
        return claimed

    async def _hand_on(self, session: Session) -> None:
        try:
            async with asyncio.timeout(self._times.patience):
                lease = await session.get(self._path)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == self._holder:
                    await session.request(
                        "PUT", self._path, {**lease, "spec": {**spec, "holderIdentity": ""}}
                    )
        except (ApiError, TimeoutError) as error:
            _log.warning("lease not handed on: %s", error or "no answer in time")

    async def _wait(self) -> None:
        """Until the next try, the loss of the lease or the release, whichever comes first."""
        longest = self._times.renew if self._held else self._times.look
        until = self._clock() + self._process.random.uniform(longest / 2, longest)
        if self._held and self._trusted_until is not None:
            until = min(until, self._trusted_until)
        await self._wait_for_release(max(0.0, until - self._clock()))

    async def _wait_for_release(self, seconds: float) -> bool:
        """Wait at most so long. Returns whether the lease is to be released."""
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            return False
        return True

    def _tell(self, event: asyncio.Event) -> None:
        assert self._main is not None
        _call(self._main, event.set)


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """From another thread."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        _log.debug("the other loop is closed")
