"""Workloads of the cluster, read once: to rebuild a lost ledger, and to compare one with the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from queuectl.core.model.events import WorkloadObserved
from queuectl.core.model.workload import WorkloadId
from queuectl.kinds.group_owners import GROUP_OWNERS
from queuectl.kinds.jobs import NO_KINDS, KindRegistry
from queuectl.kinds.labels import OWN, QueueLabels, selection
from queuectl.kinds.owners import controlling
from queuectl.kinds.workloads import observe
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import NotFound
from queuectl.kube.pod_groups import LedgerGroups, PodGroups
from queuectl.kube.session import METADATA_LIST, Session, api_path

GROUPS_AT_ONCE: Final = 16


async def admitted(
    session: Session, kinds: KindRegistry, honoured: QueueLabels = OWN
) -> list[WorkloadObserved]:
    """Labelled workloads with our admission of which the object or a pod is alive, by consistent reads.

    An object that is not suspended is alive whatever its pods do; one that is suspended or over holds quota
    as long as one of its pods is alive.
    """
    cluster = KubeCluster(session, kinds, honoured=honoured)
    return [
        seen
        for seen in await labelled(session, kinds, honoured)
        if seen.observation.admission is not None and not seen.observation.quiet
        if await cluster.anything_alive(seen.workload.ref)
    ]


async def labelled(
    session: Session,
    kinds: KindRegistry,
    honoured: QueueLabels = OWN,
    owners: KindRegistry = NO_KINDS,
    ledger: LedgerGroups | None = None,
) -> list[WorkloadObserved]:
    """All objects with a queue label, by consistent reads; `owners` as in kinds.workloads.observe. `ledger`:
    what it has of pod groups."""
    found = []
    for kind in kinds:
        path = api_path(kind.group, kind.version, kind.plural)
        groups = PodGroups(kind, owners, ledger) if kind.composed_of else None
        try:
            if groups is not None:
                await _observe_owners(session, groups)
            async for page in session.pages(path, query=selection(kind, honoured)):
                if groups is not None:
                    for item in page["items"]:
                        groups.observe(item)
                    continue
                seen = (observe(kind, item, honoured, owners=owners) for item in page["items"])
                found += [one for one in seen if one is not None]
        except NotFound:
            continue  # that kind is not installed
        while groups is not None and (events := groups.take(GROUPS_AT_ONCE)):
            found += [event for event in events if isinstance(event, WorkloadObserved)]
    return found


async def _observe_owners(session: Session, groups: PodGroups) -> None:
    for owner in GROUP_OWNERS.values():
        with suppress(NotFound):  # it is not installed
            async for page in session.pages(api_path(*owner.resource)):
                for item in page["items"]:
                    groups.observe_owner(owner, item)


async def topmost(session: Session, kinds: KindRegistry) -> Mapping[WorkloadId, str]:
    """The kind of each object that no object of `kinds` controls, with or without a queue label; no pods.

    Raises ApiError.
    """
    found: dict[WorkloadId, str] = {}
    for kind in kinds:
        if kind.scheduling_gate:
            continue
        with suppress(NotFound):  # that kind is not installed
            path = api_path(kind.group, kind.version, kind.plural)
            async for page in session.pages(path, accept=METADATA_LIST):
                items = page["items"] or ()  # null in an empty list of metadata
                uids = (item["metadata"]["uid"] for item in items if controlling(kinds, item) is None)
                found.update((WorkloadId(uid), kind.name) for uid in uids)
    return found
