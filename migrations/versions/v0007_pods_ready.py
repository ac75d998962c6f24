"""How many pods of running workloads are ready, for readers."""

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


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.pods_ready")
