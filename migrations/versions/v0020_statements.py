"""Statements of months, whose lines are never changed."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_MONTH = "CHECK ({} ~ '^[0-9]{{4}}-[0-9]{{2}}$')"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE queuectl.statement ("
        "cluster_id text NOT NULL, "
        f"month text NOT NULL {_MONTH.format('month')}, "
        "zone text NOT NULL, "
        "begins_at timestamptz NOT NULL, ends_at timestamptz NOT NULL CHECK (ends_at > begins_at), "
        "currency text NOT NULL, decimals smallint NOT NULL CHECK (decimals BETWEEN 0 AND 6), "
        "lines bigint NOT NULL, total numeric NOT NULL, digest text NOT NULL, "
        "rate_card jsonb NOT NULL, "
        "closed_at timestamptz NOT NULL DEFAULT clock_timestamp(), "
        "closed_by text NOT NULL DEFAULT session_user, "
        "PRIMARY KEY (cluster_id, month))"
    )
    op.execute(
        "CREATE TABLE queuectl.statement_line ("
        "cluster_id text NOT NULL, "
        f"month text NOT NULL {_MONTH.format('month')}, "
        "number bigint NOT NULL CHECK (number >= 1), "
        "kind text NOT NULL, "
        "begins_at timestamptz NOT NULL, ends_at timestamptz NOT NULL CHECK (ends_at > begins_at), "
        "booked boolean NOT NULL, namespace text, queue text, submitter text, user_name text, "
        "priority_class text, account jsonb, "
        "cluster_queue text NOT NULL, flavor text NOT NULL, resource text NOT NULL, "
        "amount numeric NOT NULL, price numeric, list_price numeric, cost numeric NOT NULL, "
        f"of_month text {_MONTH.format('of_month')}, reason text, "
        "stored_at timestamptz NOT NULL DEFAULT clock_timestamp(), "
        "stored_by text NOT NULL DEFAULT session_user, "
        "CHECK ((of_month IS NULL) = (reason IS NULL)), "
        "PRIMARY KEY (cluster_id, month, number))"
    )
    op.execute(
        "CREATE FUNCTION queuectl.statement_is_final() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'statements are never changed or deleted: a correction is a new line' "
        "USING ERRCODE = 'check_violation'; END $$"
    )
    for table in ("statement", "statement_line"):
        op.execute(
            f"CREATE TRIGGER {table}_is_final BEFORE UPDATE OR DELETE OR TRUNCATE ON queuectl.{table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION queuectl.statement_is_final()"
        )
    op.execute(
        "CREATE FUNCTION queuectl.month_is_closed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF EXISTS (SELECT FROM added JOIN queuectl.statement USING (cluster_id, month)) THEN "
        "RAISE EXCEPTION 'the month is closed: a correction belongs to the open month' "
        "USING ERRCODE = 'check_violation'; END IF; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER month_is_closed AFTER INSERT ON queuectl.statement_line "
        "REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION queuectl.month_is_closed()"
    )


def downgrade() -> None:
    for table in ("statement_line", "statement"):
        op.execute(f"DROP TABLE queuectl.{table}")
    for function in ("statement_is_final", "month_is_closed"):
        op.execute(f"DROP FUNCTION queuectl.{function}()")
