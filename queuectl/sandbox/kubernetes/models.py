"""Schemas of built-in kinds with a description of each field, from the models of kubernetes_asyncio.

Their source is read, not imported: an import of one loads 1,500 modules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from queuectl.sandbox.kubernetes.resources import Kind
from queuectl.sandbox.kubernetes.wire import Json

OBJECT_META = "V1ObjectMeta"
_TABLE = r"^    {} = (\{{.*?^    \}})"
_TYPES = re.compile(_TABLE.format("openapi_types"), re.DOTALL | re.MULTILINE)
_NAMES = re.compile(_TABLE.format("attribute_map"), re.DOTALL | re.MULTILINE)
_DOC = re.compile(r'def (\w+)\(self\):\n        """Gets the .*?\n\n        (.*?)  # noqa', re.DOTALL)
_REQUIRED = re.compile(r"Invalid value for `(\w+)`, must not be `None`")
_WORDS = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CONTAINER = re.compile(r"(list\[|dict\(str, |dict\[str, )(.*)[\])]")
_PLAIN: dict[str, Json] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "object": {"type": "object"},
}


def name_of(kind: Kind) -> str:
    """The model of a kind: V1Job. Two groups have Events."""
    prefix = {"": "Core", "events.k8s.io": "Events"}[kind.group] if kind.kind == "Event" else ""
    return f"{prefix}{kind.version.capitalize()}{kind.kind}"


def reference(model: str) -> Json:
    """A schema that is that of a model."""
    return {"allOf": [{"$ref": f"#/components/schemas/{component(model)}"}]}


def component(model: str) -> str:
    """Its name in a document: kubectl prints what follows the dot."""
    return model.replace("V1", "v1.", 1)


def with_references(*models: str) -> dict[str, Json]:
    """Schemas of these models and of all that they refer to, by name of the component."""
    found: dict[str, Json] = {}
    waiting = list(models)
    while waiting:
        name = waiting.pop()
        if component(name) not in found:
            found[component(name)], references = _schema(name)
            waiting += references
    return found


@cache
def _schema(name: str) -> tuple[Json, tuple[str, ...]]:
    """The schema of a model, and the models that it refers to. Without a model: any object."""
    path = _folder() / f"{_WORDS.sub('_', name).lower()}.py"
    if not path.exists():
        return {"type": "object"}, ()
    source = path.read_text(encoding="utf-8")
    types, names = (dict(_literal(pattern, source)) for pattern in (_TYPES, _NAMES))
    docs = dict(_DOC.findall(source))
    references: list[str] = []
    properties = {
        names[field]: _typed(kind, references) | {"description": docs.get(field, "").replace('\\"', '"')}
        for field, kind in types.items()
    }
    required = [names[field] for field in dict.fromkeys(_REQUIRED.findall(source))]
    schema = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    return schema, tuple(references)


def _literal(pattern: re.Pattern[str], source: str) -> Iterator[tuple[str, str]]:
    table = pattern.search(source)
    yield from ast.literal_eval(table[1]).items() if table else ()


def _typed(kind: str, references: list[str]) -> Json:
    if nested := _CONTAINER.fullmatch(kind):
        below = _typed(nested[2], references)
        if nested[1] == "list[":
            return {"type": "array", "items": below}
        return {"type": "object", "additionalProperties": below}
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    references.append(kind)
    return reference(kind)


@cache
def _folder() -> Path:
    """Raises ModuleNotFoundError."""
    spec = find_spec("kubernetes_asyncio")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("kubernetes_asyncio is not installed", name="kubernetes_asyncio")
    return Path(spec.submodule_search_locations[0], "client", "models")
