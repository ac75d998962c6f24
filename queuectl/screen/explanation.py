"""The page of one workload: why it is pending, or what it holds. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Final

from rich.text import Text

from queuectl.screen.facts import HIDDEN, Document, Target
from queuectl.screen.text import amount, printable

_LABEL: Final = 14
_LEAST: Final = 20


def explanation(target: Target, document: Document | None, problem: str, width: int) -> list[Text]:
    """`document`: the workload from REST, None before the first answer; `problem`: why there is none."""
    namespace, kind, name = target
    title = Text(printable(f"{kind} {namespace}/{name}"), style="bold cyan")
    if document is None:
        return [title, Text(), Text(printable(problem or "asking…"), style="yellow")]
    try:
        return [title, Text(), *_lines(document, width)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"this is not an answer of queuectl's REST server ({type(error).__name__}: {error})"
        return [title, Text(), Text(printable(problem), style="red")]


def _lines(document: Document, width: int) -> Iterator[Text]:
    for label, text, style in _said(document):
        parts = textwrap.wrap(printable(text), max(_LEAST, width - _LABEL)) or [""]
        for number, part in enumerate(parts):
            line = Text(f"{label if number == 0 else '':<{_LABEL}}", style="bright_black")
            yield line.append(part, style=style or "default")


def _said(document: Document) -> Iterator[tuple[str, str, str]]:
    """Label, text, style."""
    phase = str(document["phase"])
    if document.get("position") is not None:
        phase += f", position {document['position']} of {document.get('line') or '?'}"
    style = {"Pending": "yellow", "Admitted": "green", "Evicting": "red"}.get(document["phase"], "")
    yield "Phase", phase, style
    yield "ClusterQueue", str(document.get("clusterQueue") or "-"), ""
    yield "Queue", f"{document['queue']}, priority {document['priority']}", ""
    by = f" by {document['submitter']}" if document.get("submitter") else ""
    yield "Created", f"{document['createdAt']}{by}", ""
    yield from _podsets(document)
    reason = document.get("reason")
    if reason:
        yield "Reason", reason["message"], "bold"
        for other in reason.get("others") or ():
            yield "Also tried", other["message"], ""
    for holder in document.get("holders") or ():
        yield "Held by", _holder(holder, (reason or {}).get("resource")), ""
    if document.get("help"):
        yield "Would help", document["help"], "green"


def _podsets(document: Document) -> Iterator[tuple[str, str, str]]:
    for pods in document.get("podSets") or ():
        if (pods.get("minCount") or pods["count"]) < pods["count"]:
            yield "Requests", f"{pods['name']}: {pods['count']} pods, at least {pods['minCount']}", ""
    if document.get("admission"):
        yield "Admitted", f"{document.get('admittedAt')}, attempt {document.get('attempt')}", ""
        if document.get("podsReady") is not None:
            yield "Pods", f"{document['podsReady']} of {document.get('pods')} ready", ""
        for pods in document["admission"]["podSets"]:
            yield "Holds", _pods(pods), ""


def _pods(pods: dict[str, Any]) -> str:
    each = ", ".join(
        f"{amount(resource, value)} {resource} of {pods['flavors'].get(resource, '-')}"
        for resource, value in sorted(pods["requests"].items())
    )
    return f"{pods['name']}: {pods['count']} x ({each})"


def _holder(holder: dict[str, Any], resource: str | None) -> str:
    who = HIDDEN
    if holder["name"]:
        who = f"{holder['namespace']}/{holder['kind']}/{holder['name']}"
    return f"{who}: {amount(resource or '', holder['amount'])} since {holder['since']}"
