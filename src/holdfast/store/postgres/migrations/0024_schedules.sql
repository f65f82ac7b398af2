-- Schedules: what is submitted again and again. A caller that changes a row names the revision that it has seen, so that
-- of all workers that fire a tick one does. The rules of the times live in holdfast.model.due_schedule.
--
-- Workers of the version before know nothing of schedules: they fire none, and run what others submit.
-- Workers from version 23 on may go on.

CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    spec bytea NOT NULL,
    anchored_at timestamptz NOT NULL,
    tick_at timestamptz NOT NULL,
    -- NULL: it fires nothing.
    due_at timestamptz,
    waits_for_last boolean NOT NULL,
    declared boolean NOT NULL,
    declared_by text COLLATE "C",
    paused_at timestamptz,
    paused_by text,
    pause_reason text,
    last_tick_at timestamptz,
    last_task_id text COLLATE "C",
    fired_at timestamptz,
    skipped_at timestamptz,
    created_at timestamptz NOT NULL,
    revision bigint NOT NULL
);
CREATE INDEX schedules_due ON {schema}.schedules (due_at, name) WHERE due_at IS NOT NULL;
CREATE INDEX schedules_declared ON {schema}.schedules (declared_by, name) WHERE declared_by IS NOT NULL;

-- A schedule as the model shows it: the row, how its last task stands, and whether the worker that declares it lives.
CREATE VIEW {schema}.shown_schedules AS
SELECT s.*, t.state AS last_state, t.finished_at AS last_ended_at,
       EXISTS (SELECT FROM {schema}.workers w WHERE w.id = s.declared_by AND w.state <> 'dead') AS declarer_lives
FROM {schema}.schedules s LEFT JOIN {schema}.tasks t ON t.id = s.last_task_id;

-- Store a schedule and submit tasks, if its revision is still `seen`; 0: if there is none of that name. Says whether it
-- was so, and returns which of the tasks are not new, as submit does. The lock on the row comes first: of two that fire
-- the same tick the second waits here, sees the new revision, and submits nothing.
CREATE FUNCTION {schema}.put_schedule(
    wanted json, spec bytea, seen bigint, tasks json, payloads bytea[], at timestamptz DEFAULT NULL,
    OUT changed boolean, OUT known {schema}.submission[]
)
LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE
    moment timestamptz := coalesce(at, clock_timestamp());
    w {schema}.schedules := json_populate_record(NULL::{schema}.schedules, wanted);
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    IF seen = 0 THEN
        INSERT INTO {schema}.schedules VALUES (
            w.name, put_schedule.spec, w.anchored_at, w.tick_at, w.due_at, w.waits_for_last, w.declared, w.declared_by,
            w.paused_at, w.paused_by, w.pause_reason, w.last_tick_at, w.last_task_id, w.fired_at, w.skipped_at, moment,
            1)
        ON CONFLICT DO NOTHING;
    ELSE
        UPDATE {schema}.schedules s
        SET spec = put_schedule.spec, anchored_at = w.anchored_at, tick_at = w.tick_at, due_at = w.due_at,
            waits_for_last = w.waits_for_last, declared = w.declared, declared_by = w.declared_by,
            paused_at = w.paused_at, paused_by = w.paused_by, pause_reason = w.pause_reason,
            last_tick_at = w.last_tick_at, last_task_id = w.last_task_id, fired_at = w.fired_at,
            skipped_at = w.skipped_at, revision = s.revision + 1
        WHERE s.name = w.name AND s.revision = seen;
    END IF;
    changed := FOUND;
    known := '{}';
    IF changed AND json_array_length(tasks) > 0 THEN
        known := ARRAY(SELECT s FROM {schema}.submit(tasks, payloads, false, at) AS s);
    END IF;
END
$$;

-- When the next schedule is due: one whose worker is dead at once, so that another one takes it over; one that waits for
-- its last task not before that has ended. Two index ends, both of them empty where there are no schedules.
CREATE FUNCTION {schema}.next_tick() RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    RETURN coalesce((
        SELECT timestamptz 'epoch' FROM {schema}.schedules s
        WHERE s.declared_by IS NOT NULL
          AND NOT EXISTS (SELECT FROM {schema}.workers w WHERE w.id = s.declared_by AND w.state <> 'dead')
        LIMIT 1
    ), (
        SELECT s.due_at FROM {schema}.schedules s
        WHERE s.due_at IS NOT NULL AND (NOT s.waits_for_last OR NOT EXISTS (
            SELECT FROM {schema}.tasks t WHERE t.id = s.last_task_id AND t.finished_at IS NULL))
        ORDER BY s.due_at, s.name LIMIT 1
    ));
END
$$;
