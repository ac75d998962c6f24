"""What a tenant's object adds to tables that only grow: rows for each change, and bytes for each row.

docs/threats.md has the bounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest

from queuectl.core.decisions import Configure
from queuectl.core.features.devices.claims import MOST_RECORDED
from queuectl.core.model.devices import ResourceClaimTemplate
from queuectl.core.model.events import ContextGone, ContextObserved, Event, WorkloadGone
from queuectl.core.model.resources import CPU
from queuectl.core.model.workload import WorkloadId
from queuectl.kinds.context import CONTEXT_KINDS
from queuectl.kinds.workloads import observe
from queuectl.ledger.codec import dump, reason_to_json
from queuectl.ledger.shared_rows import shape_of
from queuectl.ledger.write.plan_rows import Fold
from tests.builders import GPU, World, flavor, group, local_queue, policy, queue
from tests.job_kinds import JOB_KINDS
from tests.unit.core.features.devices.test_device_claims import MAPPED
from tests.unit.kinds.job_objects import container, job

KIB = 1024
DECISION = 8 * KIB
"""Bytes of a decision, without podsets."""
ROW = 64 * KIB
"""Bytes of the row of a workload, without podsets."""
REQUESTS = MOST_RECORDED * 512
"""Bytes that the requests of its claims add to its podsets."""
WAITING = 5

Object = dict[str, Any]


class Rows(NamedTuple):
    decisions: int
    others: int
    """Of attempts, holds and effects."""
    largest: int
    """Bytes of the largest decision, without podsets."""
    podsets: int
    """Bytes of the largest podsets."""
    own: int
    """Bytes of the largest row of a workload, without podsets."""


@dataclass
class Tenant:
    """A world with a ClusterQueue of some GPUs, and what the last changes add to the ledger."""

    gpus: int = 0

    def __post_init__(self) -> None:
        self.world = World(
            flavor("default"),
            queue("cq", groups=[group({"default": {GPU: self.gpus, CPU: 10**9}})]),
            local_queue("main", "cq", namespace="team-a"),
            local_queue("other", "cq", namespace="team-a"),
            namespaces=["team-a"],
            settings=MAPPED,
        )
        self.world.run()

    def write(self, *events: Event | None) -> Rows:
        """Of each plan as it is stored."""
        known = self.world.sequence
        self.world.tell(*(event for event in events if event is not None))
        before = len(self.world.decided)
        self.world.run()
        fold = Fold(known + 1, self.world.now, 0)
        fold.add_all(d for d in self.world.decided[before:] if getattr(d, "recorded", True))
        seen = [one for segment in fold.segments for one in segment.seen]
        sizes = [len(dump(_without_podsets(line.payload))) for line in fold.lines]
        sizes += [len(dump(reason_to_json(line.reason))) for line in fold.lines if line.reason is not None]
        return Rows(
            len(fold.lines),
            sum(len(s.opened) + len(s.holds) + len(s.effects) for s in fold.segments),
            max(sizes, default=0),
            max((len(shape_of(one.pod_sets).json) for one in seen), default=0),
            max((len(dump([one.labels, one.options, *one.ref, one.queue])) for one in seen), default=0),
        )


def _without_podsets(payload: Object) -> Object:
    return {key: value for key, value in payload.items() if key != "podSets"}


def seen(obj: Object, name: str = "train", *, generation: int = 1, **metadata: Any) -> Event | None:
    obj = json.loads(json.dumps(obj))
    labels = {**obj["metadata"].get("labels", {}), **metadata.pop("labels", {})}
    obj["metadata"] |= {"name": name, "uid": f"uid-{name}", "generation": generation, "labels": labels}
    obj["metadata"] |= metadata
    return observe(JOB_KINDS["Job"], obj)


def claiming(name: str) -> Object:
    obj = job()
    claims = [{"name": "gpu", "resourceClaimTemplateName": name}]
    obj["spec"]["template"]["spec"] |= {"resourceClaims": claims}
    return obj


def template(count: int, **metadata: Any) -> ContextObserved | None:
    request = {"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": count}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    obj = {"metadata": {"name": "one", "namespace": "team-a", **metadata}, "spec": spec}
    return CONTEXT_KINDS["ResourceClaimTemplate"].event(obj)


def _named_template(change: Callable[[int], Event | None]) -> Callable[[], Rows]:
    def written() -> Rows:
        tenant = Tenant()
        tenant.write(template(1), *(seen(claiming("one"), f"job-{n}") for n in range(WAITING)))
        return tenant.write(change(2))

    return written


def _after(before: Event | None, *after: Event | None, gpus: int = 0) -> Callable[[], Rows]:
    def written() -> Rows:
        tenant = Tenant(gpus)
        tenant.write(before)
        return tenant.write(*after)

    return written


GONE = ContextGone(ResourceClaimTemplate, "team-a/one")
MORE = job(parallelism=3)
CHANGES: dict[str, tuple[Callable[[], Rows], int, int]] = {
    "a template that no workload names is made": (lambda: Tenant().write(template(1)), 0, 0),
    "a template that no workload names is deleted": (_after(template(1), GONE), 0, 0),
    "a template that waiting workloads name asks for more": (_named_template(template), WAITING, 0),
    "a template that waiting workloads name is deleted": (_named_template(lambda _: GONE), 2 * WAITING, 0),
    "a template that waiting workloads name is annotated": (
        _named_template(lambda _: template(1, annotations={"a": "b" * 1000})),
        *(0, 0),
    ),
    "a workload is created that waits": (lambda: Tenant().write(seen(job())), 2, 0),
    "a workload is created that starts": (lambda: Tenant(99).write(seen(job())), 2, 3),
    "a waiting workload is deleted": (_after(seen(job()), WorkloadGone(WorkloadId("uid-train"))), 1, 0),
    "a waiting workload is annotated": (
        _after(seen(job()), seen(job(), annotations={"note": "x" * 1000}, resourceVersion="42")),
        *(0, 0),
    ),
    "a waiting workload gets another label": (_after(seen(job()), seen(job(), labels={"a": "b"})), 0, 0),
    "a waiting workload goes to another queue": (
        _after(seen(job()), seen(job(), labels={"queuectl.dev/queue-name": "other"})),
        *(1, 0),
    ),
    "a waiting workload asks for more": (_after(seen(job()), seen(MORE, generation=2)), 2, 0),
    "a waiting workload is put on hold": (
        _after(seen(job()), seen(job(), annotations={"queuectl.dev/hold": "true"})),
        *(1, 0),
    ),
    "a workload on hold is let go again": (
        _after(seen(job(), annotations={"queuectl.dev/hold": "true"}), seen(job())),
        *(1, 0),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_tenant_adds_a_bounded_number_of_rows(name: str) -> None:
    written, decisions, others = CHANGES[name]
    found = written()
    assert (found.decisions, found.others) == (decisions, others)
    assert found.largest <= DECISION


def large_job() -> Object:
    """A Job with long texts wherever its author may write some."""
    obj, name = job(), "n" * 253
    obj["metadata"]["labels"] |= {f"{'p' * 200}/{n}": "v" * 63 for n in range(1000)}
    obj["metadata"]["labels"]["queuectl.dev/priority-class"] = name
    obj["metadata"]["annotations"] = {"queuectl.dev/hold": "true", "queuectl.dev/hold-reason": "r" * 100_000}
    spec = obj["spec"]["template"]["spec"]
    spec["containers"] = [container({f"example.com/{name[:50]}-{n}": "1"}) for n in range(60)]
    spec["nodeSelector"] = {f"{'k' * 60}-{n}": "v" * 63 for n in range(500)}
    spec["tolerations"] = [{"key": f"{'t' * 200}-{n}", "operator": "Exists"} for n in range(500)]
    spec["resourceClaims"] = [{"name": f"c{n}", "resourceClaimTemplateName": "one"} for n in range(1000)]
    return obj


def test_the_largest_object_of_a_tenant_adds_rows_of_bounded_size() -> None:
    obj = large_job()
    tenant = Tenant()
    requests = [
        {
            "name": f"g{n}",
            "firstAvailable": [{"deviceClassName": "c" * 253, "name": f"{m}"} for m in range(8)],
        }
        for n in range(32)
    ]
    spec = {"spec": {"devices": {"requests": requests}}}
    made = {"metadata": {"name": "one", "namespace": "team-a"}, "spec": spec}
    found = tenant.write(CONTEXT_KINDS["ResourceClaimTemplate"].event(made), seen(obj))
    assert found.decisions == 2
    assert found.largest <= DECISION
    assert found.own <= ROW
    assert found.podsets <= 2 * len(json.dumps(obj)) + REQUESTS
    assert found.podsets > REQUESTS / 2


def test_a_tool_that_applies_two_thousand_objects_again_adds_no_revision() -> None:
    queues = [policy(local_queue(f"lq-{n}", "cq", namespace="team-a")) for n in range(2000)]
    tenant = Tenant()
    tenant.world.tell(*queues)
    tenant.world.run()
    before = len(tenant.world.decided)
    tenant.world.tell(*(replace(one) for one in queues))
    tenant.world.run()
    assert not any(isinstance(one, Configure) for one in tenant.world.decided[before:])
