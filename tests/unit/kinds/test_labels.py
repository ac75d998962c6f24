"""queuectl's labels and Kueue's: which one is used, and what a start tests of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from queuectl.kinds.labels import KUEUES_TOO, OWN, may_queue, queued_by
from queuectl.kinds.patches import start
from queuectl.kinds.single_pod import POD
from queuectl.kinds.workloads import MAX_LABELS, observe
from tests.integration.kube.sites import effect
from tests.job_kinds import JOB_KINDS
from tests.unit.kinds.job_objects import job

OURS = "queuectl.dev/queue-name"
KUEUES = "kueue.x-k8s.io/queue-name"
ROW = JOB_KINDS["Job"]


def labelled(**labels: str) -> dict[str, Any]:
    """A Job with labels such as `ours="main"`."""
    names = {"ours": "queuectl.dev/queue-name", "kueues": "kueue.x-k8s.io/queue-name"}
    names |= {
        f"{whose}_priority": name.replace("queue-name", "priority-class") for whose, name in names.items()
    }
    found = job()
    found["metadata"]["labels"] = {names.get(key, key): value for key, value in labels.items()}
    return found


def test_without_the_setting_kueue_s_labels_are_ignored() -> None:
    assert observe(ROW, labelled(kueues="main")) is None
    seen = observe(ROW, labelled(ours="main", kueues="other", kueues_priority="high"))
    assert seen is not None
    assert (seen.workload.queue, seen.workload.priority_class) == ("main", None)
    assert OWN.selection == {"labelSelector": OURS}


@pytest.mark.parametrize(
    ("labels", "queue", "priority"),
    [
        ({"kueues": "main", "kueues_priority": "high"}, "main", "high"),
        ({"ours": "main", "ours_priority": "low"}, "main", "low"),
        ({"ours": "main", "kueues": "other"}, "main", None),
        ({"ours": "", "kueues": "other"}, "", None),
        ({"kueues": "main", "ours_priority": "low", "kueues_priority": "high"}, "main", "low"),
        ({"ours": "main", "kueues_priority": "high"}, "main", "high"),
    ],
)
def test_of_two_labels_ours_takes_precedence_if_it_is_set(
    labels: dict[str, str], queue: str, priority: str | None
) -> None:
    seen = observe(ROW, labelled(**labels), KUEUES_TOO)
    assert seen is not None
    assert (seen.workload.queue, seen.workload.priority_class) == (queue, priority)


def test_a_priority_label_alone_does_not_queue_an_object() -> None:
    assert observe(ROW, labelled(kueues_priority="high"), KUEUES_TOO) is None
    assert not may_queue(labelled(kueues_priority="high"))
    assert may_queue(labelled(kueues="main"))


def test_an_observer_may_give_objects_without_a_label_a_queue() -> None:
    honoured = replace(OWN, default="main")
    seen = [observe(ROW, labelled(**labels), honoured) for labels in ({}, {"ours": "other"})]
    assert [one and one.workload.queue for one in seen] == ["main", "other"]
    assert honoured.selection == {}
    pod = {**labelled(), "kind": "Pod"}
    assert observe(POD, pod, honoured) is None


def test_a_start_tests_the_label_that_is_used() -> None:
    def tests(**labels: str) -> dict[str, Any]:
        patch = start(ROW, effect(labelled(**labels), honoured=KUEUES_TOO))
        return {
            step["path"].removeprefix("/metadata/labels/").replace("~1", "/"): step["value"]
            for step in patch
            if step["op"] == "test" and step["path"].startswith("/metadata/labels/")
        }

    assert tests(ours="main") == {OURS: "main"}
    assert tests(ours="main", kueues="other") == {OURS: "main"}
    assert tests(kueues="main") == {OURS: None, KUEUES: "main"}


def test_of_many_labels_those_that_queuectl_reads_are_kept() -> None:
    many = {f"a{number:03}": "x" for number in range(2 * MAX_LABELS)}
    seen = observe(ROW, labelled(kueues="main", **many), KUEUES_TOO)
    assert seen is not None
    assert len(seen.workload.labels) == MAX_LABELS
    assert queued_by(seen.workload) == KUEUES
