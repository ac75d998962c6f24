"""Reads files of scenario documents: each document either can be run, or has a reason why it is left out.

A file contains one document, a list of them, or several YAML documents. Each error names its place: `FILE:
line 3, column 5: workloads[0].priority: ...`. If there is an error nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from queuectl.core.model.events import Event
from queuectl.files import BadFile, Places, documents
from queuectl.kinds.invalid import dotted, problems_of, shown
from queuectl.kinds.json_fields import clean, kind_of
from queuectl.scenarios.checks import problems
from queuectl.scenarios.documents import KINDS, Cycle, Header, ScenarioDocument
from queuectl.scenarios.manifests import BadDocument, Manifests, Path, concerns, read_manifests
from queuectl.scenarios.node_checks import node_problems

Model = TypeVar("Model", bound=BaseModel)
_MODELS: Final = {"cycle": Cycle}
MOST: Final = 20
"""Errors reported per file, at most."""


class BadScenarios(ValueError):
    """`problems`: one line each, with file, line and column."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One document of a file."""

    file: str
    line: int
    header: Header
    document: ScenarioDocument | None = None
    """None: the document is left out."""
    policy: tuple[Event, ...] = ()
    """Events of its objects."""
    left_out: str = ""
    """Why."""


def read_policy(text: bytes, name: str) -> Manifests:
    """Manifests of a file with content `text`; other kinds are ignored. Raises BadScenarios."""
    found = Manifests()
    wrong: list[str] = []
    try:
        for whole in documents(text, name):
            places = Places(text, whole)
            for path, obj in _manifests(whole.content):
                try:
                    if not isinstance(obj, dict):
                        raise BadDocument(("objects", 0), "a manifest is expected")
                    found = found.under(read_manifests([obj]))
                except BadDocument as problem:
                    own = BadDocument(problem.path[2:], str(problem))
                    wrong += _Bad([own]).told(places, name, path)
    except BadFile as error:
        raise BadScenarios([str(error)]) from None
    if wrong:
        raise BadScenarios(wrong)
    return found


def _manifests(content: Any) -> Iterator[tuple[Path, Any]]:
    start: Path = ()
    if isinstance(content, dict) and isinstance(content.get("items"), list):
        start, content = ("items",), content["items"]
    for path, obj in _items(content):
        if concerns(obj):
            yield (*start, *path), obj


def read_scenarios(
    text: bytes,
    name: str,
    policy: Manifests = Manifests(),  # noqa: B008
    models: Mapping[str, type[ScenarioDocument]] = _MODELS,
) -> list[Scenario]:
    """All documents of a file with content `text`, on top of `policy`. A kind not in `models` is left out.

    Raises BadScenarios with all errors in it.
    """
    found: list[Scenario] = []
    wrong: list[str] = []
    try:
        for whole in documents(text, name):
            places = Places(text, whole)
            for path, content in _items(whole.content):
                line = places.of(path)[0] if path else whole.line
                try:
                    found.append(_scenario(name, line, content, policy, models))
                except _Bad as bad:
                    wrong += bad.told(places, name, path)
    except BadFile as error:
        raise BadScenarios([str(error)]) from None
    if wrong:
        more = [f"{name}: {len(wrong) - MOST} more like these"] if len(wrong) > MOST else []
        raise BadScenarios(wrong[:MOST] + more)
    if not found:
        raise BadScenarios([f"{name}: line 1, column 1: there is no document in it"])
    return found


class _Bad(Exception):
    """All errors in one document."""

    def __init__(self, mistakes: list[BadDocument]) -> None:
        self.mistakes = mistakes

    def told(self, places: Places, name: str, start: Path) -> Iterator[str]:
        placed = [(places.of((*start, *one.path)), one) for one in self.mistakes]
        for (line, column), one in sorted(placed, key=lambda pair: pair[0]):
            field = f"{dotted(one.path)}: " if one.path else ""
            yield f"{name}: line {line}, column {column}: {field}{clean(str(one), 300)}"


def _refuse(mistakes: Iterable[BadDocument]) -> None:
    """Raises _Bad if there are any."""
    if found := list(mistakes):
        raise _Bad(found)


def _items(content: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(content, list):
        for number, item in enumerate(content):
            yield (number,), item
    else:
        yield (), content


def _scenario(
    name: str, line: int, content: Any, policy: Manifests, models: Mapping[str, type[ScenarioDocument]]
) -> Scenario:
    """Raises _Bad."""
    header = _validated(Header, content)
    if header.kind not in KINDS:
        known = " or ".join(map(repr, models))
        raise _Bad([BadDocument(("kind",), f"{shown(header.kind)}: must be {known}")])
    if header.kind not in models:
        left_out = f"documents of kind {header.kind} are not run"
    else:
        document, own = _to_run(content, models[header.kind])
        named = {name for node in document.nodes for name in node.names}
        manifests = policy.under(own).without_nodes(named)
        _refuse(node_problems(document, manifests.node_names))
        if not manifests.without:
            return Scenario(file=name, line=line, header=header, document=document, policy=manifests.events)
        left_out = manifests.without[0]
    return Scenario(file=name, line=line, header=header, left_out=left_out)


def _to_run(content: Any, model: type[ScenarioDocument]) -> tuple[ScenarioDocument, Manifests]:
    document = _validated(model, content)
    _refuse(problems(document))
    try:
        return document, read_manifests(document.objects)
    except BadDocument as problem:
        raise _Bad([problem]) from None


def _validated(model: type[Model], content: Any) -> Model:
    if not isinstance(content, dict):
        raise _Bad([BadDocument((), f"a document is expected, this is {kind_of(content)}")])
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _Bad([BadDocument(one.path, one.text) for one in problems_of(error)]) from None
