"""`python -m tests.unit.cli.documented` updates docs/cli.md and docs/answers.md: what commands print."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from unittest.mock import patch

from click.testing import CliRunner

import queuectl
from queuectl.cli import main
from queuectl.core.model.capacity import (
    AwaitedLimit,
    ClusterQueueDemand,
    FlavorCapacity,
    FlavorResourceCapacity,
    FreeNodes,
    NodeFacts,
    PodDemand,
)
from queuectl.core.model.policy import CapacityMode, Node
from queuectl.core.model.reasons import Code, PreemptionCause, Reason
from queuectl.core.model.workload import ConfigKey, Phase, StoredWorkload, Verb
from queuectl.ports.reader import DecisionRow, EffectRow, Held
from tests.unit.api.canned import (
    EPOCH_START,
    GPU,
    WAITS,
    CannedReadings,
    decision,
    queue_spec,
    two_teams,
    workload,
)
from tests.unit.api.canned_nodes import with_nodes
from tests.unit.cli.clusters import Cluster, kubeconfig
from tests.unit.cli.servers import answering, rest

PAGE: Final = Path(queuectl.__file__).parent.parent / "docs" / "cli.md"
ANSWERS: Final = PAGE.parent / "answers.md"
PAGES: Final = (PAGE, ANSWERS)
NOW: Final = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)
_BLOCK: Final = re.compile(r"```console\n\$ queuectl ([^\n]*)\n.*?```", re.DOTALL)
_QUEUES: Final = "/apis/queuectl.dev/v1beta1/namespaces/default/localqueues"
_LABELS: Final = {"queuectl.dev/queue-name": "main"}
_POD = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}


def rendered(page: Path) -> str:
    """The text of a page with the current output of each of its commands."""
    with place(past=page == ANSWERS) as folder:

        def printed(block: re.Match[str]) -> str:
            flags = ["--kubeconfig", str(folder / "kubeconfig")]
            result = CliRunner().invoke(main, [*flags, *shlex.split(block[1])], prog_name="queuectl")
            assert result.exit_code == 0, result.output
            return f"```console\n$ queuectl {block[1]}\n{result.stdout}```"

        return _BLOCK.sub(printed, page.read_text())


@contextmanager
def place(*, past: bool, nodes: bool = False) -> Iterator[Path]:
    """Two teams, an API server, and a fixed clock. `past`: also what was days ago. `nodes`: also a node."""
    readings = two_teams()
    _live(readings)
    if nodes:
        readings.node(NodeFacts(name="gpu-1", node=Node("gpu-1", allocatable=((GPU, 8),))))
    if nodes:
        with_nodes(readings)
    if past:
        _night(readings)
        _lent(readings)
        _preempted(readings)
    cluster = Cluster()
    cluster.add(
        "/apis/batch/v1/namespaces/default/jobs/small", metadata={"labels": _LABELS}, spec={"suspend": False}
    )
    cluster.add(
        "/apis/batch/v1/namespaces/default/jobs/waits",
        metadata={"labels": _LABELS, "namespace": "default"},
        spec={"suspend": True, "parallelism": 3, "completions": 3, "template": {"spec": _POD}},
    )
    for name in ("large", "urgent", "busy", "next"):
        job = f"/apis/batch/v1/namespaces/default/jobs/{name}"
        cluster.add(job, metadata={"labels": _LABELS}, spec={"suspend": True})
    cluster.says_user = "alice"
    for name in ("main", "research"):
        cluster.add(f"{_QUEUES}/{name}", spec={"clusterQueue": "team-a"})
    cluster.add("/apis/queuectl.dev/v1beta1/workloadpriorityclasses/high", value=100)
    status = {"pendingWorkloads": 2, "admittedWorkloads": 2}
    cluster.add("/apis/queuectl.dev/v1beta1/clusterqueues/team-a", spec={"stopPolicy": "None"}, status=status)
    with (
        tempfile.TemporaryDirectory() as name,
        rest(readings) as url,
        answering(cluster.answer) as server,
        patch("queuectl.cli.rest._date", lambda _: NOW),
        patch.dict(os.environ, {"QUEUECTL_SERVER": url, "COLUMNS": "112", "TZ": "UTC"}),
    ):
        time.tzset()
        kubeconfig(Path(name), server)
        yield Path(name)
    time.tzset()


def _live(readings: CannedReadings) -> None:
    """The decisions on one of the workloads, and the nodes."""
    waits = workload("waits", 3)
    there(readings)
    readings.commit(configs={ConfigKey("Namespace", "", "default"): '{"labels": {}}'})
    preempted = Reason(code=Code.PREEMPTED, cause=PreemptionCause.IN_CLUSTER_QUEUE, by="default/Job/urgent")
    pods = {"name": "main", "count": 6, "requests": {}, "flavors": {"nvidia.com/gpu": "a100"}}
    steps: tuple[tuple[str, Reason | None, dict[str, object], int | None], ...] = (
        ("Queued", None, {"queue": "main", "priority": 0, "submitter": "alice"}, None),
        ("Admitted", None, {"clusterQueue": "team-a", "podSets": [pods], "debt": False}, 1),
        ("Evicted", preempted, {}, 1),
        ("Released", None, {"detail": "all of its pods are gone"}, 1),
        ("Pending", WAITS, {}, None),
    )
    for sequence, (verdict, reason, payload, attempt) in enumerate(steps, 1):
        row = decision(sequence, waits, verdict, reason)
        readings.rows.append(_with(row, payload=payload, attempt=attempt))
        readings.commit()
    readings.effects = [
        EffectRow(2, Verb.START, 1, acknowledged_at=EPOCH_START + timedelta(seconds=2.4)),
        EffectRow(3, Verb.STOP, 1, acknowledged_at=EPOCH_START + timedelta(seconds=3.4)),
    ]


def there(readings: CannedReadings) -> None:
    """Three nodes of which one is cordoned; a notebook uses a device."""
    gpus = FlavorResourceCapacity(
        resource=GPU,
        mode=CapacityMode.ENFORCE,
        allocatable=(("Ready", 8), ("Cordoned", 4)),
        used=5,
        unmanaged=(("notebooks", 1),),
        expected=1,
        free=1,
        shapes=(FreeNodes(1, 1),),
    )
    nodes = (("Ready", 2), ("Cordoned", 1))
    readings.capacity(FlavorCapacity(flavor="a100", nodes=nodes, resources=(gpus,)))
    wide = PodDemand(flavor="a100", awaits=AwaitedLimit.QUOTA, workloads=1, pods=6, requests=((GPU, 1),))
    readings.demand(ClusterQueueDemand("team-a", (wide,)))


def _night(readings: CannedReadings) -> None:
    """A workload that is over, and the last of those of its queue that started before it."""
    night = replace(workload("night", 6), attempts=2, created_at=EPOCH_START - timedelta(days=2))
    readings.commit(night)
    readings.end(night)
    pending = Reason(code=Code.WAITING_FOR_PREEMPTED_WORKLOADS, node="ClusterQueue/team-a")
    taken = Reason(code=Code.PREEMPTED, cause=PreemptionCause.IN_CLUSTER_QUEUE, by="default/Job/urgent")
    queue: dict[str, object] = {"clusterQueue": "team-a"}
    other = workload("earlier", 7)
    steps: tuple[tuple[StoredWorkload, int, str, Reason | None], ...] = (
        (night, 9, "Queued", None),
        (night, 9, "Pending", WAITS),
        *((other, 60 * minute, "Admitted", None) for minute in (50, 110, 160)),
        (night, 160 * 60, "Admitted", None),
        (night, 240 * 60, "Evicted", taken),
        (night, 241 * 60, "Released", None),
        (night, 241 * 60, "Pending", WAITS),
        (night, 420 * 60, "Pending", pending),
        (night, 432 * 60, "Admitted", None),
        (night, 1100 * 60, "Retired", None),
    )
    for number, (of, seconds, verdict, reason) in enumerate(steps, readings.sequence + 1):
        row = decision(number, of, verdict, reason)
        at = EPOCH_START - timedelta(days=2) + timedelta(seconds=seconds)
        payload = {**queue, "outcome": "Succeeded"} if verdict == "Retired" else queue
        readings.rows.append(_with(row, now=at, payload=payload, attempt=1))
    readings.sequence += len(steps)


def _lent(readings: CannedReadings) -> None:
    """Two days in which `team-c` borrowed from `team-a`, and now `team-a` from `team-c`."""
    begin = EPOCH_START - timedelta(days=2)
    readings.commit(
        workload("busy", 8, cluster_queue="team-a", phase=Phase.ADMITTED, gpus=3),
        workload("next", 10, cluster_queue="team-c"),
        configs={
            ConfigKey("ClusterQueue", "", "team-c"): queue_spec(
                4, cohort="all", preemption={"reclaimWithinCohort": "Any"}
            ),
            ConfigKey("Cohort", "", "all"): json.dumps({"fairSharing": {"enabled": True}}),
        },
    )
    for queue, gpus, start, end in (
        ("team-c", 6, 4, 22),
        ("team-a", 4, 2.5, 4),
        ("team-a", 4, 7.2, 18.3),
        ("team-a", 9, 40, None),
    ):
        until = None if end is None else begin + timedelta(hours=end)
        readings.held.append(Held(queue, "a100", GPU, gpus, begin + timedelta(hours=start), until))


def _preempted(readings: CannedReadings) -> None:
    """A workload of `team-c` made room for one of `team-a`, by their shares."""
    busy = workload("lender", 9, queue="other")
    shares = {
        "preemptor": {"node": "ClusterQueue/team-a", "before": 0, "after": 84},
        "victim": {"node": "ClusterQueue/team-c", "before": 500, "after": 0},
    }
    pods = {"name": "main", "count": 6, "requests": {GPU: 1}, "flavors": {GPU: "a100"}}
    taken = Reason(code=Code.PREEMPTED, cause=PreemptionCause.IN_COHORT_FAIR_SHARING, by="default/Job/busy")
    steps: tuple[tuple[float, str, Reason | None, dict[str, object]], ...] = (
        (4, "Admitted", None, {"clusterQueue": "team-c", "podSets": [pods]}),
        (22, "Evicted", taken, {"preemptor": "uid-8", "shares": shares}),
    )
    for number, (hours, verdict, reason, payload) in enumerate(steps, readings.sequence + 1):
        at = EPOCH_START - timedelta(days=2) + timedelta(hours=hours)
        row = decision(number, busy, verdict, reason)
        readings.rows.append(_with(row, now=at, payload=payload, attempt=1))
    readings.sequence += len(steps)


def _with(row: DecisionRow, **more: object) -> DecisionRow:
    return replace(row, **more)  # type: ignore[arg-type]


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rendered(page))
