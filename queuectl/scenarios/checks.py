"""Checks of a document across its fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from queuectl.kinds.json_fields import BadField
from queuectl.kinds.requests import RequestProblem
from queuectl.scenarios.documents import Cycle, Expect, ScenarioDocument, ScenarioWorkload
from queuectl.scenarios.manifests import BadDocument, Path
from queuectl.scenarios.simulation import Simulation


def problems(document: ScenarioDocument) -> Iterator[BadDocument]:
    known: dict[str, int] = {}
    for number, workload in enumerate(document.workloads):
        here: Path = ("workloads", number)
        first = known.setdefault(workload.reference, number)
        if first != number:
            yield BadDocument((*here, "name"), f"{workload.reference} is given twice")
        if workload.ledger is None:
            yield from _workload(workload, here)
    for path, name in _references(document):
        if name not in known:
            yield BadDocument(path, f"{name} is not a workload of this document")
    if isinstance(document, Simulation):
        yield from _templates(document, set(known))


def _workload(workload: ScenarioWorkload, here: Path) -> Iterator[BadDocument]:
    names = [pod_set.name for pod_set in workload.pod_sets]
    if not names:
        yield BadDocument((*here, "podSets"), "at least one podset is needed")
    if len(set(names)) < len(names):
        yield BadDocument((*here, "podSets"), "two podsets have the same name")
    for number, pod_set in enumerate(workload.pod_sets):
        if pod_set.min_count is not None and pod_set.min_count > pod_set.count:
            where = (*here, "podSets", number, "minCount")
            yield BadDocument(where, f"{pod_set.min_count} is more than the count {pod_set.count}")
    if workload.holds:
        yield from _holder(workload, here)
    elif workload.admission is not None:
        yield BadDocument((*here, "admission"), "a pending workload holds no quota")
    elif (workload.queue is None) == (workload.cluster_queue is None):
        yield BadDocument(here, "a pending workload needs either queue or clusterQueue")


def _holder(workload: ScenarioWorkload, here: Path) -> Iterator[BadDocument]:
    if workload.admission is None:
        yield BadDocument((*here, "state"), f"a workload in state {workload.state} needs an admission")
        return
    asked = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    for name, held in workload.admission.pod_sets.items():
        where = (*here, "admission", "podSets", name)
        if name not in asked:
            yield BadDocument(where, f"{name} is none of its podsets")
            continue
        count = asked[name].count if held.count is None else held.count
        try:
            charged = dict(asked[name].charged) if held.usage is None else held.usage
        except (RequestProblem, BadField) as problem:
            yield BadDocument((*where, "usage"), f"what it holds can't be read from its requests: {problem}")
            continue
        if missing := sorted({resource for resource, n in charged.items() if n} - held.flavors.keys()):
            yield BadDocument((*where, "flavors"), f"no flavor for {', '.join(missing)}")
        for resource, amount in (held.usage or {}).items():
            if amount and (count == 0 or amount % count):
                yield BadDocument((*where, "usage"), f"{resource} can't be split evenly over {count} pods")


def _templates(document: Simulation, known: set[str]) -> Iterator[BadDocument]:
    for number, template in enumerate(document.arrivals):
        here: Path = ("arrivals", number)
        shape = template.shape
        if shape.reference in known:
            yield BadDocument((*here, "name"), f"{shape.reference} is given twice")
        known.add(shape.reference)
        if template.count is None and template.to is None and document.until is None:
            yield BadDocument(here, "never stops: give count or to, or until to the whole document")
        yield from _workload(shape, here)


def _references(document: ScenarioDocument) -> Iterator[tuple[Path, str]]:
    """All names of workloads in it, with their places."""
    if not isinstance(document, Cycle):
        return
    if document.expect is not None:
        yield from _expected(document.expect, ("expect",))
    for number, step in enumerate(document.steps):
        here: Path = ("steps", number)
        yield from _listed(step.workloads, (*here, "workloads"))
        if step.expect is not None:
            yield from _expected(step.expect, (*here, "expect"))


def _expected(expect: Expect, here: Path) -> Iterator[tuple[Path, str]]:
    for field in ("admitted", "holding", "reasons"):
        for name in getattr(expect, field) or ():
            yield (*here, field, name), name
    for field in ("pending", "inadmissible"):
        for queue, names in (getattr(expect, field) or {}).items():
            yield from _listed(names, (*here, field, queue))
    for number, victim in enumerate(expect.preempted or ()):
        yield (*here, "preempted", number, "workload"), victim.workload
        if victim.by is not None:
            yield (*here, "preempted", number, "by"), victim.by
    for number, evicted in enumerate(expect.evicted or ()):
        yield (*here, "evicted", number, "workload"), evicted.workload
    yield from _listed(expect.finished or (), (*here, "finished"))


def _listed(names: Iterable[str], here: Path) -> Iterator[tuple[Path, str]]:
    for number, name in enumerate(names):
        yield (*here, number), name
