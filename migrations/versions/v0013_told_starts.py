"""For notifications: the start of each pending workload as sinks were told last."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.told_start ("
        "cluster_id text NOT NULL, "
        "sink text NOT NULL, "
        "workload text NOT NULL, "
        "start timestamptz, "
        "told bigint NOT NULL DEFAULT 0, "
        "moved timestamptz, "
        "moved_at timestamptz, "
        "asked_at timestamptz NOT NULL, "
        "PRIMARY KEY (cluster_id, sink, workload))"
    )


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.told_start")
