"""Numbers of pods that are edited while operators run them: what runs is charged at every moment (L15)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from queuectl.kinds.podsets import Templates
from queuectl.kube.errors import ApiError
from tests.acceptance.operators.cells import COVERED, Work, cell
from tests.acceptance.operators.charges import charged, requested
from tests.acceptance.operators.kinds import BY_NAME
from tests.acceptance.operators.site import Site
from tests.acceptance.operators.subjects import GPU

pytestmark = pytest.mark.asyncio(loop_scope="session")
Json = dict[str, Any]
RESIZED = [
    *(("all", "Job", "main"), ("all", "PyTorchJob", "worker"), ("all", "RayCluster", "small")),
    *(("mpi", "Job", "main"), ("mpi", "MPIJob", "worker")),
]
"""Site, kind and podset."""


@pytest.mark.parametrize(
    ("site", "kind", "pod_set"), RESIZED, ids=[f"site={s}-{k}" for s, k, _ in RESIZED], indirect=["site"]
)
async def test_fewer_pods_return_their_quota_when_they_are_gone(site: Site, kind: str, pod_set: str) -> None:
    async with cell(site, BY_NAME[kind], f"numbers {kind}") as place:
        work = await place.submit("w", stop=3.0)
        await work.runs()
        pods = place.subject.pods

        def equal() -> bool:
            """In the meantime no more runs than is charged, beside pods that others take the place of."""
            alive, held = work.pods(), charged(work)
            staying = [pod for pod in alive if "deletionTimestamp" not in pod["metadata"]]
            assert requested(staying, COVERED) <= held
            return len(alive) == pods - 1 and requested(alive, COVERED) == held

        await work.merge(_with(work, pod_set, 1))
        if (
            kind != "PyTorchJob"
        ):  # its operator counts a pod that is being deleted, and wanted again, as failed
            await work.merge(_with(work, pod_set, 2))  # its quota is held while a pod of it is alive
            await work.merge(_with(work, pod_set, 1))
        await work.until("the quota of a pod returns", equal)
        assert charged(work)[GPU] == pods - 1
        with pytest.raises(ApiError, match="can't grow while it runs"):
            await work.merge(_with(work, pod_set, 2))
        await work.hold()
        await work.pending()
        await work.merge(_with(work, pod_set, 2))
        await work.let_go()
        await work.runs()
        assert charged(work) == requested(work.pods(), COVERED)


def _with(work: Work, pod_set: str, count: int) -> Json:
    """A patch of the number of pods of one podset."""
    obj: Any = copy.deepcopy(work.seen())
    podsets = work.cell.subject.row.podsets
    assert isinstance(podsets, Templates)
    names = [one.name for one in podsets.find(obj)]
    found = podsets.entry(pod_set, names.index(pod_set))
    assert found is not None
    group, path = found
    entry = obj
    for key in path:
        entry = entry[key]
    entry[group.counts[0].path[0]] = count
    if group.counts[0].at_least:
        entry[group.counts[0].at_least[0]] = 0
    return {
        "spec": {
            path[1] if len(path) > 1 else "parallelism": obj["spec"][path[1]] if len(path) > 1 else count
        }
    }
