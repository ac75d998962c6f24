"""The ledger's tables, as created by migrations/. All rows are per cluster.

`workload`, `attempt`, `hold_line` and `effect` have two parts each: a small one with the open rows, which
every cycle reads and writes, and monthly partitions of closed rows, which only grow and are dropped a
month at a time. Postgres moves a row from one part to the other when it closes.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    MetaData,
    Numeric,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB

SCHEMA: Final = "queuectl"

metadata = MetaData(schema=SCHEMA)

_Time = DateTime(timezone=True)

leadership = Table(
    "leadership",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the last decision
    Column("config_sequence", BigInteger, nullable=False),  # of the last decision that changed the policy
    Column("batches", BigInteger, nullable=False),
    Column("now", _Time),  # of the last commit; null before the first
    Column("holder", Text, nullable=False),
    Column("taken_at", _Time, nullable=False),
)

installation = Table(
    "installation",
    metadata,
    Column("single", Boolean, primary_key=True),  # one row
    Column("id", Uuid(as_uuid=False), nullable=False),
    Column("made_at", _Time, nullable=False),
)

batch = Table(
    "batch",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("first_sequence", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
)

config_revision = Table(
    "config_revision",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("from_seq", BigInteger, primary_key=True),
    Column("to_seq", BigInteger),  # null: in force
    Column("from_at", _Time, nullable=False),
    Column("to_at", _Time),
    Column("spec", Text, nullable=False),  # text, so that it is read exactly as it was written
    Column("author", Text),  # null: unknown
)

checkpoint = Table(
    "checkpoint",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("format", SmallInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the last decision that it covers
    Column("digest", Text, nullable=False),  # SHA-256 of the state
    Column("state", Text, nullable=False),  # what `verify` computed from the decisions up to there
    Column("stored_at", _Time, nullable=False),
)


def _workload_columns() -> list[Column[object]]:
    return [
        Column("cluster_id", Text, nullable=False),
        Column("id", Text, nullable=False),
        Column("namespace", Text, nullable=False),
        Column("kind", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("uid", Text, nullable=False),
        Column("queue", Text, nullable=False),
        Column("cluster_queue", Text),
        Column("priority", BigInteger, nullable=False),
        Column("created_at", _Time, nullable=False),
        Column("arrival", BigInteger, nullable=False),
        Column("submitter", Text),
        Column("labels", JSONB, nullable=False),
        Column("shape", Text, nullable=False),  # id of its podsets in table shape
        Column("phase", Text, nullable=False),
        Column("attempts", BigInteger, nullable=False),
        Column("reason", JSONB),
        Column("past", JSONB),  # what former attempts leave behind; null: nothing
        Column("options", JSONB),  # what its labels ask for besides the queue; null: nothing
        Column("queued_seq", BigInteger, nullable=False),
        Column("updated_seq", BigInteger, nullable=False),
        Column("open", Boolean, nullable=False),
        Column("closed_seq", BigInteger),
        Column("closed_at", _Time),
    ]


workload = Table("workload", metadata, *_workload_columns())
workload_open = Table("workload_open", metadata, *_workload_columns())

shape = Table(
    "shape",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),  # hash of the podsets
    Column("pod_sets", JSONB, nullable=False),
    # When a workload was queued with them for the first time in the last month in which one was.
    Column("queued_at", _Time, nullable=False),
)

workload_object = Table(
    "workload_object",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("uid", Text, primary_key=True),
    Column("workload", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("role", Text, nullable=False),
)

pods_ready = Table(
    "pods_ready",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("workload", Text, primary_key=True),
    Column("attempt", BigInteger, nullable=False),
    Column("ready", BigInteger, nullable=False),
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

pending_line = Table(
    "pending_line",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("cluster_queue", Text, primary_key=True),
    Column("workloads", JSONB, nullable=False),  # ids in order
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

told_start = Table(
    "told_start",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("sink", Text, primary_key=True),
    Column("workload", Text, primary_key=True),
    Column("start", _Time),  # as told last; null: no forecast had a median yet
    Column("told", BigInteger, nullable=False),  # messages
    Column("moved", _Time),  # as the next message tells; null: there is none
    Column("moved_at", _Time),
    Column("asked_at", _Time, nullable=False),
)

notification_cursor = Table(
    "notification_cursor",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("sink", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),  # of the last decision about which all is told
    Column("sent", BigInteger, nullable=False),
    Column("sent_at", _Time),
    Column("failures", BigInteger, nullable=False),  # in a row
    Column("error", Text),
    Column("next_try", _Time),
)

flavor_capacity = Table(
    "flavor_capacity",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("flavor", Text, primary_key=True),  # empty: nodes without a flavor
    Column("capacity", JSONB, nullable=False),
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

past_capacity = Table(
    "past_capacity",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("flavor", Text, primary_key=True),  # empty: nodes without a flavor
    Column("at", _Time, primary_key=True),
    Column("capacity", JSONB, nullable=False),
)

queue_demand = Table(
    "queue_demand",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("cluster_queue", Text, primary_key=True),
    Column("demand", JSONB, nullable=False),
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

node = Table(
    "node",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("facts", JSONB, nullable=False),  # empty: it is gone
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

attempt = Table(
    "attempt",
    metadata,
    Column("cluster_id", Text, nullable=False),
    Column("workload", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("cluster_queue", Text, nullable=False),
    Column("admitted_at", _Time, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("debt", Boolean, nullable=False),
    Column("pod_sets", JSONB, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("closed_seq", BigInteger),
    Column("closed_at", _Time),
)

hold_line = Table(
    "hold_line",
    metadata,
    Column("cluster_id", Text, nullable=False),
    Column("workload", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("cluster_queue", Text, nullable=False),
    Column("pod_set", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("flavor", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),  # of one pod
    Column("from_seq", BigInteger, nullable=False),
    Column("from_at", _Time, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("to_seq", BigInteger),
    Column("closed_at", _Time),
    Column("attribution", Text),  # null: an older version opened it
)

attribution = Table(
    "attribution",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("id", Text, primary_key=True),  # hash of the other columns
    Column("namespace", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("submitter", Text),  # null: unknown
    Column("user_name", Text),  # whose usage it is; null: unknown
    Column("priority_class", Text),
    Column("account", JSONB, nullable=False),
)

rolled = Table(
    "rolled",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("since", _Time, nullable=False),  # the beginning of the first piece
    Column("until", _Time, nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the last decision up to `until`
    Column("zone", Text, nullable=False),  # pieces are cut where its days begin
    Column("zone_since", _Time, nullable=False),  # from then on
)

usage_hour = Table(
    "usage_hour",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("begins_at", _Time, primary_key=True),
    Column("ends_at", _Time, nullable=False),
    Column("flavor", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    Column("cluster_queue", Text, primary_key=True),
    Column("attribution", Text, primary_key=True),  # empty: nobody
    Column("amount", Numeric, nullable=False),  # base units times microseconds
)

capacity_hour = Table(
    "capacity_hour",
    metadata,
    Column("cluster_id", Text, primary_key=True),
    Column("begins_at", _Time, primary_key=True),
    Column("ends_at", _Time, nullable=False),
    Column("flavor", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    # Base units times microseconds.
    Column("usable", Numeric, nullable=False),
    Column("unusable", Numeric, nullable=False),
    Column("unmanaged", Numeric, nullable=False),
    Column("held", Numeric, nullable=False),
    Column("free", Numeric, nullable=False),
    Column("overcommitted", Numeric, nullable=False),
)

effect = Table(
    "effect",
    metadata,
    Column("cluster_id", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the decision that asks for it
    Column("workload", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("verb", Text, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("acknowledged_at", _Time),  # null in a closed row: withdrawn
    Column("closed_at", _Time),
)

decision = Table(
    "decision",
    metadata,
    Column("cluster_id", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("now", _Time, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("cycle", BigInteger, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("workload", Text),
    Column("namespace", Text),
    Column("kind", Text),
    Column("name", Text),
    Column("uid", Text),
    Column("attempt", BigInteger),
    Column("reason", JSONB),
    Column("payload", JSONB, nullable=False),
    Column("payload_version", SmallInteger, nullable=False),
    Column("rules_version", SmallInteger, nullable=False),
    Column("config_version", BigInteger, nullable=False),  # sequence of the last Configured before it
)

HISTORY: Final = {
    "decision": "decision",
    "workload": "workload_closed",
    "attempt": "attempt_closed",
    "hold_line": "hold_line_closed",
    "effect": "effect_closed",
    "past_capacity": "past_capacity",
}
"""By table, its part that is partitioned by month."""
