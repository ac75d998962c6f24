"""Usage by the day: sums of hours, for long times."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.usage_day ("
        "cluster_id text NOT NULL, "
        "begins_at timestamptz NOT NULL, "
        "ends_at timestamptz NOT NULL CHECK (ends_at > begins_at), "
        "cluster_queue text NOT NULL, "
        "attribution text NOT NULL, "
        "flavor text NOT NULL, "
        "resource text NOT NULL, "
        "amount numeric NOT NULL CHECK (amount > 0), "
        "PRIMARY KEY (cluster_id, begins_at, attribution, cluster_queue, flavor, resource))"
    )
    # Days are stored from here on.
    op.execute("UPDATE queuectl.rolled SET zone_since = until")


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.usage_day")
