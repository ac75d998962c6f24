"""The ledger's tables, as created by migrations/. All rows are per cluster.

`workload`, `attempt`, `hold_line` and `effect` have two parts each: a small one with the open rows, which
every cycle reads and writes, and monthly partitions of closed rows, which only grow and are dropped a
month at a time. Postgres moves a row from one part to the other when it closes.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ARRAY,
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


def _table(name: str, *columns: Column[Any]) -> Table:
    """The rows of all clusters: each key begins with the cluster's id."""
    return Table(name, metadata, Column("cluster_id", Text, primary_key=True), *columns)


leadership = _table(
    "leadership",
    Column("epoch", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the last decision
    Column("config_sequence", BigInteger, nullable=False),  # of the last decision that changed the policy
    Column("batches", BigInteger, nullable=False),
    Column("now", _Time),  # of the last commit; null before the first
    Column("holder", Text, nullable=False),
    Column("taken_at", _Time, nullable=False),
    Column("read_up_to", JSONB),  # by kind, the resourceVersion that the leader had read when it stopped
    Column("stopped_batch", BigInteger),  # the number of batches then; if it is another, read_up_to is void
)

installation = Table(
    "installation",
    metadata,
    Column("single", Boolean, primary_key=True),  # one row
    Column("id", Uuid(as_uuid=False), nullable=False),
    Column("made_at", _Time, nullable=False),
)

batch = _table(
    "batch",
    Column("id", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("first_sequence", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
)

config_revision = _table(
    "config_revision",
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

checkpoint = _table(
    "checkpoint",
    Column("format", SmallInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the last decision that it covers
    Column("digest", Text, nullable=False),  # SHA-256 of the state
    Column("state", Text, nullable=False),  # what `verify` computed from the decisions up to there
    Column("stored_at", _Time, nullable=False),
)


def _workload_columns() -> list[Column[object]]:
    return [
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


workload = _table("workload", *_workload_columns())
workload_open = _table("workload_open", *_workload_columns())

shape = _table(
    "shape",
    Column("id", Text, primary_key=True),  # hash of the podsets
    Column("pod_sets", JSONB, nullable=False),
    # When a workload was queued with them for the first time in the last month in which one was.
    Column("queued_at", _Time, nullable=False),
)

workload_object = _table(
    "workload_object",
    Column("uid", Text, primary_key=True),
    Column("workload", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("role", Text, nullable=False),
)

pods_ready = _table(
    "pods_ready",
    Column("workload", Text, primary_key=True),
    Column("attempt", BigInteger, nullable=False),
    Column("ready", BigInteger, nullable=False),
    Column("missing", Text, nullable=False),  # which do not exist
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

pending_line = _table(
    "pending_line",
    Column("cluster_queue", Text, primary_key=True),
    Column("workloads", JSONB, nullable=False),  # ids in order
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

told_start = _table(
    "told_start",
    Column("sink", Text, primary_key=True),
    Column("workload", Text, primary_key=True),
    Column("start", _Time),  # as told last; null: no forecast had a median yet
    Column("told", BigInteger, nullable=False),  # messages
    Column("moved", _Time),  # as the next message tells; null: there is none
    Column("moved_at", _Time),
    Column("asked_at", _Time, nullable=False),
)

notification_cursor = _table(
    "notification_cursor",
    Column("sink", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),  # of the last decision about which all is told
    Column("sent", BigInteger, nullable=False),
    Column("sent_at", _Time),
    Column("failures", BigInteger, nullable=False),  # in a row
    Column("error", Text),
    Column("next_try", _Time),
)

flavor_capacity = _table(
    "flavor_capacity",
    Column("flavor", Text, primary_key=True),  # empty: nodes without a flavor
    Column("capacity", JSONB, nullable=False),
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

past_capacity = _table(
    "past_capacity",
    Column("flavor", Text, primary_key=True),  # empty: nodes without a flavor
    Column("at", _Time, primary_key=True),
    Column("capacity", JSONB, nullable=False),
)

queue_demand = _table(
    "queue_demand",
    Column("cluster_queue", Text, primary_key=True),
    Column("demand", JSONB, nullable=False),
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

node = _table(
    "node",
    Column("name", Text, primary_key=True),
    Column("facts", JSONB, nullable=False),  # empty: it is gone
    Column("batch", BigInteger, nullable=False),  # the one that stored it
)

attempt = _table(
    "attempt",
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

hold_line = _table(
    "hold_line",
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

attribution = _table(
    "attribution",
    Column("id", Text, primary_key=True),  # hash of the other columns
    Column("namespace", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("submitter", Text),  # null: unknown
    Column("user_name", Text),  # whose usage it is; null: unknown
    Column("priority_class", Text),
    Column("account", JSONB, nullable=False),
)

rolled = _table(
    "rolled",
    Column("since", _Time, nullable=False),  # the beginning of the first piece
    Column("until", _Time, nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the last decision up to `until`
    Column("zone", Text, nullable=False),  # pieces are cut where its days begin
    Column("zone_since", _Time, nullable=False),  # from then on
)


def _usage_sums(name: str) -> Table:
    return _table(
        name,
        Column("begins_at", _Time, primary_key=True),
        Column("ends_at", _Time, nullable=False),
        Column("cluster_queue", Text, primary_key=True),
        Column("attribution", Text, primary_key=True),  # empty: it is not booked
        Column("flavor", Text, primary_key=True),
        Column("resource", Text, primary_key=True),
        Column("amount", Numeric, nullable=False),  # base units times microseconds
    )


usage_hour = _usage_sums("usage_hour")
usage_day = _usage_sums("usage_day")
usage_month = _usage_sums("usage_month")

statement = _table(
    "statement",
    Column("month", Text, primary_key=True),
    Column("zone", Text, nullable=False),
    Column("begins_at", _Time, nullable=False),
    Column("ends_at", _Time, nullable=False),
    Column("currency", Text, nullable=False),
    Column("decimals", SmallInteger, nullable=False),
    Column("lines", BigInteger, nullable=False),
    Column("total", Numeric, nullable=False),  # millionths of the currency
    Column("digest", Text, nullable=False),
    Column("rate_card", JSONB, nullable=False),  # as it was configured
    Column("closed_at", _Time, nullable=False),
    Column("closed_by", Text, nullable=False),  # role of the database
)

statement_line = _table(
    "statement_line",
    Column("month", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("begins_at", _Time, nullable=False),
    Column("ends_at", _Time, nullable=False),
    Column("booked", Boolean, nullable=False),
    Column("namespace", Text),
    Column("queue", Text),
    Column("submitter", Text),
    Column("user_name", Text),
    Column("priority_class", Text),
    Column("account", JSONB),  # values by key
    Column("cluster_queue", Text, nullable=False),
    Column("flavor", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("amount", Numeric, nullable=False),  # base units times microseconds
    Column("price", Numeric),  # millionths for a unit and hour; null: no rate
    Column("list_price", Numeric),
    Column("cost", Numeric, nullable=False),  # millionths
    Column("of_month", Text),  # the closed month that it corrects
    Column("reason", Text),
    Column("stored_at", _Time, nullable=False),
    Column("stored_by", Text, nullable=False),
)

budget_entry = _table(
    "budget_entry",
    Column("sequence", BigInteger, primary_key=True),  # of the decision
    Column("number", BigInteger, primary_key=True),  # of the row among those of its decision
    Column("kind", Text, nullable=False),
    Column("budget", Text, nullable=False),
    Column("subject", Text, nullable=False),  # empty: all
    Column("resource", Text, nullable=False),
    Column("begins_at", _Time, nullable=False),  # of the period
    Column("ends_at", _Time, nullable=False),
    Column("workload", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("at", _Time, nullable=False),
    Column("rate", BigInteger, nullable=False),  # base units that the attempt holds
    Column("until", _Time),  # null: as long as it runs
    Column("reserved", Numeric, nullable=False),  # change, in base units times microseconds
    Column("used", Numeric, nullable=False),
    Column("namespace", Text),  # of the workload; null: an older version wrote it, and it is not known
)

idle_check = _table(
    "idle_check",
    Column("checked_at", _Time, nullable=False),  # the last one
    Column("problem", Text),
    Column("resources", ARRAY(Text), nullable=False),  # one that ends with * stands for all beginning so
)

idle_time = _table(
    "idle_time",
    Column("workload", Text, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("from_seq", BigInteger, primary_key=True),  # until the next row of the attempt, or its end
    Column("from_at", _Time, nullable=False),
    Column("devices", BigInteger, nullable=False),
    Column("idle_devices", BigInteger, nullable=False),
)

capacity_hour = _table(
    "capacity_hour",
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

effect = _table(
    "effect",
    Column("sequence", BigInteger, nullable=False),  # of the decision that asks for it
    Column("workload", Text, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("verb", Text, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("acknowledged_at", _Time),  # null in a closed row: withdrawn
    Column("closed_at", _Time),
)

decision = _table(
    "decision",
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
