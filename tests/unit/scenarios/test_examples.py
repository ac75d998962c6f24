"""docs/clusterqueue-by-example.md: each policy leads to the decisions of its test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from docs.tables import EXAMPLES, POLICIES, with_examples
from queuectl.cli import main

_RECLAIM = ("reclaimWithinCohort: Any", "reclaimWithinCohort: Never")
WITHOUT = {
    "own-and-lend": _RECLAIM,
    "limits": (", borrowingLimit: 8", ""),
    "scavenger": _RECLAIM,
    "priorities": ("withinClusterQueue: LowerPriority", "withinClusterQueue: Never"),
    "urgent-borrowing": (", maxPriorityThreshold: 0", ""),
    "minimum-run-time": ("InCohortReclamation: 3600", "InCohortReclamation: 60"),
    "fair-shares": ("weight: 2", "weight: 1"),
    "departments": ("parentName: company", ""),
    "flavor-fallback": ("  nodeTaints: [{key: spot, value: \"true\", effect: NoSchedule}]\n", ""),
    "large-jobs": ("queueingStrategy: StrictFIFO", "queueingStrategy: BestEffortFIFO"),
    "users-in-turn": ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"),
    "pods-limit": ("nominalQuota: 10}", "nominalQuota: 11}"),
}  # fmt: skip
"""For each example the text that makes the point, and what stands there in a policy without it."""


def outcome(policy: Path, name: str) -> Result:
    return CliRunner().invoke(main, ["test", "-p", str(policy), str(POLICIES / name / "test.yaml")])


def test_there_is_an_example_for_each_folder() -> None:
    named = re.findall(
        r"^## ([a-z-]+)\n.*?<!-- example \1 -->", EXAMPLES.read_text(), re.MULTILINE | re.DOTALL
    )
    assert named == list(WITHOUT)
    assert sorted(named) == sorted(folder.name for folder in POLICIES.iterdir())


def test_the_page_shows_the_policies_and_names_their_tests() -> None:
    text = EXAMPLES.read_text()
    assert text == with_examples(text), "run: make manifests"


@pytest.mark.parametrize("name", WITHOUT)
def test_an_example_leads_to_the_decisions_of_its_test(name: str) -> None:
    found = outcome(POLICIES / name / "policy.yaml", name)
    assert found.exit_code == 0, found.output
    assert len(found.stdout.splitlines()) >= 3  # the head of the table and two documents


@pytest.mark.parametrize("name", WITHOUT)
def test_the_test_of_an_example_fails_without_the_field_that_it_shows(name: str, tmp_path: Path) -> None:
    before, after = WITHOUT[name]
    text = (POLICIES / name / "policy.yaml").read_text()
    assert before in text
    (tmp_path / "policy.yaml").write_text(text.replace(before, after))
    found = outcome(tmp_path / "policy.yaml", name)
    assert found.exit_code == 1, found.output
