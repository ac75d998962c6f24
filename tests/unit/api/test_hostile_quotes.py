"""Questions never change the answers of other callers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from queuectl.answers import trial_snapshot as basis
from queuectl.answers.state import CommittedState
from queuectl.answers.what_if.trials import trials_of
from queuectl.core.model.workload import Phase, PodSet, WorkloadId
from queuectl.kinds.policy import parse_policy
from queuectl.kinds.sample import as_created
from tests.job_kinds import JOB_KINDS
from tests.unit.api.canned import EPOCH_START, GPU, WAITS, CannedReadings, queue_spec, workload
from tests.unit.api.conftest import Rest
from tests.unit.api.test_what_ifs import LARGER, ledger, manifest
from tests.unit.core import profiles

Serve = Callable[..., Awaitable[Rest]]
NAMES = ("runs", "guest", "waits", "ends", "late", "new")
UIDS = ("uid-1", "uid-2", "uid-3", "uid-7", "uid-8", "sample", "nothing", "", 7, None)


def crowded() -> CannedReadings:
    """With a workload that is being evicted, and one that waits behind `waits`."""
    readings = ledger()
    pods = PodSet(name="main", count=6, requests=((GPU, 1),))
    readings.commit(
        workload("ends", 7, phase=Phase.EVICTING, gpus=1),
        replace(workload("late", 8, reason=WAITS), pod_sets=(pods,)),
    )
    return readings


def hostile(dice: Random) -> dict[str, Any]:
    """An object whose creator wrote what the API server, queuectl and controllers write."""
    uid, name = dice.choice(UIDS), dice.choice(NAMES)
    attempt = f"{uid}/1 by admin: its node is dead"
    admission: dict[str, Any] = {"workload": uid, "attempt": 1, "sequence": 1, "podSets": []}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    metadata: dict[str, Any] = {
        "uid": uid,
        "name": name,
        "generation": dice.choice((0, 1, 2**63, "x")),
        "resourceVersion": dice.choice(("1", 1, None)),
        "creationTimestamp": dice.choice(("1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "x", 5)),
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [owner],
        "managedFields": [{}],
        "annotations": {
            "queuectl.dev/hold": "true",
            "queuectl.dev/reserved-admission": json.dumps(admission),
            "queuectl.dev/reserved-stopped": f"{uid}/1",
            "queuectl.dev/reserved-release": attempt,
            "queuectl.dev/reserved-submitter": "admin",
            "queuectl.dev/reserved-bypass": "admin",
        },
        "labels": {
            "queuectl.dev/queue-name": dice.choice(("main", "small")),
            "queuectl.dev/priority-class": dice.choice(("high", "low")),
            "queuectl.dev/workload": uid,
        },
    }
    chosen = {key: value for key, value in metadata.items() if dice.random() < 0.5}
    done = {"type": "Complete", "status": "True"}
    body = manifest(pods=dice.choice((1, 2, 6, 9)), gpus=dice.choice((1, 1, 3)), **chosen)
    if dice.random() < 0.5:
        body["status"] = {"active": 3, "startTime": "2026-01-01T00:00:00Z", "conditions": [done]}
    body["spec"]["suspend"] = dice.choice((True, False))
    return body


SMALLER = {"kind": "ClusterQueue", "metadata": {"name": "team-a"}, "spec": json.loads(queue_spec(1))}
PLANS: tuple[dict[str, Any], ...] = (
    LARGER,
    {"objects": [SMALLER]},
    {"deleted": [{"kind": "ResourceFlavor", "metadata": {"name": "a100"}}]},
    {"deleted": [{"kind": "LocalQueue", "metadata": {"name": "main", "namespace": "default"}}]},
)


async def ask(rest: Rest, dice: Random) -> None:
    match dice.randrange(4):
        case 0:
            path = f"/api/v1/workloads/{dice.choice(('default', 'other'))}/job/{dice.choice(NAMES)}"
            await rest.client.get(f"{path}/counterfactuals")
        case 1:
            await rest.client.post("/api/v1/plan", json=dice.choice(PLANS))
        case _:
            answer = await rest.client.post("/api/v1/quote", json=hostile(dice))
            assert answer.status in (200, 400, 404), await answer.text()


ASKED = (
    manifest(),
    manifest(pods=2),
    manifest(pods=9),
    manifest(labels={"queuectl.dev/queue-name": "small"}),
)


async def told(rest: Rest) -> list[Any]:
    """What a caller in good faith is told."""
    found = []
    for name in NAMES[:5]:
        answer = await rest.client.get(f"/api/v1/workloads/default/job/{name}/counterfactuals")
        found.append(await answer.json(content_type=None))
    for path, body in (*(("quote", one) for one in ASKED), *(("plan", one) for one in PLANS)):
        answer = await rest.client.post(f"/api/v1/{path}", json=body)
        assert answer.status == 200, await answer.text()
        found.append(await answer.json())
    for document in found:
        for field in ("ageSeconds", "controller"):
            document.pop(field, None)
    return found


@pytest.mark.parametrize("seed", range(profiles.examples(20)))
async def test_after_any_questions_answers_are_those_of_a_new_server(serve: Serve, seed: int) -> None:
    dice = Random(seed)
    asked = await serve(crowded())
    for _ in range(8):
        await ask(asked, dice)
    fresh = await serve(crowded())
    assert await told(asked) == await told(fresh)


@pytest.mark.parametrize("seed", range(profiles.examples(50)))
def test_a_quoted_object_names_no_other_object(seed: int) -> None:
    body = hostile(Random(seed))
    row = JOB_KINDS.of(body["apiVersion"], body["kind"])
    assert row is not None
    found = as_created(row, body)
    assert found.id == found.ref.uid == "sample"
    assert (found.owner, found.created_at.year) == (None, 1970)
    assert (found.submitter, found.hold_reason) == (None, None)


async def test_a_workload_that_holds_quota_is_not_tried_as_another_one() -> None:
    state = CommittedState().advance(await crowded().since(0), parse_policy)
    of = basis.of_namespace(state, EPOCH_START, "default")
    trials = trials_of(of.snapshot(), of.configuration, namespace="default")
    body = manifest()
    row = JOB_KINDS.of(body["apiVersion"], body["kind"])
    assert row is not None
    for uid in ("uid-1", "uid-2", "uid-7"):
        with pytest.raises(ValueError, match=f"{uid} holds quota"):
            trials.with_workload(replace(as_created(row, body), id=WorkloadId(uid)))
