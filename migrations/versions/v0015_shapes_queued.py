"""When a workload was last queued with these podsets: those that no history needs are dropped."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

BLOCKS = ("shape",)


def upgrade() -> None:
    # The default is one value for all rows: no row is written. A leader of the version before relies on it.
    op.execute("ALTER TABLE queuectl.shape ADD COLUMN queued_at timestamptz NOT NULL DEFAULT now()")


def downgrade() -> None:
    op.execute("ALTER TABLE queuectl.shape DROP COLUMN queued_at")
