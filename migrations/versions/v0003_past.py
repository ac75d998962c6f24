"""What a workload's attempts leave behind: run time, starts that came to nothing, why it is kept out."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BLOCKS = ("workload",)


def upgrade() -> None:
    op.execute("ALTER TABLE queuectl.workload ADD COLUMN past jsonb")


def downgrade() -> None:
    op.execute("ALTER TABLE queuectl.workload DROP COLUMN past")
