"""The table of who may write what the controller reads (docs/threats.md), and a change for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from queuectl.kinds import reserved_keys as written
from tests.acceptance.gate.site import QUEUE

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "threats.md"
PHASES: Final = ("no queue label", "is added", "waits", "runs", "over")
FieldPath = tuple[str, ...]


class Places(Protocol):
    """Where an object has what the rows are about."""

    @property
    def suspend(self) -> FieldPath: ...
    @property
    def pods(self) -> FieldPath: ...
    @property
    def template(self) -> FieldPath:
        """Path of the spec of a pod template."""


class Change(NamedTuple):
    """What a tenant writes for a row: the path of a field, from the root, and its value."""

    path: Callable[[Places], FieldPath]
    value: object


def _annotation(key: str, value: str) -> Change:
    return Change(lambda _: ("metadata", "annotations", key), value)


def _label(key: str, value: str) -> Change:
    return Change(lambda _: ("metadata", "labels", key), value)


def _pod_label(key: str, value: str) -> Change:
    return Change(lambda places: (*places.template[:-1], "metadata", "labels", key), value)


CHANGES: Final[Mapping[str, Change]] = {
    "annotation `queuectl.dev/reserved-admission`": _annotation(
        written.ADMISSION_ANNOTATION, '{"attempt":9}'
    ),
    "annotation `queuectl.dev/reserved-stopped`": _annotation(written.STOPPED_ANNOTATION, '{"attempt":9}'),
    "annotation `queuectl.dev/reserved-release`": _annotation(
        written.RELEASE_ANNOTATION, "uid/1 by admin: its node is gone"
    ),
    "annotation `queuectl.dev/reserved-bypass`": _annotation(written.BYPASS_ANNOTATION, "admin"),
    "annotation `queuectl.dev/reserved-submitter`": _annotation(written.SUBMITTER_ANNOTATION, "admin"),
    "annotation `queuectl.dev/reserved-groups`": _annotation(written.GROUPS_ANNOTATION, "admins"),
    "annotation `queuectl.dev/user`": _annotation(written.USER_ANNOTATION, "admin"),
    "annotation `queuectl.dev/bypass`": _annotation(written.REASON_OF_BYPASS, "the demo is at noon"),
    "annotation `queuectl.dev/idle-exempt`": _annotation(written.IDLE_EXEMPT, "it serves"),
    "annotation `queuectl.dev/hold`": _annotation("queuectl.dev/hold", "true"),
    "annotation `queuectl.dev/reason`": _annotation("queuectl.dev/reason", "hold by ada: later"),
    "annotation `queuectl.dev/min-parallelism`": _annotation("queuectl.dev/min-parallelism", "1"),
    "annotation `queuectl.dev/completions-equal-parallelism`": _annotation(
        "queuectl.dev/completions-equal-parallelism", "true"
    ),
    "annotation `queuectl.dev/after`": _annotation("queuectl.dev/after", "ok:Job/prepare"),
    "annotation `queuectl.dev/begin`": _annotation("queuectl.dev/begin", "2030-01-01T00:00:00Z"),
    "annotation `queuectl.dev/max-running`": _annotation("queuectl.dev/max-running", "5"),
    "label `queuectl.dev/queue-name`": _label(QUEUE, "other"),
    "label `queuectl.dev/priority-class`": _label("queuectl.dev/priority-class", "high"),
    "label `queuectl.dev/max-exec-time-seconds`": _label("queuectl.dev/max-exec-time-seconds", "60"),
    "label of an account key, `queuectl.dev/array`": _label("queuectl.dev/array", "sweep"),
    "field that suspends": Change(lambda places: places.suspend, False),
    "number of pods": Change(lambda places: places.pods, 3),
    "pod template: spec": Change(lambda places: (*places.template, "nodeSelector"), {"pool": "mine"}),
    "pod template: label `queuectl.dev/queue-name`": _pod_label(QUEUE, "another"),
    "pod template: label `queuectl.dev/workload`": _pod_label(written.WORKLOAD_LABEL, "another"),
    "pod template: label `queuectl.dev/cluster-queue`": _pod_label(written.CLUSTER_QUEUE_LABEL, "another"),
    "pod template: label `queuectl.dev/podset`": _pod_label(written.PODSET_LABEL, "another"),
    "pod template: label `queuectl.dev/flavor`": _pod_label(written.FLAVOR_LABEL, "another"),
}


def _table() -> dict[str, dict[str, str]]:
    """Of each row, who may write it by phase, from the first that has a queue label."""
    found = {}
    for line in PAGE.read_text().partition("What no policy of the gate covers")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and not set(cells[0]) <= {"-"} and cells[0] != "what":
            found[cells[0]] = dict(zip(PHASES[1:], cells[1:], strict=True))
    return found


TABLE: Final = _table()


def users_may(row: str, phase: str) -> bool:
    """Return whether the table lets users write it."""
    return phase == PHASES[0] or TABLE[row][phase].startswith("users")
