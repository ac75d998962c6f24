"""The manifests that name kinds of jobs, made from a registry: policies, webhook rules, rights.

Each file is a template with `@{NAME}` where something depends on the kinds. A name on a line of its own
stands for several lines.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from queuectl.kinds.gate_rules import (
    asked,
    by_controller_of_owner,
    by_kind,
    counted,
    ended,
    fixed,
    kept,
    parts,
    refused,
    suspend,
    suspend_applied,
    template_annotations,
    templates,
)
from queuectl.kinds.jobs import JobKind
from queuectl.kinds.labels import KUEUE_MARKS
from queuectl.kinds.registry import KindRegistry

TEMPLATES: Final = Path(__file__).with_name("templates")
WIDTH: Final = 100
"""Columns of what stands for a name, without its indent."""
_LINES: Final = re.compile(r"^( *)@\{(\w+)\}$", re.MULTILINE)
_NAME: Final = re.compile(r"@\{(\w+)\}")
_HEAD: Final = "# Made from the registry of kinds by `make manifests`: change queuectl/kinds/templates/{}.\n"


def manifests(kinds: KindRegistry) -> dict[str, str]:
    """The text of each file, by its path below `manifests`."""
    values = _values(kinds)
    return {
        name: _HEAD.format(name) + _filled((TEMPLATES / name).read_text(), values)
        for path in sorted(TEMPLATES.rglob("*.yaml"))
        if (name := path.relative_to(TEMPLATES).as_posix())
    }


def _filled(text: str, values: Mapping[str, str]) -> str:
    def lines(found: re.Match[str]) -> str:
        return "\n".join(f"{found[1]}{line}" for line in values[found[2]].splitlines())

    return _NAME.sub(lambda found: values[found[1]], _LINES.sub(lines, text))


def _values(kinds: KindRegistry) -> dict[str, str]:
    rows = kinds.rows
    return {
        "objects_and_status": _rules(rows, ("", "/status"), "CREATE, UPDATE"),
        "everything_below": _rules(rows, ("", "/*"), "CREATE, UPDATE, DELETE"),
        "scales": _rules(tuple(row for row in rows if row.scale), ("/scale",), "UPDATE"),
        "created": _rules(rows, ("",), "CREATE"),
        "updated": _rules(rows, ("",), "UPDATE"),
        "written": _rules(rows, ("",), "CREATE, UPDATE"),
        "sent_to_webhook": _rules(rows, ("",), "CREATE, UPDATE", "scope: Namespaced"),
        "rights": _rights(rows, "", "get, list, watch, patch"),
        "rights_on_status": _rights(rows, "/status", "patch"),
        **{name: _expression(text) for name, text in _expressions(rows).items()},
    }


def _expressions(rows: tuple[JobKind, ...]) -> dict[str, str]:
    """What the policies say about the objects of each kind, in CEL."""
    return {
        "suspend": by_kind(rows, lambda row, _: suspend(row, "object")),
        "suspend_before": by_kind(rows, lambda row, _: suspend(row, "oldObject")),
        "suspend_path": by_kind(rows, lambda row, _: repr(".".join(row.suspend))),
        "suspend_applied": by_kind(rows, lambda row, _: suspend_applied(row)),
        "ended_before": by_kind(rows, lambda row, _: ended(row, "oldObject")),
        "parts": by_kind(rows, lambda row, names: parts(row, names, "o")),
        "fixed": by_kind(rows, lambda row, names: fixed(row, names, "object", "oldObject")),
        "refused": by_kind(rows, lambda row, _: refused(row)),
        "kept": by_kind(rows, lambda row, names: kept(row, names, "o[0].spec", "o[1].spec")),
        "counted": by_kind(rows, counted),
        "templates": by_kind(rows, templates),
        "template_annotations": by_kind(rows, template_annotations),
        "marks_of_kueue": str(sorted(KUEUE_MARKS)),
        "asked": by_kind(rows, lambda row, _: asked(row)),
        "by_controller_of_owner": by_controller_of_owner(rows),
    }


def _expression(text: str) -> str:
    """On several lines, which YAML joins by spaces."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _rules(rows: tuple[JobKind, ...], parts: tuple[str, ...], operations: str, *more: str) -> str:
    """Rules of a policy or webhook: one for each group and version."""
    plurals: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        plurals.setdefault((row.group, row.version), []).append(row.plural)
    lines = []
    for (group, version), names in plurals.items():
        resources = ", ".join(f"{name}{part}" for name in names for part in parts)
        lines += [
            f"- apiGroups: [{group}]",
            f"  apiVersions: [{version}]",
            *_folded(f"  resources: [{resources}]"),
        ]
        lines += [f"  {line}" for line in (f"operations: [{operations}]", *more)]
    return "\n".join(lines)


def _rights(rows: tuple[JobKind, ...], part: str, verbs: str) -> str:
    """Rules of a role: one for each group."""
    plurals: dict[str, dict[str, None]] = {}
    for row in rows:
        plurals.setdefault(row.group, {})[f"{row.plural}{part}"] = None
    lines = []
    for group, resources in plurals.items():
        lines += [f"- apiGroups: [{group}]", *_folded(f"  resources: [{', '.join(resources)}]")]
        lines.append(f"  verbs: [{verbs}]")
    return "\n".join(lines)


def _folded(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_long_words=False)
