"""The CRDs in manifests/ are those of the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.kinds.crds import definition, files, main
from queuectl.kinds.policy import POLICY_KINDS

FOLDER = Path(__file__).resolve().parents[2] / "manifests" / "crds"


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


def _nodes(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, child in schema.get("properties", {}).items():
        found += _nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            found += _nodes(schema[key], f"{path}[]")
    return found
