"""An identity of the database itself, so that one cluster is not led from two."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.installation ("
        "single boolean PRIMARY KEY DEFAULT true CHECK (single), "
        "id uuid NOT NULL DEFAULT gen_random_uuid(), "
        "made_at timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
    op.execute("INSERT INTO queuectl.installation DEFAULT VALUES")


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.installation")
