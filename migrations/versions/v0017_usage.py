"""Usage and capacity by the hour, how far they are rolled up, and the view for other programs."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_TIMES = (
    "begins_at timestamptz NOT NULL, ends_at timestamptz NOT NULL CHECK (ends_at > begins_at), "
    "flavor text NOT NULL CHECK (flavor <> ''), resource text NOT NULL CHECK (resource <> '')"
)
_AMOUNTS = ("usable", "unusable", "unmanaged", "held", "free", "overcommitted")


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.rolled ("
        "cluster_id text PRIMARY KEY, "
        "since timestamptz NOT NULL, "
        "until timestamptz NOT NULL CHECK (until >= since), "
        "sequence bigint NOT NULL, "
        "zone text NOT NULL, "
        "zone_since timestamptz NOT NULL)"
    )
    op.execute(
        f"CREATE TABLE queuectl.usage_hour (cluster_id text NOT NULL, {_TIMES}, "
        "cluster_queue text NOT NULL, "
        "attribution text NOT NULL, "
        "amount numeric NOT NULL CHECK (amount > 0), "
        "PRIMARY KEY (cluster_id, begins_at, attribution, cluster_queue, flavor, resource))"
    )
    amounts = ", ".join(f"{name} numeric NOT NULL CHECK ({name} >= 0)" for name in _AMOUNTS)
    op.execute(
        f"CREATE TABLE queuectl.capacity_hour (cluster_id text NOT NULL, {_TIMES}, {amounts}, "
        "CHECK (held + free + unmanaged = usable + overcommitted), "
        "PRIMARY KEY (cluster_id, begins_at, flavor, resource))"
    )
    op.execute(
        "CREATE VIEW queuectl.usage_v1 AS SELECT h.cluster_id, h.begins_at, h.ends_at, h.cluster_queue, "
        "a.namespace, a.queue AS local_queue, a.user_name, a.submitter, a.priority_class, "
        "(SELECT jsonb_object_agg(key, value -> 'value') FROM jsonb_each(a.account)) AS account, "
        "h.flavor, h.resource, h.amount / 3600000000 AS amount_hours "
        "FROM queuectl.usage_hour h LEFT JOIN queuectl.attribution a "
        "ON a.cluster_id = h.cluster_id AND a.id = h.attribution"
    )


def downgrade() -> None:
    op.execute("DROP VIEW queuectl.usage_v1")
    for table in ("capacity_hour", "usage_hour", "rolled"):
        op.execute(f"DROP TABLE queuectl.{table}")
