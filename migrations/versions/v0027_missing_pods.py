"""Which pods of a group that runs do not exist."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

BLOCKS = ("pods_ready",)


def upgrade() -> None:
    op.execute("ALTER TABLE queuectl.pods_ready ADD COLUMN missing text NOT NULL DEFAULT ''")


def downgrade() -> None:
    op.execute("ALTER TABLE queuectl.pods_ready DROP COLUMN missing")
