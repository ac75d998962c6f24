"""The cost of processes, by /proc, and a description of this machine."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024


class NoProcess(Exception):
    """The process has ended, or never existed."""


def cpu_seconds(pid: int, *, family: bool = False) -> float:
    """CPU seconds of a process in user and system mode; `family`: its children too, alive or ended.

    Ticks are of 10 ms: measure over seconds.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise NoProcess(f"process {pid} has ended") from None
    user, system, waited_user, waited_system = (int(field) for field in fields[11:15])
    if not family:
        return (user + system) * _TICK
    total = (user + system + waited_user + waited_system) * _TICK
    for child in children(pid):
        with contextlib.suppress(NoProcess):
            total += cpu_seconds(child, family=True)
    return total


def memory(pid: int) -> tuple[int, int]:
    """Bytes of physical memory of one process: now, and at the peak."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found[name] = int(value.split()[0]) * _KIB
    return found["VmRSS"], found["VmHWM"]


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def child_named(name: str) -> int:
    """The process id of a program that this process started. Raises NoProcess."""
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name[:15]:
                return pid
    raise NoProcess(f"no {name} was started here")


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder for the block, accessible to the account of Postgres too."""
    with tempfile.TemporaryDirectory(prefix="queuectl-bench-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


class Busy(NamedTuple):
    """CPU seconds of all cores since the machine started."""

    used: float
    stolen: float
    """CPU seconds stolen by other guests of the same host."""

    def since(self, before: Busy) -> Busy:
        return Busy(self.used - before.used, self.stolen - before.stolen)


def busy() -> Busy:
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _waiting, irq, softirq, stolen = fields
    return Busy((user + nice + system + irq + softirq) * _TICK, stolen * _TICK)


def described() -> dict[str, str | float]:
    cores = os.cpu_count() or 1
    model = "unknown"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        model = next(named, model)
    return {
        "processor": model,
        "cores": cores,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load at the start": round(os.getloadavg()[0], 2),
    }
