"""What `verify` computed from history so far, so that it need not read all of it again."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.checkpoint ("
        "cluster_id text PRIMARY KEY, "
        "format smallint NOT NULL, "
        "sequence bigint NOT NULL CHECK (sequence >= 1), "
        "digest text NOT NULL, "
        "state text NOT NULL, "
        "stored_at timestamptz NOT NULL)"
    )


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.checkpoint")
