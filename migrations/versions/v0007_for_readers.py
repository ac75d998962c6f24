"""For readers: how many pods of running workloads are ready, and the order where past usage decides it."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.pods_ready ("
        "cluster_id text NOT NULL, "
        "workload text NOT NULL, "
        "attempt bigint NOT NULL, "
        "ready bigint NOT NULL, "
        "batch bigint NOT NULL, "
        "PRIMARY KEY (cluster_id, workload))"
    )
    op.execute(
        "CREATE TABLE queuectl.pending_line ("
        "cluster_id text NOT NULL, "
        "cluster_queue text NOT NULL, "
        "workloads jsonb NOT NULL, "
        "batch bigint NOT NULL, "
        "PRIMARY KEY (cluster_id, cluster_queue))"
    )


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.pending_line")
    op.execute("DROP TABLE queuectl.pods_ready")
