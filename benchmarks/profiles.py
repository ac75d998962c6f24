"""A sampling profiler: reads the stack of a process every few milliseconds of its CPU time.

A sample costs almost nothing, so that shares are accurate; a profiler that runs at every call overstates
the cost of code with many small functions.
"""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from benchmarks.report import Detail

_EVERY: Final = 0.004
"""CPU seconds between two samples: the smallest unit of kernels."""
_PARTS: Final = (
    (r"queuectl/core/", "core: deciding"),
    (r"queuectl/kinds/", "kinds: reading objects, writing patches"),
    (r"queuectl/ledger/|/asyncpg/|/sqlalchemy/", "ledger: asyncpg, SQLAlchemy"),
    (r"queuectl/kube/|/aiohttp/|/yarl/|/multidict/", "kube: HTTP, TLS, JSON"),
    (r"queuectl/metrics/|/prometheus_client/", "metrics"),
    (r"queuectl/controller/", "controller: loop and lanes"),
    (r"queuectl/api/|/pydantic/", "api: state, documents, answers"),
    (r"queuectl/|benchmarks/", "other code of ours"),
    (r"/asyncio/", "event loop"),
)
_FUNCTIONS: Final = 25


@dataclass(slots=True)
class Samples:
    parts: Counter[str] = field(default_factory=Counter)
    """Samples by the innermost part on the stack."""
    own: Counter[str] = field(default_factory=Counter)
    """Samples by the innermost function."""
    within: Counter[str] = field(default_factory=Counter)
    """Samples by each function on the stack."""
    every: float = _EVERY
    """CPU seconds between two samples."""

    def take(self, _: int, frame: FrameType | None) -> None:
        """A signal handler."""
        part, stack = None, list[str]()
        while frame is not None:
            file = frame.f_code.co_filename
            stack.append(f"{'/'.join(Path(file).parts[-2:])}:{frame.f_code.co_qualname}")
            part = part or next((name for pattern, name in _PARTS if re.search(pattern, file)), None)
            frame = frame.f_back
        self.add(stack, part)

    def add(self, stack: Sequence[str], part: str | None, count: int = 1) -> None:
        """`stack`: functions, innermost first."""
        self.parts[part or "everything else"] += count
        self.own[stack[0] if stack else "unknown"] += count
        for place in set(stack):
            self.within[place] += count

    def details(self, name: str) -> list[Detail]:
        total = self.parts.total()
        by_part = tuple((part, f"{count / total:.0%}") for part, count in self.parts.most_common())
        seconds = f"{name}: where {total * self.every:.1f} s of CPU time went"
        functions = tuple(
            (place, f"{count / total:.1%}", f"{self.within[place] / total:.1%}")
            for place, count in self.own.most_common(_FUNCTIONS)
        )
        within = tuple((p, f"{n / total:.1%}") for p, n in self.within.most_common(2 * _FUNCTIONS))
        return [
            Detail(seconds, ("part", "share"), by_part),
            Detail("functions, by their own share", ("function", "itself", "with what it calls"), functions),
            Detail("functions, with what they call", ("function", "share"), within),
        ]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps([self.parts, self.own, self.within, self.every]))

    @classmethod
    def read(cls, path: Path) -> Samples:
        parts, own, within, every = json.loads(path.read_text())
        return cls(Counter(parts), Counter(own), Counter(within), every)


@contextmanager
def sampled() -> Iterator[Samples]:
    """Profile the main thread of this process in the block."""
    found = Samples()
    before = signal.signal(signal.SIGPROF, found.take)
    signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
    try:
        yield found
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
