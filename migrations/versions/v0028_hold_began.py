"""Closed holds are found by when they began: what rolls up an hour reads no later history."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

BLOCKS = ("hold_line",)


def upgrade() -> None:
    # Rows are in the order of their ends, and so nearly in that of their beginnings.
    op.execute(
        "CREATE INDEX hold_line_began ON queuectl.hold_line_closed USING brin (from_at) "
        "WITH (pages_per_range = 32, autosummarize = on)"
    )


def downgrade() -> None:
    op.execute("DROP INDEX queuectl.hold_line_began")
