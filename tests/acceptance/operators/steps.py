"""What is tried on each kind: the steps of the matrix, in the order of a workload's life.

A step gets the namespace of its own. What it needs of a kind is in the `Subject`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from queuectl.core.decisions import Verdict
from queuectl.core.model.reasons import Code
from queuectl.core.model.workload import Phase, WorkloadOutcome
from queuectl.kinds.manifests import policy_name
from queuectl.kinds.reserved_keys import SUBMITTER_ANNOTATION
from queuectl.kube.session import MERGE_PATCH
from tests.acceptance.operators.cells import COVERED, Cell, Work, refusal
from tests.acceptance.operators.charges import charged, requested
from tests.acceptance.operators.site import POOLS
from tests.acceptance.operators.subjects import LONG

Step = Callable[[Cell], Awaitable[None]]
LEFT, RIGHT = POOLS


async def created_running(cell: Cell) -> None:
    work = await cell.submit(suspend=False, annotations={"queuectl.dev/hold": "true"})
    assert cell.subject.row.suspended(work.made)
    assert work.made["metadata"]["annotations"][SUBMITTER_ANNOTATION] == "tenant"
    await work.until("it is held", lambda: work.stored is not None)
    assert policy_name(cell.subject.row) in await refusal(work.start_by_force())
    await work.quiet()
    assert not work.pods()
    await work.let_go()
    await work.runs()


async def created_suspended(cell: Cell) -> None:
    work = await cell.submit(run=_brief(cell))
    await _to_its_end(work)
    assert work.verdicts() == [Verdict.ADMITTED, Verdict.RETIRED]
    # The watch of these tests may be behind the controller's consistent list.
    await work.until("its pods are gone", lambda: not work.pods())


async def charged_as_its_pods_are(cell: Cell) -> None:
    work = await cell.submit()
    await work.runs()
    assert charged(work) == requested(work.pods(), COVERED)


async def started_with_flavor_directives(cell: Cell) -> None:
    work = await cell.submit()
    await work.runs(LEFT)
    for pod in work.running():
        assert pod["spec"]["nodeSelector"][f"{LEFT}.example.com/pool"] == "yes"
        assert f"{LEFT}.example.com/only" in {one.get("key") for one in pod["spec"]["tolerations"]}


async def evicted_while_pods_end_slowly(cell: Cell) -> None:
    work = await _being_evicted(cell)
    await work.looked_at()
    assert work.phase is Phase.EVICTING
    assert charged(work)
    await work.let_pods_end()
    await work.pending()


async def resumed_while_suspending(cell: Cell) -> None:
    work = await _being_evicted(cell)
    await work.let_go()
    await work.looked_at()
    assert (work.attempts, work.phase, work.suspended) == (1, Phase.EVICTING, True)
    await work.let_pods_end()
    await work.admitted(2)
    await work.runs()


async def restarted_on_other_label_keys(cell: Cell) -> None:
    work = await _evicted(cell)
    await cell.move_quota(RIGHT)
    await work.let_go()
    await work.runs(RIGHT)
    for pod in work.running():
        assert f"{LEFT}.example.com/pool" not in pod["spec"]["nodeSelector"]
        assert f"{LEFT}.example.com/only" not in {one.get("key") for one in pod["spec"]["tolerations"]}


async def finished_with_pods_left(cell: Cell) -> None:
    work = await cell.submit(**cell.subject.leaves)
    await work.runs()
    await work.succeed(cell.subject.leader)
    await work.until("it has finished", lambda: _finished(work))
    await work.looked_at()
    assert charged(work)
    for pod in work.pods():
        path = f"/api/v1/namespaces/{cell.namespace}/pods/{pod['metadata']['name']}"
        await cell.site.admin.request("DELETE", path)
    await work.until("its quota is back", lambda: work.retired)


async def retried_by_its_own_policy(cell: Cell) -> None:
    work = await cell.submit(**cell.subject.retried)
    await work.runs()
    held, first = charged(work), {pod["metadata"]["uid"] for pod in work.running()}
    failed = await work.fail_a_pod(cell.subject.leader, 137)
    await work.until("another pod is there", lambda: {p["metadata"]["uid"] for p in work.pods()} - first)
    assert failed not in {pod["metadata"]["uid"] for pod in work.pods()}
    await work.runs()
    assert (work.attempts, work.suspended, charged(work)) == (1, False, held)
    await (work.delete() if cell.subject.endless else work.succeed())
    await work.until("it is over", lambda: work.retired)
    assert work.verdicts() == [Verdict.ADMITTED, Verdict.RETIRED]


async def expiring(cell: Cell) -> None:
    work = await _evicted(cell, **cell.subject.expires)
    assert work.seen() is not None
    await work.let_go()
    await work.runs()
    await work.succeed()
    await work.until("it is deleted", lambda: work.seen() is None)
    await work.until("it is over", lambda: work.retired)
    again = [Verdict.EVICTED, Verdict.RELEASED, Verdict.ADMITTED]
    assert work.verdicts() == [Verdict.ADMITTED, *again, Verdict.RETIRED]


async def deleted_in_each_phase(cell: Cell) -> None:
    waits = await cell.submit("waits", annotations={"queuectl.dev/hold": "true"})
    runs, leaves = await cell.submit("runs"), await cell.submit("leaves", stop=3600)
    await waits.until("it waits", lambda: waits.stored is not None)
    for work in (runs, leaves):
        await work.runs()
    await leaves.hold()
    await leaves.until("it is being evicted", lambda: leaves.phase is Phase.EVICTING)
    for work in (waits, runs, leaves):
        await work.delete()
    await leaves.looked_at()
    assert charged(leaves)
    await leaves.let_pods_end()
    for work in (waits, runs, leaves):
        await work.is_over()
    await cell.site.until("no pod is left", lambda: not cell.pods())


async def same_name_again(cell: Cell) -> None:
    first = await cell.submit("same", stop=3600)
    await first.runs()
    held = charged(first)
    await first.delete()
    await first.until("its object is gone", lambda: first.seen() is None)
    second = await cell.submit("same", run=_brief(cell))
    await second.admitted()
    await first.looked_at()
    assert charged(first) == held
    await first.let_pods_end()
    await first.until("its quota is back", lambda: first.retired)
    if cell.subject.retries_late:
        await second.delete()
    await _to_its_end(second)


async def children_pass(cell: Cell) -> None:
    work = await cell.submit(**cell.subject.labelled_children)
    await work.runs()
    children = work.children()
    assert children
    assert not any(one["spec"].get("suspend") for one in children)
    assert cell.workloads() == [work.uid]
    await work.hold()
    await work.pending()
    await work.let_go()
    await work.runs()


async def forged_owner(cell: Cell) -> None:
    owner = await cell.submit("owner")
    await owner.runs()
    body = cell.subject.body("forged", suspend=False)
    reference = {key: body[key] for key in ("apiVersion", "kind")} | {"name": "owner", "uid": owner.uid}
    body["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    forged = await cell.create(body)
    assert cell.subject.row.suspended(forged.made)
    assert policy_name(cell.subject.row) in await refusal(forged.start_by_force())
    later = await cell.submit("later")
    await later.runs()
    assert forged.suspended
    assert not forged.held()
    assert {pod["metadata"]["name"].partition("-")[0] for pod in cell.pods()} == {"owner", "later"}


async def installed_later(cell: Cell) -> None:
    assert cell.subject.row.name in cell.site.absent
    await created_suspended(cell)


async def scaled(cell: Cell) -> None:
    work = await cell.submit()
    await work.runs()
    grown = await refusal(work.merge({"spec": {"replicas": 9}}, "scale"))
    assert "queuectl-scale" in grown
    await work.merge({"spec": {"replicas": 1}}, "scale")
    await work.until("it has shrunk", lambda: len(work.running()) == cell.subject.pods - 1)


async def with_resource_claims(cell: Cell) -> None:
    subject = cell.subject
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    body = subject.body("w")
    for template in _templates(body):
        template["spec"]["resourceClaims"] = claims
    work = await cell.create(body)
    # The watch of its kind may be ahead of the one of its LocalQueue: it has QueueNotFound first then.
    await work.until(
        "its claims are not covered", lambda: work.waits_for(Code.RESOURCE_NOT_COVERED, "resourceClaims")
    )
    assert not work.held()


def _templates(value: object) -> list[dict[str, dict[str, object]]]:
    """All pod templates of a body."""
    if isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and "containers" in spec:
            return [value]
        return [found for part in value.values() for found in _templates(part)]
    return [found for part in value for found in _templates(part)] if isinstance(value, list) else []


def _brief(cell: Cell) -> float:
    """Seconds that pods run for an object that is to end soon."""
    return LONG if cell.subject.endless else 0.3


async def _to_its_end(work: Work) -> None:
    if work.cell.subject.endless:
        await work.runs()
        await work.delete()
    await work.until("it is over", lambda: work.retired)


async def _being_evicted(cell: Cell) -> Work:
    """Its pods are being deleted, and stay until they are let go."""
    work = await cell.submit(stop=3600)
    await work.runs()
    await work.hold()
    await work.until(
        "its pods are being deleted",
        lambda: work.suspended and all(pod["metadata"].get("deletionTimestamp") for pod in work.pods()),
    )
    return work


async def _evicted(cell: Cell, **how: Any) -> Work:
    """It ran, and waits again."""
    work = await cell.submit(**how)
    await work.runs()
    await work.hold()
    await work.pending()
    return work


def _finished(work: Work) -> bool:
    found = work.seen()
    return found is not None and work.cell.subject.row.outcome(found) is not None


async def ended_at_its_limit(cell: Cell) -> None:
    """Its controller fails an object that has a deadline; others are suspended.

    The limit is set when its pods run. Some controllers show no stop of a start that they have not seen yet.
    """
    work = await cell.submit()
    await work.runs()
    limits = {"spec": {"maxExecutionTime": {"default": 3, "onExceeded": "Fail"}}}
    path = f"/apis/queuectl.dev/v1beta1/clusterqueues/{cell.namespace}"
    await cell.site.admin.request("PATCH", path, limits, content_type=MERGE_PATCH)
    await work.until("it is over", lambda: work.retired)
    last = [row for row in cell.site.store.decisions if row.workload == work.uid][-1]
    assert last.payload["outcome"] == WorkloadOutcome.TIMED_OUT
    fails = bool(cell.subject.row.deadline)
    ended = (fails, not fails)
    await work.until(f"finished, suspended: {ended}", lambda: (_finished(work), work.suspended) == ended)
    await work.until("its pods are gone", lambda: not work.pods())


STEPS: Final[dict[str, Step]] = {
    "created running by a tenant": created_running,
    "created suspended": created_suspended,
    "child passes the gate": children_pass,
    "charged as the pods really are": charged_as_its_pods_are,
    "started with flavor directives": started_with_flavor_directives,
    "evicted while pods end slowly": evicted_while_pods_end_slowly,
    "resumed while still suspending": resumed_while_suspending,
    "restarted on a flavor with other label keys": restarted_on_other_label_keys,
    "finished with pods left behind": finished_with_pods_left,
    "retried by its own policy": retried_by_its_own_policy,
    "TTL while suspended": expiring,
    "deleted in each phase": deleted_in_each_phase,
    "same name again": same_name_again,
    "CRD absent, then installed": installed_later,
    "forged ownerReference": forged_owner,
    "scale": scaled,
    "resourceClaims": with_resource_claims,
    "ended at its run time limit": ended_at_its_limit,
}
