"""How many devices of an attempt are idle from which decision on, and which resources are checked."""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

BLOCKS = ("idle_check",)


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.idle_time ("
        "cluster_id text NOT NULL, "
        "workload text NOT NULL, "
        "attempt bigint NOT NULL, "
        "from_seq bigint NOT NULL, "
        "from_at timestamptz NOT NULL, "
        "devices bigint NOT NULL CHECK (devices > 0), "
        "idle_devices bigint NOT NULL CHECK (idle_devices BETWEEN 0 AND devices), "
        "PRIMARY KEY (cluster_id, workload, attempt, from_seq))"
    )
    op.execute("ALTER TABLE queuectl.idle_check ADD COLUMN resources text[] NOT NULL DEFAULT '{}'")


def downgrade() -> None:
    op.execute("ALTER TABLE queuectl.idle_check DROP COLUMN resources")
    op.execute("DROP TABLE queuectl.idle_time")
