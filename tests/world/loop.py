"""An event loop on virtual time that runs several processes, each with threads.

Who runs is known by a context variable, which tasks and timers inherit. A thread can be paused or killed at
any of its awaits: its callbacks wait, or never run.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

T = TypeVar("T")
_THREAD: Final[ContextVar[Thread]] = ContextVar("_THREAD")


class Stuck(Exception):
    """Nothing can happen any more, or too much happens without time passing."""


def virtual_loop(random: Random) -> VirtualLoop:
    """`random` chooses which thread runs next, among those with something to do."""
    return VirtualLoop(random)  # type: ignore[abstract]  # no sockets, signals or threads


class _Callback:
    """What asyncio uses of `asyncio.Handle` and `asyncio.TimerHandle`."""

    __slots__ = ("_args", "_cancelled", "call", "context")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.call = call
        self._args = args
        self._cancelled = False
        self.context = copy_context() if context is None else context

    def cancel(self) -> None:
        self._cancelled = True
        self._args = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def run(self) -> None:
        if not self._cancelled:
            self.context.run(self.call, *self._args)


class Thread:
    """Callbacks of one thread of one process, in their order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[_Callback] = deque()
        self.paused = False
        self.dead = False

    def context(self) -> Context:
        """A context in which what is started belongs to this thread."""
        context = copy_context()
        context.run(_THREAD.set, self)
        return context


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """What killed tasks left open is not reported when they are collected."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before


class _NumberedTask(asyncio.Task[Any]):
    """Sets of tasks have an order that does not depend on addresses."""

    number: int = 0

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.AbstractEventLoop):
    """Made by `virtual_loop`. Its only clock is `time`, in virtual seconds."""

    def __init__(self, random: Random, *, most_callbacks: int = 100_000) -> None:
        """Raises Stuck from `run_until_complete` after so many callbacks."""
        self._random = random
        self._now = 0.0
        self._main = Thread("main")
        self._threads: list[Thread] = [self._main]
        self._ready: list[Thread] = []
        """Those that have callbacks."""
        self._timers: list[tuple[float, int, _Callback]] = []
        self._turns = count()
        self._numbers = count(1)
        self._tasks: list[_NumberedTask] = []
        self._dead: list[Thread] = []
        self._dropped: list[_Callback] = []
        self._left = most_callbacks
        self.waits: Callable[[str, asyncio.Task[Any]], None] | None = None
        """Told of each step of a task, and of its thread."""
        self.callbacks = 0
        self.troubles: list[str] = []
        """Exceptions that nothing handled."""

    # --- threads

    def thread(self, name: str) -> Thread:
        made = Thread(name)
        self._threads.append(made)
        return made

    def kill(self, thread: Thread) -> None:
        """Nothing of it runs any more, not even what would clean up."""
        thread.dead = True
        self._dropped += thread.ready
        if thread.ready:
            thread.ready.clear()
            self._ready.remove(thread)
        self._threads.remove(thread)
        self._dead.append(thread)

    def spawn(self, thread: Thread, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task of that thread."""
        return self.create_task(work, name=name, context=thread.context())

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Callback:
        made = _Callback(callback, args, context)
        self._add(made)
        return made

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Callback:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Callback:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Callback:
        timer = _Callback(callback, args, context)
        heapq.heappush(self._timers, (when, next(self._turns), timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = _NumberedTask.__new__(_NumberedTask)
        task.number = next(self._numbers)
        task.__init__(coro, loop=self, name=name or "task", context=context)  # type: ignore[misc]
        self._tasks.append(task)
        if len(self._tasks) > 20_000:
            self._tasks = [one for one in self._tasks if not one.done()]
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.troubles.append(f"{context.get('message')}: {type(error).__name__}: {error}")

    # --- run

    def run_until_complete(self, future: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:  # type: ignore[override]
        task = future if isinstance(future, asyncio.Task) else self.create_task(future)
        with self._running():
            while not task.done():
                self._step()
        return task.result()

    @contextlib.contextmanager
    def _running(self) -> Generator[None]:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def _add(self, callback: _Callback) -> None:
        thread = callback.context.get(_THREAD, self._main)
        if thread.dead:
            self._dropped.append(callback)
            return
        if not thread.ready:
            self._ready.append(thread)
        thread.ready.append(callback)

    def _step(self) -> None:
        ready = [thread for thread in self._ready if not thread.paused]
        if not ready:
            self._pass_time()
            return
        thread = ready[0] if len(ready) == 1 else ready[int(self._random.random() * len(ready))]
        callback = thread.ready.popleft()
        if not thread.ready:
            self._ready.remove(thread)
        self.callbacks += 1
        if self.callbacks > self._left:
            raise Stuck(f"{self.callbacks} callbacks after {self._now:.1f} s")
        try:
            callback.run()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": "a callback failed", "exception": error})
        if self.waits is not None and isinstance(
            task := getattr(callback.call, "__self__", None), asyncio.Task
        ):
            self.waits(thread.name, task)

    def _pass_time(self) -> None:
        if not self._timers:
            raise Stuck(f"nothing is left to do after {self._now:.1f} s")
        self._now = max(self._now, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now:
            _, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._add(timer)

    def close(self) -> None:
        """Cancel every task, also those of killed threads, and let them end."""
        self._left = self.callbacks + 200_000
        with self._running(), _quiet(), contextlib.suppress(Stuck):
            self._threads += self._dead
            for thread in self._threads:
                thread.paused = thread.dead = False
            for callback in self._dropped:
                self._add(callback)
            for _ in range(50):
                left = [task for task in self._tasks if not task.done()]
                if not left:
                    break
                for task in left:
                    task.cancel()
                for _ in range(100_000):
                    if not any(thread.ready for thread in self._threads):
                        break
                    self._step()
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._timers.clear()
        self._tasks.clear()
        self._dropped.clear()
