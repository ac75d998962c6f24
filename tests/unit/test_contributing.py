"""CONTRIBUTING.md names places that exist, and its first change is still to be made."""

from __future__ import annotations

import re

from queuectl.api.schemas import Workload
from queuectl.cli.resources import RESOURCES
from tests.acceptance.mutants.patches import CHECKOUT

PAGE = (CHECKOUT / "CONTRIBUTING.md").read_text("utf-8")
FOLDERS = "queuectl|tests|manifests|migrations|docs|benchmarks"
PLACE = re.compile(rf"`((?:{FOLDERS})(?:/[\w.-]+)*)`|\]\(([\w./-]+)\)")


def test_each_place_that_is_named_exists() -> None:
    named = {name.rstrip("/") for found in PLACE.finditer(PAGE) for name in found.groups() if name}
    assert len(named) > 20
    assert [name for name in sorted(named) if not (CHECKOUT / name).exists()] == []


def test_the_first_change_is_possible_and_not_made_yet() -> None:
    assert "uid" in Workload.model_fields
    assert "UID" not in {field.column.title for field in RESOURCES["workloads"].fields}
