"""Server-side apply. Only applied fields have an owner: other writes change them without a conflict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from queuectl.kubernetes_yaml import BadYaml, load
from queuectl.sandbox.kubernetes.patches import merge, merge_key
from queuectl.sandbox.kubernetes.resources import ServedKind
from queuectl.sandbox.kubernetes.wire import Json, Request, StatusError

MEDIA = "application/apply-patch+yaml"
_UNOWNED = {("f:apiVersion",), ("f:kind",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace")}
Path = tuple[str, ...]
"""Steps of a field as in managedFields: `f:name`, `k:{"name":"a"}` and `.` for the item itself."""


@dataclass(frozen=True, slots=True)
class Apply:
    """One request of a manager. `merge` makes the new object."""

    kind: ServedKind
    config: Json
    manager: str
    force: bool
    subresource: str
    now: str
    """Time of the entry, as in metadata."""

    @classmethod
    def of(cls, kind: ServedKind, request: Request, subresource: str, now: str) -> Apply:
        """Raises StatusError 400 or 422."""
        try:
            config = next((content for content, _ in load(request.body)), None)
        except BadYaml as error:
            raise StatusError(400, f"error decoding YAML: line {error.line}: {error}") from None
        if not isinstance(config, dict) or not isinstance(config.setdefault("metadata", {}), dict):
            raise StatusError(400, "the object provided is not an object with metadata")
        if not (manager := request.query.get("fieldManager", "")):
            raise StatusError(422, "fieldManager: Required value: is required for apply patch")
        if config["metadata"].get("managedFields"):
            raise StatusError(400, "metadata.managedFields must be nil")
        return cls(kind, config, manager, request.query.get("force") == "true", subresource, now)

    def created(self, name: str) -> Json:
        """A new object of this configuration."""
        self.config["metadata"].setdefault("name", name)
        return self.merge({"metadata": {}})

    def merge(self, current: Json) -> Json:
        """The current object with this configuration; `current` is changed. Raises StatusError 409."""
        entries = [e for e in current["metadata"].get("managedFields") or () if isinstance(e, dict)]
        mine = next(filter(self._is_mine, entries), None)
        others = [e for e in entries if e is not mine and e.get("operation") == "Apply"]
        wanted = set(_fields(self.kind, "", self.config)) - _UNOWNED
        self._take(current, wanted, others)
        owned = {path for entry in others for path in _read(entry)}
        merged = merge(current, orjson.loads(orjson.dumps(self.config)), strategic=not self.kind.custom)
        for path in sorted(_read(mine) - wanted - owned if mine else (), key=lambda path: path[-1] != "."):
            _remove(merged, path)
        rest = [e for e in entries if e is not mine]
        merged["metadata"]["managedFields"] = [*rest, self._entry(mine, wanted)]
        return merged

    def _is_mine(self, entry: Json) -> bool:
        found = (entry.get("manager"), entry.get("operation"), entry.get("subresource") or "")
        return found == (self.manager, "Apply", self.subresource)

    def _entry(self, before: Json | None, wanted: set[Path]) -> Json:
        if before is not None and _read(before) == wanted:
            return before
        entry = {"manager": self.manager, "operation": "Apply", "apiVersion": self.kind.api_version}
        where = {"subresource": self.subresource} if self.subresource else {}
        return {**entry, **where, "time": self.now, "fieldsType": "FieldsV1", "fieldsV1": _nested(wanted)}

    def _take(self, current: Json, wanted: set[Path], others: list[Json]) -> None:
        """Refuse to change a field of another manager, or take it from that one."""
        causes = []
        for entry in others:
            taken = {p for p in _read(entry) & wanted if _at(current, p) != _at(self.config, p)}
            if taken and self.force:
                entry["fieldsV1"] = _nested(_read(entry) - taken)
            message = f'conflict with "{entry.get("manager")}"'
            causes += [
                {"reason": "FieldManagerConflict", "message": message, "field": _shown(path)}
                for path in sorted(taken)
            ]
        if causes and not self.force:
            count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
            found = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
            raise StatusError(409, f"Apply failed with {count}: {found}", details={"causes": causes})


def _fields(kind: ServedKind, name: str, value: Any) -> Iterator[Path]:
    """The fields of a configuration."""
    if isinstance(value, dict) and value:
        for field, below in value.items():
            for path in _fields(kind, field, below):
                yield (f"f:{field}", *path)
        return
    key = merge_key(name, value) if isinstance(value, list) and not kind.custom else None
    if key is None or not all(isinstance(item, dict) and key in item for item in value):
        yield ()
        return
    for item in value:
        step = "k:" + orjson.dumps({key: item[key]}).decode()
        yield (step, ".")
        for path in _fields(kind, "", item):
            yield (step, *path)


def _read(entry: Json) -> set[Path]:
    def leaves(fields: object, before: Path) -> Iterator[Path]:
        if isinstance(fields, dict) and fields:
            for step, below in fields.items():
                yield from leaves(below, (*before, step))
        elif before:
            yield before

    return set(leaves(entry.get("fieldsV1"), ()))


def _nested(paths: set[Path]) -> Json:
    fields: Json = {}
    for path in sorted(paths):
        below = fields
        for step in path:
            below = below.setdefault(step, {})
    return fields


def _shown(path: Path) -> str:
    steps = (f".{step[2:]}" if step[:2] == "f:" else f"[{step[2:]}]" for step in path if step != ".")
    return "".join(steps)


def _at(obj: Any, path: Path) -> Any:
    """The value of a field; True for an item that is there, None for what is not."""
    for step in path:
        if step == ".":
            return obj is not None
        obj = _item(obj, step) if step[:2] == "k:" else obj.get(step[2:]) if isinstance(obj, dict) else None
    return obj


def _item(items: object, step: str) -> Any:
    ((key, value),) = orjson.loads(step[2:]).items()
    found = items if isinstance(items, list) else []
    return next((item for item in found if isinstance(item, dict) and item.get(key) == value), None)


def _remove(obj: Any, path: Path) -> None:
    """Drop a field, and what is empty without it."""
    step, rest = path[0], path[1:]
    if step[:2] == "k:":
        item = _item(obj, step)
        if rest == (".",) and item is not None:
            obj.remove(item)
        elif item is not None:
            _remove(item, rest)
    elif isinstance(obj, dict) and (name := step[2:]) in obj:
        if rest:
            _remove(obj[name], rest)
        if not rest or obj[name] in ({}, []):
            del obj[name]
