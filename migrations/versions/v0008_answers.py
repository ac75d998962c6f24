"""For answers: starts by ClusterQueue, and preemptions, in the order of their decisions."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

BLOCKS = ("decision",)


def upgrade() -> None:
    # Partial: few decisions are starts, and very few are preemptions.
    op.execute(
        "CREATE INDEX decision_started ON queuectl.decision "
        "(cluster_id, (payload ->> 'clusterQueue'), sequence) WHERE verdict = 'Admitted'"
    )
    op.execute(
        "CREATE INDEX decision_preempted ON queuectl.decision (cluster_id, sequence) "
        "WHERE verdict = 'Evicted' AND reason ->> 'code' = 'Preempted'"
    )


def downgrade() -> None:
    op.execute("DROP INDEX queuectl.decision_preempted")
    op.execute("DROP INDEX queuectl.decision_started")
