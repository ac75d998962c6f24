"""docs/glossary.md names terms in alphabetical order, and places in the code that exist."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import click
import pytest
import yaml

from queuectl.cli import main
from queuectl.core.model.reasons import Code
from tests.acceptance.mutants.patches import CHECKOUT

ROWS = re.findall(
    r"^- \*\*(.+?)\*\*: (.+) \((`.+`)\)$",
    (CHECKOUT / "docs" / "glossary.md").read_text("utf-8"),
    re.MULTILINE,
)
LINES = [
    line for line in (CHECKOUT / "docs" / "glossary.md").read_text("utf-8").splitlines() if line[:2] == "- "
]
PLACES = sorted({place for *_, cell in ROWS for place in re.findall(r"`([^`]+)`", cell)})
SOURCES = "\n".join(path.read_text("utf-8") for path in sorted((CHECKOUT / "queuectl").rglob("*.py")))
CLASSES = frozenset(re.findall(r"^class (\w+)|^(\w+) = (?:\w+ \| )+\w+$", SOURCES, re.MULTILINE))
NAMES = {name for pair in CLASSES for name in pair if name}


def schemas() -> dict[str, dict[str, Any]]:
    """The schema of each kind of policy, by its name."""
    documents = (
        yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)
        for path in (CHECKOUT / "manifests" / "crds").glob("*_*.yaml")
    )
    return {
        document["spec"]["names"]["kind"]: document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for document in documents
    }


SCHEMAS = schemas()


def is_field(path: str) -> bool:
    """Whether `Kind.field.field` is in the schema of the kind."""
    kind, *steps = path.split(".")
    schema = SCHEMAS.get(kind)
    for step in steps:
        while schema is not None and "items" in schema:
            schema = schema["items"]
        schema = schema.get("properties", {}).get(step) if schema is not None else None
    return schema is not None


def exists(place: str) -> bool:
    if place.startswith("queuectl.dev/"):
        return place in SOURCES
    if place.startswith("queuectl "):
        return main.get_command(click.Context(main), place.split()[1]) is not None
    return is_field(place) if "." in place else place in NAMES or place in set(Code)


def test_each_term_has_a_meaning_and_a_place() -> None:
    assert len(ROWS) > 50
    assert len(ROWS) == len(LINES)


def test_terms_are_alphabetical() -> None:
    terms = [row[0].lower() for row in ROWS]
    assert [pair for pair in pairwise(terms) if pair[0] > pair[1]] == []


@pytest.mark.parametrize("place", PLACES)
def test_each_place_exists(place: str) -> None:
    assert exists(place)


@pytest.mark.parametrize(
    "place", ["ClusterQueue.spec.nothing", "NoSuchClass", "queuectl nothing", "queuectl.dev/x"]
)
def test_a_place_that_does_not_exist_is_noticed(place: str) -> None:
    assert not exists(place)
