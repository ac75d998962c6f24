"""Verdicts about devices are decisions, and what the workload's row has of its past: no rows of their own."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DROP TABLE queuectl.idle_verdict")


def downgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.idle_verdict ("
        "cluster_id text NOT NULL, "
        "workload text NOT NULL, "
        "attempt bigint NOT NULL, "
        "since timestamptz NOT NULL, "
        "until timestamptz CHECK (until >= since), "
        "verdict text NOT NULL, "
        "devices bigint NOT NULL CHECK (devices > 0), "
        "idle_devices bigint NOT NULL CHECK (idle_devices BETWEEN 0 AND devices), "
        "coverage double precision NOT NULL CHECK (coverage BETWEEN 0 AND 1), "
        "engine double precision, "
        "multiprocessors double precision, "
        "PRIMARY KEY (cluster_id, workload, attempt, since))"
    )
    op.execute(
        "CREATE UNIQUE INDEX idle_verdict_in_force ON queuectl.idle_verdict (cluster_id, workload) "
        "WHERE until IS NULL"
    )
