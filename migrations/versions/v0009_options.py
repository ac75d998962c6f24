"""What the labels of a workload ask for: with it an engine is made from rows alone."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BLOCKS = ("workload",)


def upgrade() -> None:
    op.execute("ALTER TABLE queuectl.workload ADD COLUMN options jsonb")


def downgrade() -> None:
    op.execute("ALTER TABLE queuectl.workload DROP COLUMN options")
