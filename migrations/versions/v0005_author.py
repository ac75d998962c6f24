"""The user that wrote the spec of a policy object."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BLOCKS = ("config_revision",)


def upgrade() -> None:
    op.execute("ALTER TABLE queuectl.config_revision ADD COLUMN author text")


def downgrade() -> None:
    op.execute("ALTER TABLE queuectl.config_revision DROP COLUMN author")
