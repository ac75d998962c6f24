"""The examples of Kueue's documentation, converted by `queuectl import kueue`, on the real operators.

Each is one file of kueue_examples/, with its source and what is changed. No image is run: the player of the
kubelet runs the pods until the test ends them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from click.testing import CliRunner

from queuectl.cli import main
from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import ConfigKey, Phase, WorkloadOutcome
from queuectl.kinds.jobs import QUEUE_LABEL
from queuectl.sandbox.install import Installer
from queuectl.sandbox.players.kubelet import FAKE_NODE, RUN_SECONDS
from tests.acceptance.operators.cells import Cell, Work
from tests.acceptance.operators.charges import charged, requested
from tests.acceptance.operators.conftest import PROGRAMS
from tests.acceptance.operators.site import Site
from tests.acceptance.operators.subjects import LONG, Subject
from tests.job_kinds import JOB_KINDS

pytestmark = pytest.mark.asyncio(loop_scope="session")
Json = dict[str, Any]
FOLDER: Final = Path(__file__).parent / "kueue_examples"
NAMESPACE, QUEUE, NODE = "default", "user-queue", "untainted"
COVERED: Final = ("cpu", "memory")


class Example(NamedTuple):
    """One file."""

    name: str
    pods: int
    """So many run at one time."""
    site: str = "all"
    initial_memory: int = 0
    """Bytes that init containers request in pods that request no memory themselves: not charged."""
    endless: bool = False
    """No end of it is shown: a RayCluster has none, and that of a RayJob is told by the dashboard of Ray."""


EXAMPLES: Final = (
    Example("job", 3),
    Example("pytorchjob", 2),
    Example("tfjob", 4),
    Example("xgboostjob", 3),
    Example("paddlejob", 2),
    Example("jaxjob", 2),
    Example("jobset", 5),
    Example("trainjob", 1),
    Example("raycluster", 2, endless=True),
    Example("rayjob", 3, initial_memory=256 * 2**20, endless=True),
    Example("mpijob", 3, site="mpi"),
)
ON_SITES: Final = [
    pytest.param(name, example, id=f"site={name}-{example.name}")
    for name in PROGRAMS
    for example in EXAMPLES
    if example.site == name
]


def converted(name: str) -> list[Json]:
    """What `queuectl import kueue` makes of a file."""
    found = CliRunner().invoke(main, ["import", "kueue", "-f", str(FOLDER / f"{name}.yaml")])
    assert found.exit_code == 0, found.output
    return [lasting(one) for one in yaml.safe_load_all(found.stdout)]


def lasting(value: Any) -> Any:
    """Annotate all pod templates, so that their pods don't end by themselves in 10 s."""
    if isinstance(value, list):
        return [lasting(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: lasting(one) for key, one in value.items()}
    if "containers" in (made.get("spec") or {}):
        made["metadata"] = {**made.get("metadata", {}), "annotations": {RUN_SECONDS: f"{LONG:g}"}}
    return made


@asynccontextmanager
async def queued(site: Site) -> AsyncIterator[None]:
    """The queues of Kueue's documentation, and a node for their flavor, which has no labels."""
    room = {"cpu": "100", "memory": "1T", "pods": "100"}
    node: Json = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {FAKE_NODE: "true"}},
        "status": {"capacity": room, "allocatable": room},
    }
    await Installer(site.admin).apply([node, *converted("queues")])
    try:
        yield
    finally:
        path = f"/apis/queuectl.dev/v1beta1/namespaces/{NAMESPACE}/localqueues/{QUEUE}"
        await site.admin.request("DELETE", path)
        key = ConfigKey("LocalQueue", NAMESPACE, QUEUE)
        await site.until("the LocalQueue is gone", lambda: site.store.configs[key][1] is None)


@pytest.mark.parametrize(("site", "example"), ON_SITES, indirect=["site"], scope="session")
async def test_an_example_of_kueue_is_queued_started_and_finished(site: Site, example: Example) -> None:
    *needed, body = converted(example.name)
    await Installer(site.tenant).apply(needed)
    row = JOB_KINDS.of(body["apiVersion"], body["kind"])
    assert row is not None
    subject = Subject(row, site.name, {"all": example.pods}, lambda parts, settings: body["spec"])
    cell = Cell(site, subject, NAMESPACE)
    try:
        work = await cell.create(body)
        assert work.made["metadata"]["labels"][QUEUE_LABEL] == QUEUE
        await _waits_for_its_queue(work)
        async with queued(site):
            await work.runs(NODE)
            initial = Counter(memory=example.initial_memory)
            assert charged(work) + initial == requested(work.pods(), COVERED)
            await (work.delete() if example.endless else _finishes(work))
            await work.until("it is over", lambda: work.retired)
        assert work.verdicts() == [Verdict.ADMITTED, Verdict.RETIRED]
    finally:
        await cell.end()


async def _waits_for_its_queue(work: Work) -> None:
    assert work.cell.subject.row.suspended(work.made)

    def waits() -> bool:
        stored = work.stored
        return (
            stored is not None
            and stored.phase is Phase.PENDING
            and stored.reason is not None
            and stored.reason.code is Code.QUEUE_NOT_FOUND
        )

    await work.until("it waits for its queue", waits)
    assert not work.pods()


async def _finishes(work: Work) -> None:
    """All its pods succeed, and its operator says that it has."""
    await work.succeed()
    outcome = work.cell.subject.row.outcome
    await work.until("it has succeeded", lambda: outcome(work.seen() or {}) is WorkloadOutcome.SUCCEEDED)
