"""For readers: each node, and the pods that are bound to it."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.node ("
        "cluster_id text NOT NULL, "
        "name text NOT NULL, "
        "facts jsonb NOT NULL, "
        "batch bigint NOT NULL, "
        "PRIMARY KEY (cluster_id, name))"
    )


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.node")
