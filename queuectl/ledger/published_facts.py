"""Facts for readers, which decide nothing (docs/architecture.md): stored, and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from pydantic import ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Delete,
    Table,
    Text,
    Update,
    bindparam,
    cast,
    delete,
    exists,
    func,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, Insert
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from queuectl.core.model.capacity import (
    ClusterQueueDemand,
    FlavorCapacity,
    NodeFacts,
    PodDemand,
    PodsOnNode,
)
from queuectl.core.model.policy import Node, Taint
from queuectl.core.model.workload import ForReaders, PendingLine, PodsReady
from queuectl.ledger import tables as t
from queuectl.ledger.arrays import CLUSTER, NOW, Columns, TableRows
from queuectl.ledger.codec import cleaned, dump
from queuectl.ports.reader import GONE_KEPT

NUMBER: Final = bindparam("p_number", type_=BigInteger)
"""Of the batch."""

PODS_READY_ROWS: Final = TableRows(t.pods_ready, "workload", "attempt", "ready", "missing")
_FRESH_PODS: Final = upsert(t.pods_ready)
PODS_READY: Final = _FRESH_PODS.from_select(
    *PODS_READY_ROWS.source(
        where=exists().where(
            t.workload_open.c.cluster_id == CLUSTER,
            t.workload_open.c.id == PODS_READY_ROWS.table.c.workload,
        ),
        cluster_id=CLUSTER,
        batch=NUMBER,
    )
).on_conflict_do_update(
    index_elements=[t.pods_ready.c.cluster_id, t.pods_ready.c.workload],
    set_={name: _FRESH_PODS.excluded[name] for name in ("attempt", "ready", "missing", "batch")},
)


class FactTable(NamedTuple):
    """A table with one JSON value for each name."""

    rows: Columns
    statement: Insert


def _facts(table: Table, name: str, value: str) -> FactTable:
    """A row that would not change is not written."""
    rows = TableRows(table, name, value)
    fresh = upsert(table)
    statement = fresh.from_select(*rows.source(cluster_id=CLUSTER, batch=NUMBER)).on_conflict_do_update(
        index_elements=[table.c.cluster_id, table.c[name]],
        set_={column: fresh.excluded[column] for column in (value, "batch")},
        where=table.c[value].is_distinct_from(fresh.excluded[value]),
    )
    return FactTable(rows, statement)


def _history(table: Table, name: str, value: str) -> FactTable:
    """A row for each time; of two commits at one time the later one counts."""
    rows = TableRows(table, name, value)
    fresh = upsert(table)
    statement = fresh.from_select(*rows.source(cluster_id=CLUSTER, at=NOW)).on_conflict_do_update(
        index_elements=[table.c.cluster_id, table.c[name], table.c.at],
        set_={value: fresh.excluded[value]},
    )
    return FactTable(rows, statement)


LINES: Final = _facts(t.pending_line, "cluster_queue", "workloads")
CAPACITIES: Final = _facts(t.flavor_capacity, "flavor", "capacity")
PAST_CAPACITIES: Final = _history(t.past_capacity, "flavor", "capacity")
DEMANDS: Final = _facts(t.queue_demand, "cluster_queue", "demand")
NODES: Final = _facts(t.node, "name", "facts")
_GONE: Final = cast({}, JSONB)
NO_OTHER_NODES: Final = (
    update(t.node)
    .where(
        t.node.c.cluster_id == CLUSTER,
        t.node.c.name != func.all(bindparam("p_names", type_=ARRAY(Text))),
        t.node.c.facts != _GONE,
    )
    .values(facts=_GONE, batch=NUMBER)
)
LONG_GONE: Final = delete(t.node).where(
    t.node.c.cluster_id == CLUSTER, t.node.c.facts == _GONE, t.node.c.batch <= NUMBER
)
NO_PODS_READY: Final = delete(t.pods_ready).where(
    t.pods_ready.c.cluster_id == CLUSTER,
    t.pods_ready.c.workload == func.any(bindparam("p_workloads", type_=ARRAY(Text))),
)


def facts_of(found: ForReaders) -> Iterator[tuple[FactTable, list[tuple[str, str]]]]:
    """Yield what to store in which table: names, and JSON texts. Tables without a row are left out."""
    told: tuple[tuple[FactTable, list[tuple[str, object]]], ...] = (
        (LINES, [(one.cluster_queue, one.workloads) for one in found.lines]),
        (CAPACITIES, [(one.flavor, capacity_to_json(one)) for one in found.capacities]),
        (PAST_CAPACITIES, [(one.flavor, capacity_to_json(one)) for one in found.past_capacities]),
        (DEMANDS, [(one.cluster_queue, demand_to_json(one.demand)) for one in found.demands]),
        (NODES, [(one.name, facts_to_json(one)) for one in found.nodes]),
    )
    for facts, rows in told:
        if rows:
            ordered = sorted(rows, key=lambda row: row[0])
            yield facts, [(name, dump(cleaned(value))) for name, value in ordered]


def dropped(found: ForReaders, number: int) -> Iterator[tuple[Update | Delete, dict[str, object]]]:
    """Yield what drops nodes, each with its parameters: those of an earlier controller, and those long gone.

    A reader learns that a node is gone by a row that says so, and reads all again if it comes too late.
    """
    if found.all_nodes is not None:
        yield NO_OTHER_NODES, {"names": list(found.all_nodes), "number": number}
    if any(one.gone for one in found.nodes):
        yield LONG_GONE, {"number": number - GONE_KEPT}


async def nodes_now(connection: AsyncConnection, cluster: str) -> tuple[NodeFacts, ...]:
    """Those that are there, by name."""
    row = t.node.c
    query = select(row.name, row.facts).where(row.cluster_id == cluster, row.facts != _GONE)
    found = await connection.execute(query)
    return tuple(sorted((facts_from_json(*one) for one in found), key=lambda one: one.name))


async def facts_after(connection: AsyncConnection, cluster: str, batch: int) -> ForReaders:
    """Those that batches after number `batch` have stored."""

    async def newer(table: Table, *columns: str) -> list[tuple[Any, ...]]:
        query = select(*(table.c[name] for name in columns))
        query = query.where(table.c.cluster_id == cluster, table.c.batch > batch)
        return [tuple(row) for row in await connection.execute(query)]

    ready = await newer(t.pods_ready, "workload", "attempt", "ready", "missing")
    lines = await newer(t.pending_line, "cluster_queue", "workloads")
    capacities = await newer(t.flavor_capacity, "flavor", "capacity")
    demands = await newer(t.queue_demand, "cluster_queue", "demand")
    nodes = await newer(t.node, "name", "facts")
    return ForReaders(
        tuple(PodsReady(*row) for row in ready),
        tuple(PendingLine(name, tuple(found)) for name, found in lines),
        tuple(capacity_from_json(*row) for row in capacities),
        tuple(ClusterQueueDemand(name, _DEMAND.validate_python(found)) for name, found in demands),
        tuple(facts_from_json(*row) for row in nodes),
    )


Json = dict[str, Any]


_CAPACITY: Final = TypeAdapter(FlavorCapacity)
_DEMAND: Final = TypeAdapter(tuple[PodDemand, ...], config=ConfigDict(alias_generator=to_camel))


def capacity_to_json(value: FlavorCapacity) -> Json:
    found: Json = _CAPACITY.dump_python(value, mode="json", exclude={"flavor"})
    return found


def capacity_from_json(flavor: str, value: Json) -> FlavorCapacity:
    return _CAPACITY.validate_python({**value, "flavor": flavor})


def demand_to_json(value: Iterable[PodDemand]) -> list[Json]:
    found: list[Json] = _DEMAND.dump_python(tuple(value), mode="json", by_alias=True)
    return found


def facts_to_json(value: NodeFacts) -> Json:
    """An empty object: the node is gone."""
    found = {
        "node": None if value.node is None else _node_to_json(value.node),
        "pods": [_pods_to_json(one) for one in value.pods],
        "avoidedUntil": None if value.gone else _time_to_json(value.avoided_until),
    }
    return {key: one for key, one in found.items() if one is not None and one != []}


def facts_from_json(name: str, value: Json) -> NodeFacts:
    return NodeFacts(
        name=name,
        node=_node_from_json(name, value["node"]) if "node" in value else None,
        pods=tuple(_pods_from_json(one) for one in value.get("pods", ())),
        avoided_until=_time_from_json(value.get("avoidedUntil")),
    )


def _node_to_json(node: Node) -> Json:
    found = {
        "labels": dict(node.labels),
        "allocatable": dict(node.allocatable),
        "notReady": not node.ready,
        "readySince": _time_to_json(node.ready_since),
        "createdAt": _time_to_json(node.created_at),
        "cordoned": node.cordoned,
        "taints": [[one.key, one.value, one.effect] for one in node.taints],
        "conditions": dict(node.conditions),
    }
    return {key: one for key, one in found.items() if one}


def _node_from_json(name: str, value: Json) -> Node:
    return Node(
        name,
        _sorted_pairs(value.get("labels", {})),
        _sorted_pairs(value.get("allocatable", {})),
        ready=not value.get("notReady", False),
        ready_since=_time_from_json(value.get("readySince")),
        created_at=_time_from_json(value.get("createdAt")),
        cordoned=value.get("cordoned", False),
        taints=tuple(Taint(*one) for one in value.get("taints", ())),
        conditions=_sorted_pairs(value.get("conditions", {})),
    )


def _pods_to_json(one: PodsOnNode) -> list[Any]:
    found = [one.namespace, one.workload, dict(one.requests), one.pods, one.terminating]
    usual = 3 + (one.pods != 1)
    return found if one.terminating else found[:usual]


def _pods_from_json(value: list[Any]) -> PodsOnNode:
    namespace, workload, requests, *others = value
    return PodsOnNode(namespace, workload, _sorted_pairs(requests), *others)


def _sorted_pairs(value: Json) -> tuple[tuple[str, Any], ...]:
    """Sorted, as where they were read from the cluster."""
    return tuple(sorted(value.items()))


def _time_to_json(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _time_from_json(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)
