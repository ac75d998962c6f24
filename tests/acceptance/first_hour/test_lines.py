"""No command of README.md or docs/install.md is left out by `make first-hour`."""

from __future__ import annotations

import pytest

from tests.acceptance.first_hour.lines import DOCUMENTS, commands_of
from tests.acceptance.first_hour.scenes import (
    EXCEPTIONS,
    HOW,
    INSTALL,
    README,
    REPLACED,
    SCENES,
    excepted,
    not_typed,
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_command_is_typed_or_has_a_reason_why_not(document: str) -> None:
    left = [line for line in not_typed(document) if not excepted(line)]
    assert not left, f"add to a scene of tests/acceptance/first_hour/scenes.py: {left}"


def test_no_command_of_readme_is_excepted() -> None:
    assert not not_typed(README)


def test_all_that_the_tables_state_is_about_a_command() -> None:
    assert all(any(line.text.startswith(begins) for line in not_typed(INSTALL)) for begins in EXCEPTIONS)
    typed = [line for scene in SCENES for line in scene.lines()]
    for how in HOW:
        assert any(line.text.startswith(how.begins) for line in typed), how.begins
    for written in REPLACED:
        assert any(written in line.text for line in typed), written


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_blocks_of_a_scene_are_typed_in_their_order(document: str) -> None:
    for scene in SCENES:
        if scene.document == document and scene.cluster:
            numbers = [line.number for line in scene.lines() if line.block]
            assert numbers == sorted(numbers), scene.name


def test_commands_are_found_in_blocks_transcripts_and_sentences() -> None:
    text = """# First
Type `kubectl get
jobs`, not `queuectl` and not `docs/x.md`.
```
make run   # a comment
kubectl apply -f - <<'EOF'
kind: Job

EOF
a | \\
  b
```
```yaml
kind: Job
```
## Second
```
$ queuectl version
queuectl 1
```
"""
    found = [
        (line.number, line.section, line.block, line.text, line.prints) for line in commands_of("x", text)
    ]
    assert found == [
        (2, "First", 0, "kubectl get jobs", ""),
        (5, "First", 1, "make run   # a comment", ""),
        (6, "First", 1, "kubectl apply -f - <<'EOF'\nkind: Job\n\nEOF", ""),
        (10, "First", 1, "a | \\\n  b", ""),
        (18, "Second", 1, "queuectl version", "queuectl 1"),
    ]
