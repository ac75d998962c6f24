"""The table of who may write what the controller reads (docs/threats.md) has all that it reads."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from queuectl.kinds import labels, reserved_keys
from queuectl.kinds.jobs import JobKind
from tests.acceptance.gate.trust import CHANGES, TABLE
from tests.unit.test_bounds_table import rows

ROOT: Final = Path(__file__).parents[2]
ROWS: Final = (*TABLE, *(row[0] for row in rows("What no policy of the gate covers", "**The gate counts")))
_KEY: Final = re.compile(r"[a-z0-9.-]+\.[a-z0-9]+/[a-z-]*[a-z]")
ELSEWHERE: Final = {
    reserved_keys.AUTHOR_ANNOTATION: "on policy objects",
    reserved_keys.RESTRICTED_LABEL: "on policy objects: who may `use` what has it is a row",
    reserved_keys.SCHEDULING_GATE: "no key: the name of a scheduling gate",
    "queuectl.dev/gate": "on the policies of the gate",
    "queuectl.dev/controller": "no key: the name of the controller in Events",
    "queuectl.dev/manager": "no key: the name of an entry of a TrainJob",
    **dict.fromkeys(
        (
            "jobset.sigs.k8s.io/jobset-controller",
            "kubernetes.io/job-controller",
            "ray.io/kuberay-operator",
            "trainer.kubeflow.org/trainjob-controller",
            "workload.codeflare.dev/appwrapper-controller",
        ),
        "no key: a value of `managedBy`",
    ),
    **dict.fromkeys(
        ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"),
        "no key of an object: tolerations that the API server adds",
    ),
}
"""Where those are that no row has, because no object of a job has them."""

FIELDS: Final = {
    "suspend": "field that suspends",
    "podsets": "pod template: spec",
    "elastic": "number of pods",
    "counts": "number of pods",
    "fixed": "pod template: spec",
    "scale": "replicas by `scale`",
    "status": "status:",
    "ends": "status:",
    "seen": "status:",
    "end_time": "status:",
    "start_time_binds": "status:",
    "pods": "pod, label",
    "children": "children of an object",
    "suspends": "children of an object",
    "managed_by": "`managedBy`",
    "priority_class": "PriorityClass of an object",
}
"""How the row begins that has what a field of the registry makes queuectl read."""
NOT_READ: Final = {"name", "group", "version", "plural", "names", "ordered", "refuse", "kept"}
"""Fields of the registry that name a kind, or say what is refused as it is: they give no right."""


def _keys() -> Iterator[str]:
    """Every key of labels and annotations that the code of kinds and of the core has."""
    yield from (key for key in vars(reserved_keys).values() if isinstance(key, str) and _KEY.fullmatch(key))
    for folder in ("queuectl/kinds", "queuectl/core"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and _KEY.fullmatch(str(node.value)):
                    yield str(node.value)


def test_each_key_that_is_read_has_a_row() -> None:
    keys = set(_keys())
    assert keys >= labels.KUEUE_MARKS
    assert keys >= {reserved_keys.RESERVED + name for name in ("admission", "stopped", "release", "bypass")}
    missing = {key for key in keys if not any(f"`{key}`" in row for row in ROWS)}
    assert missing == ELSEWHERE.keys()


def test_each_field_that_a_kind_makes_queuectl_read_has_a_row() -> None:
    assert {field.name for field in dataclasses.fields(JobKind)} == FIELDS.keys() | NOT_READ
    for field, begin in FIELDS.items():
        assert any(row.startswith(begin) for row in ROWS), field


def test_each_row_of_the_table_is_tried() -> None:
    assert TABLE.keys() == CHANGES.keys()
    assert any("account key" in row for row in TABLE)
