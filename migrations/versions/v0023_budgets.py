"""Rows of budgets: what admissions reserve, and what attempts have used."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.budget_entry ("
        "cluster_id text NOT NULL, "
        "sequence bigint NOT NULL, "
        "number bigint NOT NULL, "
        "kind text NOT NULL CHECK (kind IN ('Reserve', 'Settle', 'Refund')), "
        "budget text NOT NULL, "
        "subject text NOT NULL, "
        "resource text NOT NULL, "
        "begins_at timestamptz NOT NULL, "
        "ends_at timestamptz NOT NULL CHECK (ends_at > begins_at), "
        "workload text NOT NULL, "
        "attempt bigint NOT NULL, "
        "at timestamptz NOT NULL, "
        "rate bigint NOT NULL CHECK (rate > 0), "
        "until timestamptz, "
        "reserved numeric NOT NULL, "
        "used numeric NOT NULL, "
        "PRIMARY KEY (cluster_id, sequence, number))"
    )
    op.execute(
        "CREATE INDEX budget_entry_of_budget "
        "ON queuectl.budget_entry (cluster_id, budget, subject, begins_at)"
    )
    op.execute(
        "CREATE INDEX budget_entry_of_attempt ON queuectl.budget_entry (cluster_id, workload, attempt)"
    )


def downgrade() -> None:
    op.execute("DROP TABLE queuectl.budget_entry")
