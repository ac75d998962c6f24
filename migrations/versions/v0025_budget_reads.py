"""Rows of budgets have the namespace of their workload, and an index of what is used by period."""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

BLOCKS = ("budget_entry",)


def upgrade() -> None:
    op.execute("ALTER TABLE queuectl.budget_entry ADD COLUMN namespace text")
    op.execute(
        "UPDATE queuectl.budget_entry SET namespace = decision.namespace FROM queuectl.decision "
        "WHERE decision.cluster_id = budget_entry.cluster_id AND decision.sequence = budget_entry.sequence "
        "AND decision.now = budget_entry.at"
    )
    op.execute(
        "CREATE INDEX budget_entry_used ON queuectl.budget_entry "
        "(cluster_id, ends_at, budget, subject, resource, begins_at, namespace) "
        "INCLUDE (used, workload, attempt, sequence) WHERE used <> 0"
    )


def downgrade() -> None:
    op.execute("DROP INDEX queuectl.budget_entry_used")
    op.execute("ALTER TABLE queuectl.budget_entry DROP COLUMN namespace")
