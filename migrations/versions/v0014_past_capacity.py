"""What the nodes of each flavor had at past times."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.past_capacity ("
        "cluster_id text NOT NULL, "
        "flavor text NOT NULL, "
        "at timestamptz NOT NULL CHECK (isfinite(at)), "
        "capacity jsonb NOT NULL, "
        "PRIMARY KEY (cluster_id, flavor, at)) PARTITION BY RANGE (at)"
    )
    op.execute("CREATE TABLE queuectl.past_capacity_default PARTITION OF queuectl.past_capacity DEFAULT")


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.past_capacity")
