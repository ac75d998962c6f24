"""The chart, rendered by helm if there is one, and by a reader of the few expressions that it uses."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from release.chart import CHART, NAMESPACE

Json = dict[str, Any]
Values = Mapping[str, Any]
DEADLINE = 60
_IF = re.compile(r"\{\{- if (.*) \}\}")
_VALUE = re.compile(r"\{\{ \.Values\.([\w.]+)(?: \| (\w+))? \}\}")
_NEWER = ' (semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version)'
_FILTERS: dict[str, Callable[[Any], str]] = {
    "": str,
    "quote": lambda value: json.dumps(str(value)),
    "sha256sum": lambda value: hashlib.sha256(value.encode()).hexdigest(),
}


def rendered_here(values: Values, minor: int) -> list[Json]:
    """All objects. Raises ValueError for an expression that is not known here."""
    known = _merged(yaml.safe_load((CHART / "values.yaml").read_text()), values)
    found = []
    for path in sorted((CHART / "templates").glob("*.yaml")):
        lines: list[str] = []
        shown = [True]
        for line in path.read_text().splitlines():
            if condition := _IF.fullmatch(line):
                shown.append(_holds(condition[1], known, minor))
            elif line == "{{- end }}":
                shown.pop()
            elif all(shown):
                lines.append(_VALUE.sub(lambda m: _FILTERS[m[2] or ""](_value(known, m[1])), line))
        text = "\n".join(lines)
        if "{{" in text:
            raise ValueError(f"{path.name}: an expression that is not known here")
        found += [thing for thing in yaml.load_all(text, yaml.CSafeLoader) if thing]
    return found


def _holds(condition: str, values: Values, minor: int) -> bool:
    if condition == f'ne .Release.Namespace "{NAMESPACE}"':
        return False
    newer = condition.startswith("and ") and condition.endswith(_NEWER)
    path = condition.removeprefix("and ").removesuffix(_NEWER) if newer else condition
    return bool(_value(values, path.removeprefix(".Values."))) and (not newer or minor >= 36)


def _value(values: Values, path: str) -> Any:
    found: Any = values
    for step in path.split("."):
        found = found[step]
    return found


def _merged(values: Json, over: Values) -> Json:
    for name, value in over.items():
        inner = isinstance(value, Mapping) and isinstance(values.get(name), dict)
        values[name] = _merged(values[name], value) if inner else value
    return values


def rendered_by_helm(values: Values, minor: int) -> list[Json]:
    options = [f"--namespace={NAMESPACE}", f"--kube-version=1.{minor}.0", "--values=-"]
    text = _helm("template", "queuectl", str(CHART), *options, stdin=json.dumps(values))
    return [thing for thing in yaml.load_all(text, yaml.CSafeLoader) if thing]


def lint() -> str:
    return _helm("lint", "--strict", f"--namespace={NAMESPACE}", str(CHART))


def _helm(*arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [str(BINARY), *arguments], input=stdin, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


BINARY: Path | None = Path(found) if (found := shutil.which("helm")) else None
RENDERERS: dict[str, Callable[[Values, int], list[Json]]] = {"reader": rendered_here}
if BINARY is not None:
    RENDERERS["helm"] = rendered_by_helm
