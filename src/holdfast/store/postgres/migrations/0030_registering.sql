-- A pause of a queue or a name locks the rows of all workers. A worker that registered while the pause waited for these
-- locks was not among them: it could claim before the pause was committed, and commit that afterwards.
-- Workers from version 29 on may go on.

-- Enter a worker, or answer the one that is there under this id. Not beside a pause: a claim by a worker that is entered
-- after it sees it.
CREATE OR REPLACE FUNCTION {schema}.register(
    wanted_id text, label text, lease double precision, details bytea, at timestamptz DEFAULT NULL
) RETURNS SETOF {schema}.workers
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('{schema}register', 0));
    moment := coalesce(at, clock_timestamp());
    INSERT INTO {schema}.workers (id, label, lease, state, details, started_at, seen_at, expires_at)
    VALUES (wanted_id, label, lease, 'live', details, moment, moment, moment + lease * interval '1 second')
    ON CONFLICT (id) DO NOTHING;
    RETURN QUERY SELECT w.* FROM {schema}.workers w WHERE w.id = wanted_id;
END
$$;

-- Pause a subject, or answer the pause that is there. The row of a single task is locked; for a queue or a name, the rows
-- of all workers: one that leases tasks just now holds its own, and looks at the pauses only then. No worker is entered
-- meanwhile. So no lease of what is paused begins once this has returned.
CREATE OR REPLACE FUNCTION {schema}.pause(
    wanted text, is_task boolean, who text, why text, at timestamptz DEFAULT NULL
) RETURNS SETOF {schema}.pauses
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    paused {schema}.tasks;
BEGIN
    IF is_task THEN
        SELECT t.* INTO paused FROM {schema}.tasks t WHERE t.id = wanted FOR NO KEY UPDATE;
        IF paused.id IS NULL THEN
            RAISE EXCEPTION 'no task %', wanted USING ERRCODE = 'HF003', DETAIL = wanted;
        ELSIF paused.held & 1 = 0 AND paused.finished_at IS NOT NULL THEN
            RAISE EXCEPTION 'task % has ended', wanted USING ERRCODE = 'HF005', DETAIL = paused.state;
        END IF;
    END IF;
    -- One that is there is locked: it must not be ended while this waits below, and then be answered as if it held.
    INSERT INTO {schema}.pauses AS p (subject, at, by, reason)
    VALUES (wanted, coalesce(pause.at, clock_timestamp()), who, why)
    ON CONFLICT (subject) DO UPDATE SET reason = p.reason;
    IF is_task AND paused.held & 1 = 0 THEN
        -- Not updated_at: nothing of its work has happened.
        UPDATE {schema}.tasks t SET held = t.held | 1, revision = t.revision + 1 WHERE t.id = wanted;
    ELSIF NOT is_task THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('{schema}register', 0));
        PERFORM FROM {schema}.workers w WHERE w.state <> 'dead' ORDER BY w.id FOR UPDATE;
    END IF;
    RETURN QUERY SELECT p.* FROM {schema}.pauses p WHERE p.subject = wanted;
END
$$;
