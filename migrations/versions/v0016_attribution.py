"""What holds are booked on, as it was at their admission."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

BLOCKS = ("hold_line",)


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.attribution ("
        "cluster_id text NOT NULL, "
        "id text NOT NULL, "
        "namespace text NOT NULL, "
        "queue text NOT NULL, "
        "submitter text, "
        "user_name text, "
        "priority_class text, "
        "account jsonb NOT NULL, "
        "PRIMARY KEY (cluster_id, id))"
    )
    # Null in all rows, and in those of a leader of the version before: no row is written.
    op.execute("ALTER TABLE queuectl.hold_line ADD COLUMN attribution text")


def downgrade() -> None:
    op.execute("ALTER TABLE queuectl.hold_line DROP COLUMN attribution")
    op.execute("DROP TABLE queuectl.attribution")
