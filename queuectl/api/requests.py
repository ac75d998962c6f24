"""What a client asks: parameters, validated before any data is read, its rights, and the endpoint."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Annotated, Any, Final, Literal, Protocol, TypedDict, TypeVar, Unpack
from urllib.parse import parse_qsl

from aiohttp import web
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, TypeAdapter, ValidationError

from queuectl.api import schemas
from queuectl.api.http import bad_request
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Phase
from queuectl.files import BadFile, documents, json_value, listed
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.selectors import Selects, label_selector

WORKLOADS: Final = "workloads"
"""A virtual resource: there are no such objects, but RBAC may grant verbs on them."""
LOCAL_QUEUES: Final = "localqueues"
CLUSTER_QUEUES: Final = "clusterqueues"
COHORTS: Final = "cohorts"
FLAVORS: Final = "resourceflavors"

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
MAX_SEQUENCE: Final = (1 << 63) - 1
MAX_WAIT: Final = 30
MAX_STEPS: Final = 96
MAX_SINCE: Final = 10**10
MAX_SELECTOR: Final = 1024
MAX_NAME: Final = 253
MAX_CURSOR: Final = 2048
"""A name of 253 characters may have 1,012 bytes."""
MAX_FIELDS: Final = 32
MAX_TIME: Final = 40
_FIRST: Final = datetime(1971, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MAC_BYTES: Final = 16

Cursor = list[Any]
"""The position after which a page starts: plain JSON values."""


class Parameter:
    """One row of the table: what its type says is how a text is parsed, and what the OpenAPI document has."""

    def __init__(self, name: str, kind: Any, description: str, must_be: str = "", **schema: Any) -> None:
        """`kind`: what a TypeAdapter takes. `must_be`: for errors of the type itself; empty: made from its
        schema. `schema`: fields beside those of the type, such as a default.
        """
        self.name = name
        self.description = description
        self._type: TypeAdapter[Any] = TypeAdapter(kind)
        of_type = self._type.json_schema()
        shown = ("type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern")
        self.schema: Mapping[str, Any] = {key: of_type[key] for key in shown if key in of_type} | schema
        self._must_be = must_be or _must_be(self.schema)

    def parse(self, text: str) -> Any:
        """Raises ValueError with what the text must be."""
        try:
            return self._type.validate_python(text)
        except ValidationError as error:
            problem = error.errors()[0].get("ctx", {}).get("error", "")  # of a validator of this module
            raise ValueError(str(problem) or self._must_be) from None


def _must_be(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema["type"] == "integer":
        return f"a whole number from {schema['minimum']} to {schema['maximum']}"
    return "a text"


def is_name(text: str) -> bool:
    """Is it a valid name of a Kubernetes object?"""
    return _NAME.fullmatch(text) is not None


def is_workload_name(text: str) -> bool:
    """The same, or the name of a pod group, which is the value of a label?"""
    return is_name(text) or _LABEL_VALUE.fullmatch(text) is not None


def _digits(text: str) -> str:
    """Pydantic takes signs, spaces and digits of other scripts too."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError
    return text


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


def _whole(least: int, most: int) -> Any:
    return Annotated[int, Field(ge=least, le=most), BeforeValidator(_digits)]


_A_NAME: Final = Annotated[str, Field(max_length=MAX_NAME, pattern=f"^{_NAME.pattern}$")]
_NAME_RULE: Final = (
    f"a name of 1 to {MAX_NAME} lower-case letters, digits, '-' and '.' that starts and ends with a "
    "letter or digit"
)
_A_TIME: Final = Annotated[datetime, PlainValidator(_time, json_schema_input_type=datetime)]

LIMIT: Final = Parameter("limit", _whole(1, MAX_LIMIT), "Most items on this page.", default=DEFAULT_LIMIT)
NEXT: Final = Parameter(
    "next",
    Annotated[str, Field(max_length=MAX_CURSOR)],
    "Where the page before ended.",
    f"the text of `next` in the page before, at most {MAX_CURSOR} characters",
)
NAMESPACE: Final = Parameter("namespace", _A_NAME, "In this namespace only.", _NAME_RULE)
QUEUE: Final = Parameter("queue", _A_NAME, "Of LocalQueues of this name only.", _NAME_RULE)
NAME: Final = Parameter(
    "name",
    Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern="^[-A-Za-z0-9_.]+$")],
    "Whose name contains this text, in any case.",
    f"1 to {MAX_NAME} letters, digits, '-', '_' and '.'",
)
CLUSTER_QUEUE: Final = Parameter("clusterqueue", _A_NAME, "Of this ClusterQueue only.", _NAME_RULE)
PHASE: Final = Parameter(
    "phase",
    Phase,
    "In this phase only. Without it: all that are not Finished or Deleted. Those two come newest first.",
)
ORDER: Final = Parameter(
    "order",
    Literal["arrival", "position", "newest", "priority", "devices", "name", "submitter"],
    "`position`: the pending queue of `clusterqueue`, which must be given too, as workloads are admitted "
    "when quota becomes available, without those that have no position. `priority`, `devices`: the most "
    "first. Without it: by first observation, as are equal ones. Those that are over: always newest first.",
    default="arrival",
)
REASON: Final = Parameter("reason", Code, "With this reason only.")
AFTER: Final = Parameter(
    "after",
    _whole(0, MAX_SEQUENCE),
    "Only with a sequence above this one. Without it: the newest page.",
)
EPOCH: Final = Parameter(
    "epoch",
    _whole(0, MAX_SEQUENCE),
    "With `after`: the `epoch` of the answer that it is from. If the ledger was restored from a backup since "
    "then, the answer begins after the last decision that was not lost.",
)
WAIT: Final = Parameter(
    "wait",
    _whole(0, MAX_WAIT),
    "If there is no such decision yet, wait for one up to this number of seconds.",
    default=0,
)
CALLER: Final = "@me"
"""In the place of a user's name."""
SUBMITTER: Final = Parameter(
    "submitter",
    Annotated[str, Field(min_length=1, max_length=MAX_NAME)],
    f"Submitted by this user only; `{CALLER}`: by the caller.",
    f"a user name of 1 to {MAX_NAME} characters",
)
LABELS: Final = Parameter(
    "labelSelector",
    Annotated[Selects, PlainValidator(_selector, json_schema_input_type=str)],
    "With these labels only, such as `team=vision,tier in (a, b)`. The labels are those of the last enqueue, "
    "at most 64 of an object.",
    maxLength=MAX_SELECTOR,
)
SINCE: Final = Parameter(
    "sinceSeconds",
    _whole(1, MAX_SINCE),
    "Created in these last seconds only; with `phase=Finished` or `Deleted`: ended in them.",
)
FROM: Final = Parameter("since", _A_TIME, "From this time on.", maxLength=MAX_TIME)
UNTIL: Final = Parameter("until", _A_TIME, "Up to this time. Without it: up to now.", maxLength=MAX_TIME)
STEPS: Final = Parameter(
    "steps", _whole(1, MAX_STEPS), "Also for each of this number of equal parts of that time."
)
AS_OF: Final = Parameter(
    "asOf",
    _A_TIME,
    "The state as of this time: after all decisions up to then. Counts of ready pods, and positions where "
    "past usage decides the order, are not known of earlier states; labels are those of today.",
    maxLength=MAX_TIME,
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
    def name(text: str) -> str:
        row = kinds.find(text)
        if row is None:
            raise ValueError(f"one of {kinds.known()}")
        return row.name

    return Parameter(
        "kind",
        Annotated[str, AfterValidator(name)],
        "Of this kind only: its name, plural or short name in any case.",
    )


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
        body = json.dumps(position, separators=(",", ":"), ensure_ascii=False).encode()
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


# --- callers


@dataclass(frozen=True, slots=True)
class Allowed:
    """Names or namespaces that may be read."""

    names: frozenset[str] | None
    """None: all."""

    def __contains__(self, name: object) -> bool:
        return self.names is None or name in self.names


ALL: Final = Allowed(None)


class Caller(Protocol):
    """The rights of one identity, by verbs and resources of RBAC. Raises Refusal if they are unknown."""

    @property
    def name(self) -> str:
        """Unique and stable for each caller."""

    @property
    def tenant(self) -> str:
        """What requests in work are counted by: one for all service accounts of a namespace, else `name`."""

    @property
    def user(self) -> str | None:
        """Its name in the cluster; None: callers are not authenticated."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Its groups, without those of Kubernetes, `system:*`."""

    @property
    def limited(self) -> bool:
        """Do the limits of rates and of requests in work apply to this caller?"""

    async def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        """Empty: everywhere, everything."""

    async def namespaces(self, verb: str, resource: str, among: Iterable[str]) -> Allowed:
        """Those of `among` where the caller has this right."""

    async def names(self, resource: str, among: Iterable[str]) -> Allowed:
        """Those of `among`, of a cluster-scoped resource, that the caller may get."""


class Identify(Protocol):
    async def __call__(self, request: web.Request) -> Caller:
        """Raises Refusal."""


@dataclass(frozen=True, slots=True)
class Unrestricted:
    """Any client on a loopback address without authentication."""

    name: str = "local"
    tenant: str = "local"
    user: str | None = None
    groups: tuple[str, ...] = ()
    limited: bool = False

    async def may(self, verb: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return True

    async def namespaces(self, verb: str, resource: str, among: Iterable[str]) -> Allowed:
        return ALL

    async def names(self, resource: str, among: Iterable[str]) -> Allowed:
        return ALL


async def unrestricted(request: web.Request) -> Caller:
    return Unrestricted()


@dataclass(frozen=True, slots=True)
class Question:
    caller: Caller
    path: Mapping[str, str]
    values: Mapping[str, Any]
    """Query parameters, parsed."""
    scope: str
    """A cursor is valid for the same scope only."""
    again: Callable[[], Awaitable[Caller]]
    """Authenticates the caller again: the token may have been revoked during a wait. Raises Refusal."""
    waiting: Callable[[], AbstractContextManager[None]] = field(default=nullcontext)
    """Held while the request waits for changes. Raises Refusal."""
    gone: Callable[[], bool] = field(default=lambda: False)
    """Has the client closed the connection?"""
    body: bytes = b""
    yaml: bool = False
    """The body is YAML, not JSON."""
    token: str | None = field(default=None, repr=False)
    """The caller's, for an endpoint that changes something."""

    @property
    def limit(self) -> int:
        return int(self.values.get("limit", DEFAULT_LIMIT))


def _light(values: Mapping[str, Any]) -> bool:
    return "asOf" in values


def always(values: Mapping[str, Any]) -> bool:
    """For `Endpoint.heavy`."""
    return True


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the table of paths."""

    path: str
    summary: str
    answer: Answer
    model: type[schemas.Committed]
    parameters: tuple[Parameter, ...] = ()
    heavy: Callable[[Mapping[str, Any]], bool] = _light
    """Do these parameters make it read the ledger's history?"""
    notes: str = ""
    """Further text for the OpenAPI document."""
    body: int = 0
    """It is a POST with a JSON body of at most so many bytes; 0: a GET without one."""
    yaml: int = 0
    """The body may be YAML of at most so many bytes."""
    changes: bool = False
    """It changes an object, for a request that no page of another server can send."""


Method = TypeVar("Method", bound=Callable[..., Awaitable[schemas.Committed]])
Answer = Callable[[Question], Awaitable[schemas.Committed]]
_ROWS: Final[dict[Callable[..., Any], Callable[[Answer, KnownKinds], Endpoint]]] = {}
"""By method of a class of routes."""


class _Bytes(TypedDict, total=False):
    body: int
    yaml: int


def endpoint(
    path: str,
    summary: str,
    model: type[schemas.Committed],
    parameters: Iterable[Parameter | Callable[[KnownKinds], Parameter]] = (),
    *,
    heavy: Callable[[Mapping[str, Any]], bool] = _light,
    notes: str = "",
    **most: Unpack[_Bytes],
) -> Callable[[Method], Method]:
    """Decorates the method that answers this path, with the fields of its Endpoint."""

    def row(answer: Answer, kinds: KnownKinds) -> Endpoint:
        found = tuple(one if isinstance(one, Parameter) else one(kinds) for one in parameters)
        return Endpoint(path, summary, answer, model, found, heavy, notes, **most)

    def note(method: Method) -> Method:
        _ROWS[method] = row
        return method

    return note


def endpoints_of(routes: object, kinds: KnownKinds) -> Iterator[Endpoint]:
    """Those of the methods of `routes`, in their order."""
    for name, method in vars(type(routes)).items():
        if method in _ROWS:
            yield _ROWS[method](getattr(routes, name), kinds)


# --- bodies


async def one_object(question: Question) -> dict[str, Any]:
    """The only object in the body. Raises a 400 that names the place of an error."""
    if not question.yaml:
        return await _json(question.body)
    objects = await _yaml(question.body)
    if len(objects) != 1:
        raise bad_request(f"the body must have one object, and has {len(objects)}")
    if not isinstance(objects[0], dict):
        raise bad_request("the body must be one YAML object")
    return objects[0]


async def policy_objects(question: Question) -> dict[str, Any]:
    """`{objects: [...], deleted: [...]}`; YAML has the objects only. Raises a 400."""
    if not question.yaml:
        return await _json(question.body)
    return {"objects": await _yaml(question.body)}


async def _json(body: bytes) -> dict[str, Any]:
    """On a thread, as YAML."""
    content = await asyncio.to_thread(_parsed, body)
    if not isinstance(content, dict):
        raise bad_request("the body must be one JSON object")
    return content


def _parsed(body: bytes) -> Any:
    try:
        return json_value(body)
    except ValueError as problem:
        raise bad_request(f"the body: {problem}") from None


async def _yaml(body: bytes) -> list[Any]:
    """All objects, those of a `List` too. Parsed on a thread: other requests are answered meanwhile."""
    return await asyncio.to_thread(_objects, body)


def _objects(body: bytes) -> list[Any]:
    try:
        parsed = documents(body, "body")
    except BadFile as problem:
        raise bad_request(str(problem)) from None
    objects = [one for document in parsed for one in listed(document.content)]
    # Dates of YAML are texts in the objects of Kubernetes.
    return list(json.loads(json.dumps(objects, default=str)))
