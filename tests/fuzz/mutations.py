"""Changes real examples at random: objects as JSON values, and bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

NUMBERS: Final = (0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 0.5, -0.0, 1e308, 10**60)
TEXTS: Final = (
    *("", " ", "-1", "0", "1.5", "500m", "1Ki", "NaN", "1e1000000", "9" * 4_000, "1e-99999", "null", "true"),
    *("a\x00b", "\x1b[31m", "\u202egpj", "é" * 300, "../..", "'; drop table", "=1+1", "{{.}}", "${x}"),
    *("x" * 70_000, "2026-13-40T99:99:99Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+14:00"),
    *("In", "Exists", "NoSchedule", "example.com/gpu", "nvidia.com/gpu", "cpu", "pods", "batch/v1", "Job"),
)
_DEEP: Final = json.loads("[" * 60 + "]" * 60)
_TOKENS: Final = (
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\r\n",
        b"\t",
        b"---\n",
        b"...",
        b"%YAML 1.1\n",
    ),
    *(b"&a ", b"*a", b"<<: *a\n", b"!!binary ", b"!!python/object:os.system ", b"{", b"}", b"[", b"]", b": "),
    *(b"? ", b"| \n", b">-\n", b'"', b"'", b"#", b"\\u0000", b"\\ud800", b"1e999", b"-", b"=", b",", b"|"),
    *(b"9" * 5_000, b"[" * 500, b"{a: " * 200, b"# " * 2_000, b"INFINITE", b"[0-99999999]", b"UNLIMITED"),
)


def value(random: Random) -> Any:
    """A value that the place of none expects."""
    plain: tuple[Any, ...] = (None, True, False, [], {}, [None], {"": ""}, {"a": {"b": []}})
    others = (*plain, copy.deepcopy(_DEEP))
    return random.choice((*others, random.choice(NUMBERS), random.choice(TEXTS), random.choice(TEXTS)))


MOST: Final = 20_000
"""Values in one input: the time that a target may take is for so many. A request to the API server has room
for more, of which each costs the same."""
LONGEST: Final = 3 * 2**20
"""Characters of all texts in one input: a request to the API server has room for so many bytes."""


def mutated(random: Random, examples: Sequence[Any]) -> Any:
    """A copy of one of the examples, JSON values, with one to four changes."""
    found = _changed(random, examples)
    while _is_too_large(found):
        found = _changed(random, examples)
    return found


def _is_too_large(found: Any) -> bool:
    values = [holder[key] for holder, key in _places(found)]
    return len(values) > MOST or sum(len(one) for one in values if isinstance(one, str)) > LONGEST


def _changed(random: Random, examples: Sequence[Any]) -> Any:
    found = copy.deepcopy(random.choice(examples))
    for _ in range(random.choice((1, 1, 2, 2, 3, 4))):
        places = list(_places(found))
        if not places:
            return value(random)
        _change(random, *random.choice(places), random.choice(examples))
    return found


def _places(found: Any) -> Iterator[tuple[Any, Any]]:
    """Each container with each of its keys."""
    pending = [found]
    while pending:
        one = pending.pop()
        keys: Any = one if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in list(keys):
            yield one, key
            pending.append(one[key])


def _change(random: Random, holder: Any, key: Any, other: Any) -> None:
    before, kind = holder[key], random.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[str(random.choice(TEXTS))] = holder.pop(key)
    elif kind == 2 and isinstance(before, list):
        holder[key] = before * random.choice((2, 20, 500))
    elif kind == 2 and isinstance(before, dict):
        holder[key] = {**before, **{f"{name}{n}": before[name] for name in before for n in range(20)}}
    elif kind == 3:
        places = list(_places(other))
        if places:
            of, at = random.choice(places)
            holder[key] = copy.deepcopy(of[at])
    elif kind == 4 and isinstance(before, str):
        at = random.randrange(len(before) + 1)
        holder[key] = before[:at] + str(random.choice(TEXTS)) + before[at:]
    elif kind == 5 and isinstance(before, int):
        holder[key] = random.choice((-before, before + 2**31, str(before), before / 3, before * 10**15))
    else:
        holder[key] = value(random)


def mutated_bytes(random: Random, examples: Sequence[bytes]) -> bytes:
    """One of the examples with one to six changes."""
    found = bytearray(random.choice(examples))
    for _ in range(random.randint(1, 6)):
        begin = random.randrange(len(found) + 1)
        end = min(len(found), begin + random.choice((1, 1, 2, 8, 80)))
        match random.randrange(6):
            case 0:
                found[begin:end] = b""
            case 1:
                found[begin:end] = bytes(random.randrange(256) for _ in range(end - begin))
            case 2:
                found[begin:begin] = random.choice(_TOKENS)
            case 3:
                found[begin:end] = found[begin:end] * random.choice((2, 30))
            case 4:
                other = random.choice(examples)
                at = random.randrange(len(other) + 1)
                found[begin:begin] = other[at : at + 120]
            case _:
                found[begin:end] = random.choice(TEXTS).encode("utf-8", "surrogatepass")
    return bytes(found)
