"""`queuectl import kueue` with files, folders and pipes."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from queuectl.cli import main

QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: main, namespace: research}
spec: {clusterQueue: team-a}
"""
CHECK = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: AdmissionCheck
metadata: {name: slow}
"""


def test_objects_are_written_to_stdout_for_kubectl_and_notes_to_stderr(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(QUEUE)
    (tmp_path / "b.yml").write_text(CHECK)
    (tmp_path / "README.md").write_text("no manifest")
    found = CliRunner().invoke(main, ["import", "kueue", "-f", str(tmp_path)])
    assert found.exit_code == 3, found.output
    (made,) = yaml.safe_load_all(found.stdout)
    assert (made["apiVersion"], made["metadata"]["name"]) == ("queuectl.dev/v1beta1", "main")
    assert found.stderr.splitlines() == [
        "AdmissionCheck/slow: admission checks are not supported yet",
        "1 objects converted, 1 notes, 1 of them on what was left out",
    ]


def test_json_has_objects_and_notes_in_one_document() -> None:
    found = CliRunner().invoke(
        main, ["import", "kueue", "-f", "-", "-o", "json"], input=QUEUE + "---" + CHECK
    )
    told = json.loads(found.stdout)
    assert [made["kind"] for made in told["objects"]] == ["LocalQueue"]
    assert [note["object"] for note in told["notes"]] == ["AdmissionCheck/slow"]


def test_the_exit_code_is_3_if_something_was_left_out() -> None:
    command = ["import", "kueue", "-f", "-"]
    assert CliRunner().invoke(main, command, input=QUEUE).exit_code == 0
    assert CliRunner().invoke(main, command, input=CHECK).exit_code == 3
    assert CliRunner().invoke(main, command, input="a: [").exit_code == 2


def test_a_file_that_cannot_be_read_is_reported_with_its_place_and_nothing_is_printed(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(QUEUE + "---\na: [1]\nb: *x\n")
    found = CliRunner().invoke(main, ["import", "kueue", "-f", str(bad)])
    assert (found.exit_code, found.stdout) == (2, "")
    assert "line 8, column 4: the alias *x has no anchor before it" in found.stderr
