"""Files of scenario documents, read whole: each document as something to run, or why it is left out.

A file holds one document, a list of them, or several YAML documents. Every mistake is told with its place:
`FILE: line 3, column 5: workloads[0].priority: ...`; nothing is run then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from queuectl.core.events import Event
from queuectl.files import BadFile, documents, place
from queuectl.files import Document as Text
from queuectl.kinds.fields import clean
from queuectl.simulator.checking import problems
from queuectl.simulator.documents import (
    KINDS,
    MODELS,
    Cycle,
    Header,
    Preemption,
    not_understood,
)
from queuectl.simulator.manifests import BadDocument, Manifests, Path, read_manifests

Model = TypeVar("Model", bound=BaseModel)
MOST: Final = 20
"""Mistakes told of one file."""


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
    document: Cycle | Preemption | None = None
    """None: it is left out."""
    policy: tuple[Event, ...] = ()
    """What its objects say."""
    left_out: str = ""
    """Why."""


def read_scenarios(text: bytes, name: str) -> list[Scenario]:
    """All documents of a file with content `text`. Raises BadScenarios with all that is wrong in it."""
    found: list[Scenario] = []
    wrong: list[str] = []
    try:
        for whole in documents(text, name):
            for path, content in _items(whole.content):
                try:
                    found.append(_scenario(text, whole, name, path, content))
                except _Bad as bad:
                    wrong += bad.told(text, whole, name, path)
    except BadFile as error:
        raise BadScenarios([str(error)]) from None
    if wrong:
        more = [f"{name}: {len(wrong) - MOST} more like these"] if len(wrong) > MOST else []
        raise BadScenarios(wrong[:MOST] + more)
    if not found:
        raise BadScenarios([f"{name}: line 1, column 1: there is no document in it"])
    return found


class _Bad(Exception):
    def __init__(self, mistakes: list[tuple[Path, str]]) -> None:
        self.mistakes = mistakes

    def told(self, text: bytes, whole: Text, name: str, start: Path) -> Iterator[str]:
        for path, message in self.mistakes[: MOST + 1]:
            line, column = place(text, whole, (*start, *path))
            shown = f"{_dotted(path)}: " if path else ""
            yield f"{name}: line {line}, column {column}: {shown}{clean(message, 300)}"


def _items(content: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(content, list):
        for number, item in enumerate(content):
            yield (number,), item
    else:
        yield (), content


def _scenario(text: bytes, whole: Text, name: str, path: Path, content: Any) -> Scenario:
    """Raises _Bad."""
    header = _validated(Header, content)
    line, _ = place(text, whole, path) if path else (whole.line, 1)
    if header.tier != "core":
        left_out = f"tier {header.tier} is not there yet"
    elif header.kind not in KINDS:
        left_out = f"documents of kind {header.kind} are not run"
    else:
        document, manifests = _to_run(content, MODELS[header.kind])
        without = [f"{field} is not there yet" for field in not_understood(document)]
        left_out = next(iter((*without, *manifests.without)), "")
        if not left_out:
            return Scenario(file=name, line=line, header=header, document=document, policy=manifests.events)
    return Scenario(file=name, line=line, header=header, left_out=left_out)


def _to_run(content: Any, model: type[Cycle | Preemption]) -> tuple[Cycle | Preemption, Manifests]:
    document = _validated(model, content)
    if mistakes := [(problem.path, str(problem)) for problem in problems(document)]:
        raise _Bad(mistakes)
    try:
        return document, read_manifests(document.objects)
    except BadDocument as problem:
        raise _Bad([(problem.path, str(problem))]) from None


def _validated(model: type[Model], content: Any) -> Model:
    if not isinstance(content, dict):
        raise _Bad([((), f"a document is expected, this is a {type(content).__name__}")])
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _Bad([(one["loc"], _message(one)) for one in error.errors(include_url=False)]) from None


def _message(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such field"
    if error["type"] == "missing":
        return "is missing"
    message = error["msg"].removeprefix("Value error, ")
    value = error["input"]
    shown = repr(value)[:60] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return f"{shown}: {message}"


def _dotted(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return clean(text.removeprefix("."), 200)
