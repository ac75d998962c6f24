"""Names in policy objects that no object has, such as a Cohort with a typing error. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from queuectl.core.model.events import PolicyGone, PolicyObserved
from queuectl.core.model.policy import ClusterQueue, Cohort, LocalQueue, Policy
from queuectl.core.model.workload import ConfigKey


class UnknownReference(NamedTuple):
    key: ConfigKey
    field: str
    message: str


def unknown_references(
    changes: Iterable[PolicyObserved | PolicyGone], policies: Mapping[ConfigKey, Policy | str]
) -> Iterator[UnknownReference]:
    """Yield what changed objects name, and what neither `policies`, those in force, nor the changes have.

    Cohorts need no object: one is known if another object names it. So are namespaces with a LocalQueue.
    """
    changes = list(changes)
    made = {one.key: one.value for one in changes if isinstance(one, PolicyObserved)}
    gone = {one.key for one in changes if isinstance(one, PolicyGone)}
    after: dict[ConfigKey, Policy | str] = {**policies, **made}
    after = {key: value for key, value in after.items() if key not in gone}
    queues = {key.name for key in after if key.kind == "ClusterQueue"}
    cohorts = {key.name for key in after if key.kind == "Cohort"}
    users = [name for value in after.values() if (name := _cohort(value)) is not None]
    in_use = {key.namespace for key in policies if key.kind == "LocalQueue" and key not in gone}
    for key, value in made.items():
        if key in gone:
            continue
        match value:
            case LocalQueue():
                if value.cluster_queue not in queues:
                    text = f"there is no ClusterQueue {value.cluster_queue!r}"
                    yield _found(key, "spec.clusterQueue", text, value.cluster_queue, queues)
                if key.namespace not in in_use:
                    text = f"no LocalQueue is in namespace {key.namespace!r} so far: check that it exists"
                    yield _found(key, "metadata.namespace", text, key.namespace, in_use)
            case ClusterQueue() | Cohort():
                cohort = _cohort(value)
                if cohort is not None and cohort not in cohorts and users.count(cohort) < 2:
                    field = "spec.cohortName" if isinstance(value, ClusterQueue) else "spec.parentName"
                    text = f"there is no Cohort {cohort!r}, and no other object names it"
                    yield _found(key, field, text, cohort, cohorts | ({*users} - {cohort}))
            case _:
                pass


def _cohort(value: Policy | str) -> str | None:
    match value:
        case ClusterQueue():
            return value.cohort
        case Cohort():
            return value.parent
        case _:
            return None


def _found(key: ConfigKey, field: str, text: str, name: str, known: Collection[str]) -> UnknownReference:
    near = get_close_matches(name[:253], [one for one in known if one != name], n=1)
    return UnknownReference(key, field, f"{text}, did you mean {near[0]}?" if near else text)
