"""Query parameters: all are validated here before any data is read."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from queuectl.api.problems import bad_request
from queuectl.core.model import Phase
from queuectl.core.reasons import Code
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.selectors import Selects, label_selector

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
MAX_SEQUENCE: Final = (1 << 63) - 1
MAX_WAIT: Final = 30
MAX_STEPS: Final = 96
MAX_SINCE: Final = 10**10
MAX_SELECTOR: Final = 1024
MAX_NAME: Final = 253
MAX_CURSOR: Final = 512
MAX_FIELDS: Final = 32
MAX_TIME: Final = 40
POSITION: Final = "position"
ORDERS: Final = ("arrival", POSITION)
_FIRST: Final = datetime(1971, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PART: Final = re.compile(r"[-a-z0-9.]+")
_MAC_BYTES: Final = 16

Cursor = list[Any]
"""The position after which a page starts: plain JSON values."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """`parse` takes the text as sent and raises ValueError with what it must be."""

    name: str
    description: str
    schema: Mapping[str, Any]
    parse: Callable[[str], Any]


def is_name(text: str) -> bool:
    """Is it a valid name of a Kubernetes object?"""
    return _NAME.fullmatch(text) is not None


def _whole(text: str, least: int, most: int) -> int:
    digits = len(str(most))
    if not (text.isascii() and text.isdigit() and len(text) <= digits and least <= int(text) <= most):
        raise ValueError(f"a whole number from {least} to {most}")
    return int(text)


def _limit(text: str) -> int:
    return _whole(text, 1, MAX_LIMIT)


def _sequence(text: str) -> int:
    return _whole(text, 0, MAX_SEQUENCE)


def _wait(text: str) -> int:
    return _whole(text, 0, MAX_WAIT)


def _steps(text: str) -> int:
    return _whole(text, 1, MAX_STEPS)


def _since(text: str) -> int:
    return _whole(text, 1, MAX_SINCE)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if len(text) > MAX_TIME or time is None or time.tzinfo is None or not _FIRST < time < _LAST:
        raise ValueError("a time with its zone, such as 2030-01-31T08:00:00Z")
    return time.astimezone(UTC)


def _selector(text: str) -> Selects:
    if len(text) > MAX_SELECTOR:
        raise ValueError(f"a label selector of at most {MAX_SELECTOR} characters")
    try:
        return label_selector(text)
    except ValueError:
        raise ValueError("a label selector such as `team=vision,tier in (a, b),!draft`") from None


def _user(text: str) -> str:
    if not 1 <= len(text) <= MAX_NAME:
        raise ValueError(f"a user name of 1 to {MAX_NAME} characters")
    return text


def _name(text: str) -> str:
    if not is_name(text):
        raise ValueError(
            f"a name of 1 to {MAX_NAME} lower-case letters, digits, '-' and '.' that starts and ends with a "
            "letter or digit"
        )
    return text


def _part(text: str) -> str:
    if not (len(text) <= MAX_NAME and _PART.fullmatch(text)):
        raise ValueError(f"1 to {MAX_NAME} lower-case letters, digits, '-' and '.'")
    return text


def _order(text: str) -> str:
    if text not in ORDERS:
        raise ValueError(f"one of {', '.join(ORDERS)}")
    return text


def _cursor(text: str) -> str:
    if len(text) > MAX_CURSOR:
        raise ValueError(f"the text of `next` in the page before, at most {MAX_CURSOR} characters")
    return text


def _phase(text: str) -> Phase:
    try:
        return Phase(text)
    except ValueError:
        raise ValueError(f"one of {', '.join(Phase)}") from None


def _reason(text: str) -> Code:
    try:
        return Code(text)
    except ValueError:
        raise ValueError(f"one of {', '.join(Code)}") from None


_NAME_SCHEMA: Final = {"type": "string", "maxLength": MAX_NAME, "pattern": f"^{_NAME.pattern}$"}
LIMIT: Final = Parameter(
    "limit",
    "Most items on this page.",
    {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    _limit,
)
NEXT: Final = Parameter(
    "next", "Where the page before ended.", {"type": "string", "maxLength": MAX_CURSOR}, _cursor
)
NAMESPACE: Final = Parameter("namespace", "In this namespace only.", _NAME_SCHEMA, _name)
QUEUE: Final = Parameter("queue", "Of LocalQueues of this name only.", _NAME_SCHEMA, _name)
NAME: Final = Parameter(
    "name",
    "Whose name contains this text.",
    {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": f"^{_PART.pattern}$"},
    _part,
)
CLUSTER_QUEUE: Final = Parameter("clusterqueue", "Of this ClusterQueue only.", _NAME_SCHEMA, _name)
PHASE: Final = Parameter(
    "phase",
    "In this phase only. Without it: all that are not Finished or Deleted. Those two come newest first.",
    {"type": "string", "enum": list(Phase)},
    _phase,
)
ORDER: Final = Parameter(
    "order",
    "`position`: the pending queue of `clusterqueue`, which must be given too, as workloads are admitted "
    "when quota becomes available, without those that have no position. Without it: by first observation.",
    {"type": "string", "enum": list(ORDERS), "default": ORDERS[0]},
    _order,
)
REASON: Final = Parameter("reason", "With this reason only.", {"type": "string", "enum": list(Code)}, _reason)
AFTER: Final = Parameter(
    "after",
    "Only with a sequence above this one. Without it: the newest page.",
    {"type": "integer", "minimum": 0, "maximum": MAX_SEQUENCE},
    _sequence,
)
EPOCH: Final = Parameter(
    "epoch",
    "With `after`: the `epoch` of the answer that it is from. If the ledger was restored from a backup since "
    "then, the answer begins after the last decision that was not lost.",
    {"type": "integer", "minimum": 0, "maximum": MAX_SEQUENCE},
    _sequence,
)
WAIT: Final = Parameter(
    "wait",
    "If there is no such decision yet, wait for one up to this number of seconds.",
    {"type": "integer", "minimum": 0, "maximum": MAX_WAIT, "default": 0},
    _wait,
)
SUBMITTER: Final = Parameter(
    "submitter",
    "Submitted by this user only.",
    {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
    _user,
)
LABELS: Final = Parameter(
    "labelSelector",
    "With these labels only, such as `team=vision,tier in (a, b)`. The labels are those of the last enqueue, "
    "at most 64 of an object.",
    {"type": "string", "maxLength": MAX_SELECTOR},
    _selector,
)
SINCE: Final = Parameter(
    "sinceSeconds",
    "Created in these last seconds only; with `phase=Finished` or `Deleted`: ended in them.",
    {"type": "integer", "minimum": 1, "maximum": MAX_SINCE},
    _since,
)


_TIME_SCHEMA: Final = {"type": "string", "format": "date-time", "maxLength": MAX_TIME}
FROM: Final = Parameter("since", "From this time on.", _TIME_SCHEMA, _time)
UNTIL: Final = Parameter("until", "Up to this time. Without it: up to now.", _TIME_SCHEMA, _time)
STEPS: Final = Parameter(
    "steps",
    "Also for each of this number of equal parts of that time.",
    {"type": "integer", "minimum": 1, "maximum": MAX_STEPS},
    _steps,
)
AS_OF: Final = Parameter(
    "asOf",
    "The state as of this time: after all decisions up to then. Counts of ready pods, and positions where "
    "past usage decides the order, are not known of earlier states; labels are those of today.",
    _TIME_SCHEMA,
    _time,
)


class KnownKinds(Protocol):
    """Those that a path or query may name."""

    def find(self, text: str) -> JobKind | None:
        """The row for a kind, plural or short name, in any case."""

    def of(self, api_version: object, kind: object) -> JobKind | None:
        """The row for a manifest."""

    def known(self) -> str:
        """All names, for messages."""


def kind_parameter(kinds: KnownKinds) -> Parameter:
    def parsed(text: str) -> str:
        row = kinds.find(text)
        if row is None:
            raise ValueError(f"one of {kinds.known()}")
        return row.name

    description = "Of this kind only: its name, plural or short name in any case."
    return Parameter("kind", description, {"type": "string"}, parsed)


def parse(raw: str, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Values by parameter name from the raw query. Raises a 400 that names the parameter."""
    known = {parameter.name: parameter for parameter in parameters}
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except UnicodeDecodeError:
        raise bad_request("the query is not valid UTF-8") from None
    except ValueError:
        raise bad_request(f"the query has more than {MAX_FIELDS} parameters") from None
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known:
            allowed = f"known here: {', '.join(known)}" if known else "none is known here"
            raise bad_request(f"unknown parameter {_shown(name)}; {allowed}")
        if name in values:
            raise bad_request(f"parameter {name} is given twice")
        try:
            values[name] = known[name].parse(text)
        except ValueError as error:
            raise bad_request(f"parameter {name} must be {error}, not {_shown(text)}") from None
    return values


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 40 else f"{text[:40]}...")


class Cursors:
    """Writes and reads the text of `next`: signed, and good only for the same caller, path and filters."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def write(self, position: Cursor, scope: str) -> str:
        body = json.dumps(position, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(body, scope) + body).decode().rstrip("=")

    def read(self, text: str, scope: str) -> Cursor:
        """Raises a 400 for a text that `write` did not make for this scope."""
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        mac, body = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body, scope)):
            raise bad_request(
                "parameter next must be the text of `next` in the page before, with the same filters: "
                "start again without it"
            )
        position: Cursor = json.loads(body)
        return position

    def _mac(self, body: bytes, scope: str) -> bytes:
        text = scope.encode("utf-8", "backslashreplace") + b"\0" + body
        return blake2b(text, key=self._key, digest_size=_MAC_BYTES).digest()
