"""The ledger: leadership, policy, workloads, attempts, holds, effects and decisions."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SMALL_TABLES = """
CREATE TABLE queuectl.leadership (
    cluster_id      text PRIMARY KEY CHECK (cluster_id <> ''),
    epoch           bigint NOT NULL CHECK (epoch > 0),
    sequence        bigint NOT NULL CHECK (sequence >= 0),
    config_sequence bigint NOT NULL CHECK (config_sequence BETWEEN 0 AND sequence),
    batches         bigint NOT NULL CHECK (batches >= 0),
    now             timestamptz CHECK (isfinite(now)),
    holder          text NOT NULL,
    taken_at        timestamptz NOT NULL
);

CREATE TABLE queuectl.batch (
    cluster_id     text NOT NULL,
    id             text NOT NULL CHECK (id <> ''),
    number         bigint NOT NULL,
    first_sequence bigint NOT NULL,
    epoch          bigint NOT NULL,
    PRIMARY KEY (cluster_id, id)
);
CREATE INDEX batch_number ON queuectl.batch (cluster_id, number);

CREATE TABLE queuectl.config_revision (
    cluster_id text NOT NULL,
    kind       text NOT NULL CHECK (kind <> ''),
    namespace  text NOT NULL,
    name       text NOT NULL CHECK (name <> ''),
    from_seq   bigint NOT NULL,
    to_seq     bigint CHECK (to_seq > from_seq),
    from_at    timestamptz NOT NULL,
    to_at      timestamptz,
    spec       text NOT NULL,
    PRIMARY KEY (cluster_id, kind, namespace, name, from_seq),
    CHECK ((to_seq IS NULL) = (to_at IS NULL))
);
CREATE UNIQUE INDEX config_in_force ON queuectl.config_revision (cluster_id, kind, namespace, name)
    WHERE to_seq IS NULL;
CREATE INDEX config_from ON queuectl.config_revision (cluster_id, from_seq);
CREATE INDEX config_to ON queuectl.config_revision (cluster_id, to_seq) WHERE to_seq IS NOT NULL;

CREATE TABLE queuectl.workload_object (
    cluster_id text NOT NULL,
    uid        text NOT NULL,
    workload   text NOT NULL,
    kind       text NOT NULL,
    role       text NOT NULL,
    PRIMARY KEY (cluster_id, uid, workload)
);
CREATE INDEX workload_object_of ON queuectl.workload_object (cluster_id, workload);
"""

WORKLOAD = """
CREATE TABLE queuectl.workload (
    cluster_id    text NOT NULL,
    id            text NOT NULL CHECK (id <> ''),
    namespace     text NOT NULL,
    kind          text NOT NULL,
    name          text NOT NULL,
    uid           text NOT NULL,
    queue         text NOT NULL,
    cluster_queue text,
    priority      bigint NOT NULL,
    created_at    timestamptz NOT NULL CHECK (isfinite(created_at)),
    arrival       bigint NOT NULL CHECK (arrival >= 0),
    submitter     text,
    labels        jsonb NOT NULL,
    shape         text NOT NULL,
    phase         text NOT NULL CHECK (phase IN ('Pending', 'Admitted', 'Evicting', 'Finished', 'Deleted')),
    attempts      bigint NOT NULL CHECK (attempts >= 0),
    reason        jsonb CHECK (reason ->> 'code' <> ''),
    queued_seq    bigint NOT NULL,
    updated_seq   bigint NOT NULL CHECK (updated_seq >= queued_seq),
    open          boolean NOT NULL DEFAULT true,
    closed_seq    bigint,
    closed_at     timestamptz,
    CHECK (open = (phase IN ('Pending', 'Admitted', 'Evicting'))),
    CHECK (open = (closed_seq IS NULL) AND open = (closed_at IS NULL))
) PARTITION BY LIST (open);
CREATE TABLE queuectl.workload_open PARTITION OF queuectl.workload FOR VALUES IN (true)
    WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE queuectl.workload_closed PARTITION OF queuectl.workload FOR VALUES IN (false)
    PARTITION BY RANGE (closed_at);
CREATE UNIQUE INDEX workload_open_id ON queuectl.workload_open (cluster_id, id);
CREATE INDEX workload_name ON queuectl.workload (cluster_id, namespace, kind, name);
CREATE INDEX workload_updated ON queuectl.workload (cluster_id, updated_seq);
CREATE INDEX workload_ended ON queuectl.workload_closed (cluster_id, closed_seq);
"""

ATTEMPT = """
CREATE TABLE queuectl.attempt (
    cluster_id    text NOT NULL,
    workload      text NOT NULL,
    number        bigint NOT NULL CHECK (number >= 1),
    state         text NOT NULL CHECK (state IN ('Reserved', 'Admitted', 'Evicting', 'Closed')),
    cluster_queue text NOT NULL CHECK (cluster_queue <> ''),
    admitted_at   timestamptz NOT NULL CHECK (isfinite(admitted_at)),
    sequence      bigint NOT NULL CHECK (sequence >= 1),
    debt          boolean NOT NULL,
    pod_sets      jsonb NOT NULL,
    open          boolean NOT NULL DEFAULT true,
    closed_seq    bigint,
    closed_at     timestamptz,
    CHECK (open = (state <> 'Closed')),
    CHECK (open = (closed_seq IS NULL) AND open = (closed_at IS NULL))
) PARTITION BY LIST (open);
CREATE TABLE queuectl.attempt_open PARTITION OF queuectl.attempt FOR VALUES IN (true)
    WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE queuectl.attempt_closed PARTITION OF queuectl.attempt FOR VALUES IN (false)
    PARTITION BY RANGE (closed_at);
CREATE UNIQUE INDEX attempt_one_open ON queuectl.attempt_open (cluster_id, workload);
CREATE INDEX attempt_workload ON queuectl.attempt_closed (cluster_id, workload, number);
"""

HOLD_LINE = """
CREATE TABLE queuectl.hold_line (
    cluster_id    text NOT NULL,
    workload      text NOT NULL,
    attempt       bigint NOT NULL CHECK (attempt >= 1),
    cluster_queue text NOT NULL,
    pod_set       text NOT NULL,
    count         bigint NOT NULL CHECK (count >= 0),
    flavor        text NOT NULL CHECK (flavor <> ''),
    resource      text NOT NULL CHECK (resource <> ''),
    amount        bigint NOT NULL CHECK (amount >= 0),
    from_seq      bigint NOT NULL,
    from_at       timestamptz NOT NULL,
    open          boolean NOT NULL DEFAULT true,
    to_seq        bigint CHECK (to_seq > from_seq),
    closed_at     timestamptz,
    CHECK (open = (to_seq IS NULL) AND open = (closed_at IS NULL))
) PARTITION BY LIST (open);
CREATE TABLE queuectl.hold_line_open PARTITION OF queuectl.hold_line FOR VALUES IN (true)
    WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE queuectl.hold_line_closed PARTITION OF queuectl.hold_line FOR VALUES IN (false)
    PARTITION BY RANGE (closed_at);
CREATE INDEX hold_line_open_of ON queuectl.hold_line_open (cluster_id, workload, attempt);
CREATE INDEX hold_line_ended ON queuectl.hold_line_closed (cluster_id, to_seq);
"""

EFFECT = """
CREATE TABLE queuectl.effect (
    cluster_id      text NOT NULL,
    sequence        bigint NOT NULL,
    workload        text NOT NULL,
    attempt         bigint NOT NULL CHECK (attempt >= 1),
    verb            text NOT NULL CHECK (verb IN ('Start', 'Stop')),
    open            boolean NOT NULL DEFAULT true,
    acknowledged_at timestamptz,
    closed_at       timestamptz,
    CHECK (open = (closed_at IS NULL)),
    CHECK (acknowledged_at IS NULL OR NOT open)
) PARTITION BY LIST (open);
CREATE TABLE queuectl.effect_open PARTITION OF queuectl.effect FOR VALUES IN (true)
    WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE queuectl.effect_closed PARTITION OF queuectl.effect FOR VALUES IN (false)
    PARTITION BY RANGE (closed_at);
CREATE UNIQUE INDEX effect_one_open ON queuectl.effect_open (cluster_id, workload, attempt, verb);
CREATE INDEX effect_decision ON queuectl.effect (cluster_id, sequence);
"""

DECISION = """
CREATE TABLE queuectl.decision (
    cluster_id      text NOT NULL,
    sequence        bigint NOT NULL CHECK (sequence >= 1),
    now             timestamptz NOT NULL CHECK (isfinite(now)),
    epoch           bigint NOT NULL,
    cycle           bigint NOT NULL CHECK (cycle >= 0),
    verdict         text NOT NULL CHECK (verdict <> ''),
    workload        text,
    namespace       text,
    kind            text,
    name            text,
    uid             text,
    attempt         bigint,
    reason          jsonb CHECK (reason ->> 'code' <> ''),
    payload         jsonb NOT NULL,
    payload_version smallint NOT NULL,
    rules_version   smallint NOT NULL,
    config_version  bigint NOT NULL,
    PRIMARY KEY (cluster_id, sequence, now)
) PARTITION BY RANGE (now);
CREATE INDEX decision_workload ON queuectl.decision (cluster_id, workload, sequence);

CREATE FUNCTION queuectl.decision_is_gapless() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run record;
    before bigint;
BEGIN
    FOR run IN
        SELECT cluster_id, min(sequence) AS first, max(sequence) AS last, count(*) AS rows
        FROM added GROUP BY cluster_id
    LOOP
        SELECT max(sequence) INTO before FROM queuectl.decision
            WHERE cluster_id = run.cluster_id AND sequence < run.first;
        IF before IS NULL THEN
            -- The first of this cluster, or of what is kept of it: a rebuilt ledger starts above its past.
            before := run.first - 1;
        END IF;
        IF run.last - run.first + 1 <> run.rows OR before <> run.first - 1 OR EXISTS (
            SELECT FROM queuectl.decision WHERE cluster_id = run.cluster_id AND sequence > run.last
        ) THEN
            RAISE EXCEPTION 'cluster %: decisions % to % (% rows) do not follow %',
                run.cluster_id, run.first, run.last, run.rows, before USING ERRCODE = 'check_violation';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER decision_is_gapless AFTER INSERT ON queuectl.decision
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION queuectl.decision_is_gapless();

CREATE FUNCTION queuectl.decision_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'decisions are never changed or deleted, only dropped by the month'
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER decision_is_final BEFORE UPDATE OR DELETE OR TRUNCATE ON queuectl.decision
    FOR EACH STATEMENT EXECUTE FUNCTION queuectl.decision_is_final();
"""

DEFAULTS = """
CREATE TABLE queuectl.decision_default PARTITION OF queuectl.decision DEFAULT;
CREATE TABLE queuectl.workload_closed_default PARTITION OF queuectl.workload_closed DEFAULT;
CREATE TABLE queuectl.attempt_closed_default PARTITION OF queuectl.attempt_closed DEFAULT;
CREATE TABLE queuectl.hold_line_closed_default PARTITION OF queuectl.hold_line_closed DEFAULT;
CREATE TABLE queuectl.effect_closed_default PARTITION OF queuectl.effect_closed DEFAULT;
"""


def upgrade() -> None:
    for part in (SMALL_TABLES, WORKLOAD, ATTEMPT, HOLD_LINE, EFFECT, DECISION, DEFAULTS):
        for statement in _statements(part):
            op.execute(statement)


def downgrade() -> None:
    for table in (
        *("decision", "effect", "hold_line", "attempt", "workload"),
        *("workload_object", "config_revision", "batch", "leadership"),
    ):
        op.execute(f"DROP TABLE queuectl.{table}")
    op.execute("DROP FUNCTION queuectl.decision_is_gapless()")
    op.execute("DROP FUNCTION queuectl.decision_is_final()")


def _statements(script: str) -> list[str]:
    """One statement each, for a driver that prepares them: split at line ends, but not inside a function."""
    statements, current, quoted = [], "", False
    for line in script.splitlines(keepends=True):
        current += line
        quoted ^= line.count("$$") % 2 == 1
        if not quoted and line.rstrip().endswith(";"):
            statements.append(current.strip())
            current = ""
    return statements
