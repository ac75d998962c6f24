"""Usage by the month: sums of days, for months and years."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE TABLE queuectl.usage_month (LIKE queuectl.usage_day INCLUDING ALL)")
    # Days and months count from here on.
    op.execute("UPDATE queuectl.rolled SET zone_since = until")


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.usage_month")
