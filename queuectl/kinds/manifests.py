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

from queuectl.kinds.jobs import OVER, JobKind
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
        "nested": _in_groups(tuple(row for row in rows if row.suspend == ("spec", "runPolicy", "suspend"))),
        "replica_field": _replica_field(rows),
        "listed": _in_groups(tuple(row for row in rows if row.replicas is not None and row.replicas.listed)),
        "over": f"[{', '.join(map(repr, OVER))}]",
    }


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


def _in_groups(rows: tuple[JobKind, ...]) -> str:
    """An expression: the request is about a kind of these rows' groups."""
    groups = [repr(group) for group in dict.fromkeys(row.group for row in rows)]
    if len(groups) == 1:
        return f"request.resource.group == {groups[0]}"
    return f"request.resource.group in [{', '.join(groups)}]"


def _replica_field(rows: tuple[JobKind, ...]) -> str:
    """An expression: the field of the spec with replica types; empty for a kind that has none."""
    fields = {
        row.plural: row.replicas.field for row in rows if row.replicas is not None and not row.replicas.listed
    }
    return textwrap.fill(f"{fields}[?request.resource.resource].orValue('')", WIDTH)
