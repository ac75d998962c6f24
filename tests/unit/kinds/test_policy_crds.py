"""The CRDs in manifests/ are those of the models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.kinds.policy import POLICY_KINDS
from release.crds import definition, files, main

FOLDER = Path(__file__).resolve().parents[3] / "manifests" / "crds"


def test_the_checked_in_files_are_up_to_date() -> None:
    checked_in = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert checked_in == files(), "run: make manifests"


def test_they_are_written_to_the_folder_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "crds")]) == 0
    assert {path.name for path in (tmp_path / "crds").iterdir()} == set(files())
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("name", POLICY_KINDS)
def test_a_schema_is_structural_and_bounded(name: str) -> None:
    text = files()[f"queuectl.dev_{POLICY_KINDS[name].plural}.yaml"]
    schema = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, node in _nodes(schema):
        assert not set(node) & {"$ref", "title", "$defs", "patternProperties", "const"}, path
        assert "type" in node or "x-kubernetes-int-or-string" in node, path
        if path.startswith(".spec") and node.get("type") == "array":
            assert node["maxItems"] <= 256, path
            assert "x-kubernetes-list-type" in node, path
        if path.startswith(".spec") and node.get("type") == "string" and "enum" not in node:
            assert node["maxLength"] <= 2048, path


def test_every_rule_says_something_short() -> None:
    for kind in POLICY_KINDS.values():
        schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for path, node in _nodes(schema):
            for rule in node.get("x-kubernetes-validations", ()):
                assert 0 < len(rule["message"]) <= 120, path


def _fields(name: str) -> list[tuple[str, dict[str, Any]]]:
    """All fields of a kind, without the items of lists and the values of maps."""
    schema = definition(POLICY_KINDS[name])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return [(path, node) for path, node in _nodes(schema) if not path.endswith("[]")]


@pytest.mark.parametrize("name", POLICY_KINDS)
def test_every_field_is_described(name: str) -> None:
    """`kubectl explain` shows nothing else. The server describes `metadata` by itself."""
    without = [path for path, node in _fields(name) if not node.get("description")]
    assert without == [".metadata"], "add a docstring to the field of the model"


@pytest.mark.parametrize("name", POLICY_KINDS)
def test_the_description_of_a_choice_says_what_each_of_its_values_means(name: str) -> None:
    for path, node in _fields(name):
        if path.startswith(".spec"):
            choices = node.get("enum", node.get("items", {}).get("enum", ()))
            assert [value for value in choices if value not in node["description"]] == [], path


def test_a_description_is_one_line_of_sentences() -> None:
    for name in POLICY_KINDS:
        for path, node in _fields(name):
            text = node.get("description", "None.")
            assert re.fullmatch(r"[A-Z](\S| (?! ))*\.", text), (path, text)


def _nodes(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, child in schema.get("properties", {}).items():
        found += _nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            found += _nodes(schema[key], f"{path}[]")
    return found
