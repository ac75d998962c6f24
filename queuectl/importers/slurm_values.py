"""Values of Slurm: resources (TRES), memory, GPUs, lists of hosts, and names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

CPU: Final = "cpu"
MEMORY: Final = "memory"
NVIDIA: Final = "nvidia.com/gpu"
AMD: Final = "amd.com/gpu"
_SLICE: Final = re.compile(r"([0-9]+g\.[0-9]+gb)((?:[+.]me)?)", re.IGNORECASE)
"""In the type of a MIG device, such as `a100_1g.5gb`."""
MIG: Final = "nvidia.com/mig-"
"""Begin of the resource of a MIG device, as NVIDIA's device plugin names it with the strategy `mixed`."""

_UNSET: Final = frozenset(
    (
        *("", "n/a", "(null)", "null", "none", "unlimited", "infinite", "no_val", "notset", "unknown"),
        *("-1", "-2", "4294967295", "4294967294", "4294967293"),
        *("18446744073709551615", "18446744073709551614", "18446744073709551613"),
    )
)
"""What Slurm prints for "not set" and "no limit": INFINITE and NO_VAL of each width, or words."""
PARENT: Final = ("parent", str(2**31 - 1))
"""A Fairshare that is the parent's, in words and as Slurm stores it."""

MOST_SHARES: Final = 999_999_999

_MEMORY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)B?")
_MEBIBYTES: Final = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_AMD_TYPE: Final = re.compile(r"mi[0-9]|instinct|radeon", re.IGNORECASE)
_GRES: Final = re.compile(r"(?:[^,(]|\([^)]*\))+")
"""An item of a list such as `gpu:a100:8(S:0,1),mps:100`."""
_GPUS: Final = re.compile(r"gpu(?::((?![0-9]+[KMGTP]?(?:[:(]|$))[^:(),]+))?(?::([0-9]{1,9}))?(?:\([^)]*\))?")
MOST_MEBIBYTES: Final = 2**40
"""Of memory that becomes quota: 1 EiB."""
_MOST: Final = 2**31 - 1


def unset(text: str) -> bool:
    """Whether the value is one of Slurm's for "not set" or "no limit"."""
    return text.strip().lower() in _UNSET


class BadValue(ValueError):
    """The message says what is expected."""


def tres(text: str) -> dict[str, int]:
    """`cpu=64,mem=500G,gres/gpu:a100=8` by name; memory in MiB. What is not set is left out.

    Raises BadValue.
    """
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name or not value:
            raise BadValue(f"{part!r} is not NAME=AMOUNT")
        if not unset(value):
            found[name] = mebibytes(value) if name == "mem" else whole(value)
    return found


def whole(text: str, most: int = _MOST) -> int:
    """Raises BadValue."""
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > most:
        raise BadValue(f"{text!r} is not a whole number of at most {most}")
    return int(text)


def share(text: str) -> int:
    """A weight in fair sharing. Raises BadValue."""
    return whole(text, MOST_SHARES)


def mebibytes(text: str) -> int:
    """Memory as Slurm writes it: in MiB where there is no unit. Raises BadValue."""
    found = _MEMORY.fullmatch(text)
    if found is None or len(text) > 20:
        raise BadValue(f"{text!r} is not memory such as 512000M or 1.5T")
    return round(float(found[1]) * _MEBIBYTES[found[2]])


def gres(text: str) -> dict[str, list[str]]:
    """The items of `Gres=gpu:a100:8(S:0,1),mps:100` by their names, which are `gpu` and `mps`."""
    found: dict[str, list[str]] = {}
    for part in _GRES.findall(text):
        if not unset(part):
            found.setdefault(part.partition(":")[0].partition("(")[0], []).append(part)
    return found


def gres_gpus(text: str) -> dict[str, int]:
    """GPUs by type of a node's `Gres=gpu:a100:8(S:0-1),gpu:4`; an empty type: not named. Raises BadValue."""
    found: dict[str, int] = {}
    for part in gres(text).get("gpu", ()):
        match = _GPUS.fullmatch(part)
        if match is None:
            raise BadValue(f"{part!r} is not GPUs such as gpu:8 or gpu:a100:8")
        kind, count = match.groups()
        found[kind or ""] = found.get(kind or "", 0) + int(count or 1)
    return found


def quota(text: str) -> dict[str, int]:
    """The same as `tres`, where the memory becomes quota. Raises BadValue."""
    found = tres(text)
    quota_memory(found.get("mem", 0))
    return found


def quota_memory(amount: int) -> int:
    """Raises BadValue."""
    if amount > MOST_MEBIBYTES:
        raise BadValue(f"{amount}M of memory are more than {MOST_MEBIBYTES}M (1 EiB)")
    return amount


def gpu_types(amounts: dict[str, int]) -> dict[str, int]:
    """GPUs by type among `tres` of a node; an empty type: those that no type is known of."""
    found = {
        name.partition(":")[2]: amount for name, amount in amounts.items() if name.startswith("gres/gpu:")
    }
    rest = amounts.get("gres/gpu", 0) - sum(found.values())
    return {**found, **({"": rest} if rest > 0 else {})}


def resource_of(gpu_type: str) -> str:
    """The resource that devices of this type are counted as: MIG devices have one for each profile."""
    if found := _SLICE.search(gpu_type):
        return f"{MIG}{found[1].lower()}{'.me' if found[2] else ''}"
    return AMD if _AMD_TYPE.search(gpu_type) else NVIDIA


def limited(name: str, gpu_types: Iterable[str]) -> list[str]:
    """The resources that a limit of Slurm is about, on nodes with GPUs of these types."""
    if name in ("cpu", "mem"):
        return [CPU if name == "cpu" else MEMORY]
    kind, _, gpu = name.partition(":")
    types = set(gpu_types)
    if kind != "gres/gpu" or (gpu and gpu not in types):
        return []
    return sorted({resource_of(one) for one in ([gpu] if gpu else types)})


def quantity(resource: str, amount: int) -> int | str:
    """An amount of Slurm as Kubernetes writes it; memory is in MiB."""
    return f"{amount}Mi" if resource == MEMORY and amount else amount


def hosts(names: Iterable[str]) -> str:
    """Host names as Slurm abbreviates them: `gpu[001-016],login`."""
    numbered = sorted(_split(name) for name in set(names))
    parts = []
    for (prefix, width), group in groupby(numbered, key=lambda one: (one[0], one[1])):
        if width == 0:
            parts.append(prefix)
            continue
        ranges = ranges_of([number for _, _, number in group], width)
        parts.append(f"{prefix}[{ranges}]" if "," in ranges or "-" in ranges else f"{prefix}{ranges}")
    return ",".join(parts)


def _split(name: str) -> tuple[str, int, int]:
    """Prefix, digits and value of the number at the end; 0 digits: there is none."""
    found = re.fullmatch(r"(.*?)([0-9]{1,9})", name)
    return (found[1], len(found[2]), int(found[2])) if found else (name, 0, 0)


def ranges_of(numbers: Iterable[int], width: int = 1) -> str:
    """`1-3,7` for 1, 2, 3 and 7, with leading zeros up to `width`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = (f"{first:0{width}}" + (f"-{last:0{width}}" if last > first else "") for first, last in runs)
    return ",".join(shown)


class SlurmNames:
    """Kubernetes names for names of Slurm: lower case, digits and dashes, unique among those of one kind."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        plain = re.sub(r"[^a-z0-9-]+", "-", name.lower())[:60].strip("-") or "x"
        found, number = plain, 2
        while found in self._taken:
            found, number = f"{plain}-{number}", number + 1
        self._taken.add(found)
        return found
