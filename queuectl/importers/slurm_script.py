"""Batch scripts of Slurm: what their #SBATCH lines ask for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from queuectl.importers.slurm_values import MIG, BadValue, mebibytes, resource_of, unset, whole

_SHORT: Final = {
    "J": "job-name",
    "G": "gpus",
    "c": "cpus-per-task",
    "t": "time",
    "a": "array",
    "A": "account",
    "p": "partition",
    "q": "qos",
    "n": "ntasks",
    "N": "nodes",
    "o": "output",
    "e": "error",
}
_SAME: Final = {"job-name": "name", "partition": "pool", "qos": "priority", "container-image": "image"}
"""Options whose value is used as it is."""
_ONE: Final = frozenset(("ntasks", "nodes", "ntasks-per-node"))
"""Options that a single pod meets only with the value 1."""
_TIME: Final = re.compile(r"(?:([0-9]{1,5})-)?([0-9]{1,6})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?")
_RANGE: Final = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7})(?::([0-9]{1,7}))?)?")
MOST_TASKS: Final = 1000
"""Of an array."""
MOST_CHARACTERS: Final = 4096
"""Of a line with options: a longer one takes quadratic time."""


class BatchScript(NamedTuple):
    """What a script asks for, by the names of `JobRequest`, and a note for each option without effect."""

    values: Mapping[str, object]
    notes: tuple[str, ...]


def batch_script(text: str, name: str) -> BatchScript:
    """Read the #SBATCH lines before the first command of a script; `name` is for messages.

    Raises BadValue, with the line of an option that a single pod cannot meet or that is malformed.
    """
    values: dict[str, object] = {}
    notes: list[str] = []
    for line, option, value in _options(text, name):
        try:
            found = _value(option, value)
        except BadValue as problem:
            raise BadValue(f"{name}: line {line}: --{option}: {problem}") from None
        if found is None:
            notes.append(f"{name}: line {line}: --{option} has no effect here")
        values |= found or {}
    return BatchScript(values, tuple(notes))


def _options(text: str, name: str) -> Iterator[tuple[int, str, str]]:
    """Line, long name and value of each option."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            return
        if not line.startswith("#SBATCH"):
            continue
        if len(line) > MOST_CHARACTERS:
            raise BadValue(
                f"{name}: line {number}: a line of options has at most {MOST_CHARACTERS} characters, "
                f"and this one {len(line)}"
            )
        try:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        except ValueError:
            raise BadValue(f"{name}: line {number}: a quote is not closed, or nothing follows a \\") from None
        while words:
            word = words.pop(0)
            if word.startswith("--"):
                option, equals, value = word[2:].partition("=")
            else:
                option, value = _SHORT.get(word[1:2], word[1:2]), word[2:]
                equals = value
            if not equals and words and not words[0].startswith("-"):
                value = words.pop(0)
            yield number, option, value


def _value(option: str, value: str) -> Mapping[str, object] | None:
    """None: the option has no effect. Raises BadValue."""
    if option in _SAME:
        return {_SAME[option]: value}
    if option in _ONE:
        if whole(value) != 1:
            raise BadValue(f"{value!r}: one pod is submitted; a PyTorchJob or an Indexed Job has several")
        return {}
    match option:
        case "gpus" | "gpus-per-task" | "gpus-per-node":
            return {"gpus": _gpus(value)}
        case "gres":
            return _gres(value)
        case "cpus-per-task":
            return {"cpus": str(whole(value))}
        case "mem":
            return {"memory": f"{mebibytes(value)}Mi"}
        case "time":
            return {} if unset(value) else {"seconds": seconds(value)}
        case "array":
            indices, percent, most = value.partition("%")
            return {"tasks": tasks(indices)} | ({"max_running": whole(most)} if percent else {})
        case _:
            return None


def _gres(text: str) -> Mapping[str, object] | None:
    names = {part.partition(":")[0] for part in text.split(",")}
    if "gpu" not in names:
        return None
    if more := names - {"gpu"}:
        raise BadValue(f"{text!r}: {', '.join(sorted(more))} cannot be requested, only gpu")
    return {"gpus": _gpus(text.partition(":")[2])}


def _gpus(text: str) -> tuple[str, int]:
    """Resource and number of `8`, `a100:8` or none, which is 1."""
    kind, colon, count = text.rpartition(":")
    if not colon and text and not text[0].isdigit():
        kind, count = text, "1"
    resource = resource_of(kind)
    if resource.startswith(MIG) and not count:
        count = "1"
    return resource, whole(count or "1")


def seconds(text: str) -> int:
    """A time limit: `30` (minutes), `30:00`, `12:00:00`, `2-0`, `2-12:00`. Raises BadValue."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise BadValue(f"{text!r} is not a time limit such as 90, 12:00:00 or 2-12:00")
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes, last = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, last = parts
    else:
        hours, (minutes, last) = 0, (*parts, 0)[:2]
    total = int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + last
    if not total:
        raise BadValue(f"{text!r}: a time limit is longer than nothing")
    return total


def tasks(text: str) -> tuple[int, ...]:
    """Indices of an array: `0-29`, `1,3,7`, `0-30:10`. Raises BadValue."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or match[3] == "0":
            raise BadValue(f"{text!r} is not a list of indices such as 0-29 or 1,3,7")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + MOST_TASKS * int(match[3] or 1):
            raise BadValue(f"{part!r}: ranges rise, and an array has at most {MOST_TASKS} tasks")
        found.update(range(first, last + 1, int(match[3] or 1)))
    if len(found) > MOST_TASKS:
        raise BadValue(f"{text!r}: an array has at most {MOST_TASKS} tasks, this one {len(found)}")
    return tuple(sorted(found))
