"""For notifications: up to where each sink was told."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.notification_cursor ("
        "cluster_id text NOT NULL, "
        "sink text NOT NULL, "
        "sequence bigint NOT NULL, "
        "sent bigint NOT NULL DEFAULT 0, "
        "sent_at timestamptz, "
        "failures bigint NOT NULL DEFAULT 0, "
        "error text, "
        "next_try timestamptz, "
        "PRIMARY KEY (cluster_id, sink))"
    )


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.notification_cursor")
