"""Workloads that run by our own admissions, read once from the cluster: to rebuild a lost ledger."""

from __future__ import annotations

from queuectl.core.events import WorkloadObserved
from queuectl.kinds.labels import OWN, QueueLabels
from queuectl.kinds.registry import KindRegistry
from queuectl.kinds.workloads import observe
from queuectl.kube.cluster import KubeCluster
from queuectl.kube.errors import NotFound
from queuectl.kube.session import Session, api_path


async def admitted(
    session: Session, kinds: KindRegistry, honoured: QueueLabels = OWN
) -> list[WorkloadObserved]:
    """Labelled workloads with our admission of which the object or a pod is alive, by consistent reads.

    An object that is not suspended is alive whatever its pods do; one that is suspended or over holds quota
    as long as one of its pods is alive.
    """
    cluster = KubeCluster(session, kinds, honoured=honoured)
    found = []
    for kind in kinds:
        path = api_path(kind.group, kind.version, kind.plural)
        try:
            async for page in session.pages(path, query=honoured.selection):
                for item in page["items"]:
                    seen = observe(kind, item, honoured)
                    if seen is None or seen.observation.admission is None or seen.observation.quiet:
                        continue
                    if await cluster.anything_alive(seen.workload.ref):
                        found.append(seen)
        except NotFound:
            continue  # that kind is not installed
    return found
