"""`queuectl test` in terminals and CI systems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import queuectl
from tests.unit.cli.conftest import Run
from tests.unit.scenarios.cases import H100, cycle, pending, queue

ROOM = [H100, *queue("a", 8)]


def case(name: str, gpus: int, expect: Any, **fields: Any) -> dict[str, Any]:
    return cycle([], [pending("a/train", gpus)], expect, **fields) | {"name": name, "objects": ROOM}


RIGHT = case("it fits", 8, {"admitted": {"a/train": {}}})
WRONG = case("it does not fit", 9, {"admitted": {"a/train": {}}})
LATER = case("it fits at night", 8, {}, kind="simulation")


def written(folder: Path, *documents: Any) -> str:
    path = folder / "cases.json"
    path.write_text(json.dumps(documents, indent=1))
    return str(path)


def test_decisions_as_expected_exit_with_0(run: Run, tmp_path: Path) -> None:
    found = run("test", written(tmp_path, RIGHT, LATER))
    assert found.exit_code == 0, found.output
    assert [line.split()[0] for line in found.stdout.splitlines()] == ["RESULT", "passed", "skipped"]
    assert "documents of kind simulation are not run" in found.stdout
    assert found.stderr == "2 documents: 1 passed, 0 failed, 1 skipped\n"


def test_a_difference_is_shown_and_exits_with_1(run: Run, tmp_path: Path) -> None:
    found = run("test", written(tmp_path, RIGHT, WRONG))
    assert found.exit_code == 1
    assert "\n- admitted.a/train: {}\n" in found.stdout
    assert found.stderr == "Error: 2 documents: 1 passed, 1 failed, 0 skipped\n"


def test_a_failed_document_says_why(run: Run, tmp_path: Path) -> None:
    found = run("test", written(tmp_path, WRONG))
    assert found.stdout.splitlines()[-1] == (
        "  a/train: ExceedsMaxQuota: requests 9 nvidia.com/gpu in flavor h100, at most 8 ever, short by 1 "
        "(bound by nominalQuota of ClusterQueue/a)"
    )


def test_the_page_shows_what_is_printed_for_a_smaller_borrowing_limit(run: Run, tmp_path: Path) -> None:
    docs = Path(queuectl.__file__).parent.parent / "docs"
    policy = (docs / "examples" / "policy" / "queues.yaml").read_text()
    (tmp_path / "queues.yaml").write_text(policy.replace("borrowingLimit: 16", "borrowingLimit: 8"))
    found = run("test", "-p", str(tmp_path), str(docs / "examples" / "policy-tests.yaml"))
    told = found.stdout.split("\n\n", 1)[1].replace(f"{docs.parent}/", "")
    assert told in (docs / "policy-tests.md").read_text()


def test_all_errors_in_all_files_are_reported_and_nothing_is_run(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("format: scenario/v1\nkind: cycle\n")
    wrong = written(tmp_path, RIGHT | {"expct": {}}, RIGHT | {"expect": None})
    found = run("test", wrong, str(bad), str(tmp_path / "none.yaml"))
    assert (found.exit_code, found.stdout) == (2, "")
    told = [line.removeprefix("Error: ").removeprefix(str(tmp_path)) for line in found.stderr.splitlines()]
    assert told == [
        "/cases.json: line 75, column 3: expct: there is no such field",
        "/bad.yaml: line 1, column 1: name: is missing",
        "/none.yaml: No such file or directory",
    ]


def test_a_document_that_expects_nothing_is_no_test(run: Run, tmp_path: Path) -> None:
    found = run("test", written(tmp_path, RIGHT | {"expect": None}))
    assert found.exit_code == 2
    assert found.stderr.endswith("cases.json: line 2, column 1: it fits: expect is missing (see --print)\n")


def test_decisions_can_be_printed_as_a_first_expectation(run: Run, tmp_path: Path) -> None:
    steps = [{"do": "cycle"}, {"do": "requeueInadmissible"}]
    found = run("test", "--print", written(tmp_path, RIGHT | {"expect": None, "steps": steps}, LATER))
    assert found.exit_code == 0, found.output
    told, later = json.loads(found.stdout)
    assert told["expect"]["holding"] == {"a/train": "a"}
    assert [step and list(step["admitted"]) for step in told["steps"]] == [["a/train"], None]
    assert later["skipped"] == "documents of kind simulation are not run"
    again = run("test", written(tmp_path, RIGHT | {"expect": told["expect"]}))
    assert again.exit_code == 0, again.output


def test_json_has_every_document_and_every_difference(run: Run, tmp_path: Path) -> None:
    found = run("test", "-o", "json", written(tmp_path, RIGHT, WRONG, LATER))
    told = json.loads(found.stdout)
    assert (told["passed"], told["failed"], told["skipped"]) == (1, 1, 1)
    assert [document["result"] for document in told["documents"]] == ["passed", "failed", "skipped"]
    assert told["documents"][1]["differences"] == [
        {"path": "admitted.a/train", "expected": "{}", "observed": None}
    ]
    (finding,) = told["documents"][1]["findings"]
    assert (finding["workload"], finding["state"], finding["step"]) == ("a/train", "pending", None)
    assert finding["text"].startswith("ExceedsMaxQuota: ")
    assert told["documents"][2]["reason"] == "documents of kind simulation are not run"


def test_junit_has_a_case_for_each_document(run: Run, tmp_path: Path) -> None:
    named = RIGHT | {"id": "one", "table": "rooms"}
    hostile = WRONG | {"name": "no \u0007 bell <&>"}
    found = run("test", written(tmp_path, named, hostile, LATER), "--junit", str(tmp_path / "out.xml"))
    assert found.exit_code == 1
    (suite,) = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    first, second, third = suite
    assert (first.get("classname"), first.get("name"), len(first)) == ("rooms", "one: it fits", 0)
    assert second.get("name") == "no \ufffd bell <&>"
    assert second[0].tag == "failure"
    assert "- admitted.a/train: {}" in (second[0].text or "")
    assert "  a/train: ExceedsMaxQuota: " in (second[0].text or "")
    assert third[0].get("message") == "documents of kind simulation are not run"


def test_a_report_that_cannot_be_written_is_reported(run: Run, tmp_path: Path) -> None:
    found = run("test", written(tmp_path, RIGHT), "--junit", str(tmp_path / "none" / "out.xml"))
    assert found.exit_code == 2
    assert "out.xml: No such file or directory" in found.stderr


def test_policy_comes_from_manifests_and_documents_from_standard_input(tmp_path: Path) -> None:
    from queuectl.cli import main

    for number, obj in enumerate(ROOM):
        (tmp_path / f"{number}.json").write_text(json.dumps(obj))
    (tmp_path / "job.yaml").write_text("apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n")
    text = json.dumps({key: value for key, value in RIGHT.items() if key != "objects"})
    found = CliRunner().invoke(main, ["test", "-p", str(tmp_path), "-"], input=text)
    assert found.exit_code == 0, found.output
    assert "standard input:1" in found.stdout


def test_namespaces_have_the_label_that_every_api_server_adds(run: Run, tmp_path: Path) -> None:
    """The queues of manifests/examples select their namespace by it."""
    examples = Path(queuectl.__file__).parent.parent / "manifests" / "examples"
    document = cycle(
        [], [pending("team-a/train", 8)], {"admitted": {"team-a/train": {"clusterQueue": "team-a"}}}
    )
    found = run("test", "-p", str(examples), written(tmp_path, document | {"objects": []}))
    assert found.exit_code == 0, found.output
    own = cycle(queue("a", 8, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "a"}}), [])
    expect: Any = {"admitted": {"a/train": {}}}
    found = run("test", written(tmp_path, own | {"workloads": [pending("a/train", 8)], "expect": expect}))
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize("more", [[], ["--policy"]])
def test_usage_is_reported(run: Run, more: list[str]) -> None:
    assert run("test", *more).exit_code == 2
