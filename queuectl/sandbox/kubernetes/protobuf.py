"""Bodies in Kubernetes' protobuf form, which kubectl sends for built-in kinds, as JSON objects."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from queuectl.kubernetes_yaml import load
from queuectl.sandbox.kubernetes.wire import Json, StatusError

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_TABLE = Path(__file__).with_name("protobuf.yaml")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 64


def decode(body: bytes) -> Json:
    """The object in the envelope of the API server. Raises StatusError 400 or 415."""
    if not body.startswith(_MAGIC):
        raise StatusError(
            400, f"the object provided is not protobuf of Kubernetes: it begins with {body[:4]!r}"
        )
    try:
        envelope = dict(_read(body[len(_MAGIC) :]))
        meta = {number: bytes(value).decode() for number, value in _read(envelope.get(1, b""))}
        api_version, kind = meta.get(1, ""), meta.get(2, "")
        message = _message_of(api_version, kind)
        if message not in _table():
            raise StatusError(415, f"{api_version} {kind} is not accepted as protobuf: send application/json")
        found = _message(envelope.get(2, b""), message, 0)
    except (ValueError, IndexError, TypeError, OverflowError, AttributeError) as error:
        raise StatusError(400, f"the object provided is not valid protobuf: {error}") from None
    return {"apiVersion": api_version, "kind": kind, **found}


def _message_of(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return "meta.v1.DeleteOptions"
    group, _, version = api_version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}.{version}.{kind}"


@cache
def _table() -> dict[str, dict[int, tuple[str, str, str]]]:
    """Name, mark (`?`, `[]`, `{}` or none) and type of each field, by message and number."""
    ((raw, _),) = load(_TABLE.read_bytes())
    return {message: {int(n): _field(text) for n, text in fields.items()} for message, fields in raw.items()}


def _field(text: str) -> tuple[str, str, str]:
    name, _, rest = text.partition(" ")
    kind = rest.lstrip("?[]{}")
    return name, rest.removesuffix(kind), kind


def _read(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int, or bytes. Raises ValueError or IndexError."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(wire, -1)
        if size < 0 or at + size > len(data):
            raise ValueError(f"field {number} has wire type {wire} and ends after the message")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _message(data: bytes, message: str, depth: int) -> Json:
    if depth > _MAX_DEPTH:
        raise ValueError(f"messages are nested more than {_MAX_DEPTH} deep")
    found: Json = {}
    fields = _table()[message]
    for number, raw in _read(data):
        if number not in fields:
            continue  # a field of a later release
        name, mark, kind = fields[number]
        if mark == "{}":
            entry = dict(_read(raw))
            key = bytes(entry.get(1, b"")).decode()
            found.setdefault(name, {})[key] = _value(entry.get(2, b""), kind, depth)
            continue
        value = _value(raw, kind, depth)
        if name == ".":
            found |= value
        elif mark == "[]":
            found.setdefault(name, []).append(value)
        elif value is not None and (mark == "?" or value not in ("", 0, {})):
            # What is not a pointer is always sent; its zero means that it is not set.
            found[name] = value
    return found


def _value(raw: Any, kind: str, depth: int) -> Any:
    if read := _FORMS.get(kind):
        return read(raw)
    return _message(raw, kind, depth + 1)


def _signed(raw: int) -> int:
    return raw - (1 << 64) if raw >> 63 else raw


def _time(raw: bytes) -> str | None:
    parts = dict(_read(raw))
    if not parts:
        return None
    moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=_signed(parts.get(1, 0)))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(raw: bytes) -> str | None:
    seconds, nanos = _time(raw), dict(_read(raw)).get(2, 0)
    return seconds and f"{seconds[:-1]}.{nanos // 1000:06}Z"


def _int_or_string(raw: bytes) -> int | str:
    parts = dict(_read(raw))
    return bytes(parts.get(3, b"")).decode() if parts.get(1) else _signed(parts.get(2, 0))


_FORMS: dict[str, Callable[[Any], Any]] = {
    "string": lambda raw: bytes(raw).decode(),
    "bytes": lambda raw: base64.b64encode(raw).decode(),
    "bool": bool,
    "int32": _signed,
    "int64": _signed,
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": lambda raw: bytes(dict(_read(raw)).get(1, b"")).decode(),
    "IntOrString": _int_or_string,
    "FieldsV1": lambda raw: orjson.loads(dict(_read(raw)).get(1, b"{}")),
    "ExtraValue": lambda raw: [value.decode() for number, value in _read(raw) if number == 1],
}
