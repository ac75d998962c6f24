"""`queuectl report observe`: reads the ledger, not REST.

A user who tries queuectl out this way has the database and need not run anything else. And a caller of REST
may read only some namespaces: their totals would be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from queuectl.core.model.policy import ClusterQueue
from queuectl.core.model.workload import ConfigKey, WorkloadId
from queuectl.kinds.policy import parse_policy
from queuectl.kinds.policy_amounts import BadPolicy
from queuectl.ledger.admin import schema
from queuectl.ledger.codec import reason_to_json
from queuectl.ledger.pool import connection_pool
from queuectl.ledger.read.queries import LedgerReadings, clusters
from queuectl.ports.ledger import is_observed, observed_twin
from queuectl.ports.reader import DecisionRow, Reading
from queuectl.settings import ConfigurationError, Settings
from queuectl.shadow.differences import summary
from queuectl.shadow.workloads import ObservedWorkload, ObservedWorkloads, difference, reality

_PAGE: Final = 5000

Since = datetime | timedelta | None


Objects = tuple[str, Mapping[WorkloadId, str]] | None
"""A cluster, by the UID of its namespace kube-system, and the kinds of its objects; None: not read."""


async def report(
    settings: Settings, objects: Objects, *, cluster: str | None, since: Since, decisions: bool
) -> dict[str, Any]:
    """The decisions of an observer, and where they differ from what happened, as JSON values.

    `cluster` is the UID of its namespace kube-system; None: the only one that was observed. With `since`
    (a time, or how long ago) only workloads first seen after it count. Raises ConfigurationError,
    LedgerUnavailable, SchemaMismatch.
    """
    url = settings.database_url
    await schema.check(url)
    twin = await _twin(url, cluster or settings.api.cluster)
    async with connection_pool(url, read_only=True) as pool:
        readings = LedgerReadings(pool, twin)
        now = await readings.since(0)
        start = now.read_at - since if isinstance(since, timedelta) else since
        workloads = ObservedWorkloads()
        told: list[dict[str, Any]] = []
        async for row in _rows(readings):
            workload = workloads.add(row)
            if decisions and workload is not None and _counts(workload, start):
                told.append(_told(row, workload))
    counted = [workload for workload in workloads.by_id.values() if _counts(workload, start)]
    found = {
        "cluster": twin,
        "observed": True,
        "observingSince": workloads.began.isoformat() if workloads.began else None,
        "since": start.isoformat() if start else None,
        # An observer that has nothing to decide still commits every few seconds.
        "until": now.committed_at.isoformat(),
        "sequence": now.sequence,
        "notLookedAt": _not_looked_at(objects, twin, workloads),
        **summary(counted, now.committed_at, _nominal(now)),
    }
    return {**found, "decisions": told} if decisions else found


def _not_looked_at(objects: Objects, twin: str, workloads: ObservedWorkloads) -> dict[str, int] | None:
    """Numbers of objects without a decision, by kind; None: that cluster was not read."""
    if objects is None or observed_twin(objects[0]) != twin:
        return None
    return dict(Counter(kind for uid, kind in objects[1].items() if uid not in workloads.by_id))


def _counts(workload: ObservedWorkload, start: datetime | None) -> bool:
    return start is None or workload.queued_at >= start


async def _twin(url: str, cluster: str | None) -> str:
    async with connection_pool(url, read_only=True) as pool:
        known = [one for one in await clusters(pool) if is_observed(one)]
    if cluster is not None:
        wanted = cluster if is_observed(cluster) else observed_twin(cluster)
        if wanted in known:
            return wanted
        raise ConfigurationError(f"cluster {cluster} was not observed with this ledger{_those(known)}")
    if len(known) == 1:
        return known[0]
    if not known:
        raise ConfigurationError(
            "no cluster was observed with this ledger: start `queuectl controller --observe`"
        )
    raise ConfigurationError(f"select one with --cluster{_those(known)}")


def _those(known: list[str]) -> str:
    names = ", ".join(one.removesuffix(observed_twin("")) for one in known)
    return f"; observed were {names}" if known else ""


async def _rows(readings: LedgerReadings) -> AsyncIterator[DecisionRow]:
    after = 0
    while page := await readings.decisions(after=after, limit=_PAGE):
        for row in page:
            yield row
        after = page[-1].sequence


def _told(row: DecisionRow, workload: ObservedWorkload) -> dict[str, Any]:
    why = row.reason
    return {
        "sequence": row.sequence,
        "time": row.now.isoformat(),
        "verdict": row.verdict,
        "namespace": workload.ref.namespace,
        "kind": workload.ref.kind,
        "name": workload.ref.name,
        "uid": workload.ref.uid,
        "attempt": row.attempt,
        "reason": None if why is None else {**reason_to_json(why), "message": why.message},
        "reality": reality(row).get("state"),
        "difference": difference(row, workload),
    }


def _nominal(now: Reading) -> dict[str, dict[str, int]]:
    """The configuration in force now."""
    found: dict[str, dict[str, int]] = {}
    for key, spec in now.configs:
        if (queue := _cluster_queue(key, spec)) is not None:
            quota = found.setdefault(queue.name, {})
            for group in queue.resource_groups:
                for flavor in group.flavors:
                    for resource, limits in flavor.resources:
                        quota[resource] = quota.get(resource, 0) + limits.nominal
    return found


def _cluster_queue(key: ConfigKey, spec: str | None) -> ClusterQueue | None:
    if key.kind != "ClusterQueue" or spec is None:
        return None
    try:
        value = parse_policy(key, spec)
    except BadPolicy:
        return None
    return value if isinstance(value, ClusterQueue) else None
