"""For readers: what the nodes of each flavor have, and what pending workloads wait for."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.flavor_capacity ("
        "cluster_id text NOT NULL, "
        "flavor text NOT NULL, "
        "capacity jsonb NOT NULL, "
        "batch bigint NOT NULL, "
        "PRIMARY KEY (cluster_id, flavor))"
    )
    op.execute(
        "CREATE TABLE queuectl.queue_demand ("
        "cluster_id text NOT NULL, "
        "cluster_queue text NOT NULL, "
        "demand jsonb NOT NULL, "
        "batch bigint NOT NULL, "
        "PRIMARY KEY (cluster_id, cluster_queue))"
    )


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.queue_demand")
    op.execute("DROP TABLE queuectl.flavor_capacity")
