"""What pending workloads request: podsets, once for all workloads that are alike."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.shape ("
        "cluster_id text NOT NULL, "
        "id text NOT NULL, "
        "pod_sets jsonb NOT NULL, "
        "PRIMARY KEY (cluster_id, id))"
    )


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.shape")
