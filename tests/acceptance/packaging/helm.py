"""The Helm chart, rendered and linted by helm. Without helm on the PATH its tests are skipped."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from release.chart import CHART, NAMESPACE

Json = dict[str, Any]
Values = Mapping[str, Any]
DEADLINE = 60
MISSING = "helm is not on the PATH: `go install helm.sh/helm/v4/cmd/helm@v4.3.1` makes it"


def render(values: Values, minor: int) -> list[Json]:
    """All objects of the chart for Kubernetes 1.`minor`."""
    options = [f"--namespace={NAMESPACE}", f"--kube-version=1.{minor}.0", "--values=-"]
    text = _helm("template", "queuectl", str(CHART), *options, stdin=json.dumps(values))
    return [thing for thing in yaml.load_all(text, yaml.CSafeLoader) if thing]


def lint() -> str:
    return _helm("lint", "--strict", f"--namespace={NAMESPACE}", str(CHART))


def _helm(*arguments: str, stdin: str = "") -> str:
    binary = shutil.which("helm")
    if binary is None:
        pytest.skip(MISSING)
    done = subprocess.run([binary, *arguments], input=stdin, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
