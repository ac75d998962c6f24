"""A leader that stops says what it has read: the next one need not list that again."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

BLOCKS = ("leadership",)


def upgrade() -> None:
    op.execute("ALTER TABLE queuectl.leadership ADD COLUMN read_up_to jsonb, ADD COLUMN stopped_batch bigint")


def downgrade() -> None:
    op.execute("ALTER TABLE queuectl.leadership DROP COLUMN read_up_to, DROP COLUMN stopped_batch")
