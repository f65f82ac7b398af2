-- Which events a task sees is decided by numbers and transactions, never by time: a clock may step back.
--
-- Every event gets a position, one number for all channels. A task keeps the last position that was given out when it was
-- submitted. That alone is not enough: a transaction that emits may have drawn a lower position and still be under way.
-- So an event also keeps its transaction, and a task the snapshot of its submission. An event is from before the
-- submission where its position is not higher and the snapshot could see its transaction. (queries.sql asks it:
-- position_at_submission.)
--
-- Transaction numbers mean nothing in another cluster, where a dump or a logical copy may have brought the rows. Both
-- sides therefore keep the cluster they were written in; of two that differ the positions alone decide. None of their
-- transactions can have been under way at the same time.
--
-- All of it comes from defaults of the columns: whatever writes these rows says nothing about it.
--
-- Events from before this migration have position 0, and tasks from before it have none. Such a task keeps the rule by
-- time for such events; every event since is later than it.

-- The cluster this session is in. It is looked up once in a session: that reads a file.
CREATE FUNCTION {schema}.event_cluster() RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    known text := current_setting('holdfast.cluster', true);
BEGIN
    -- Empty: an earlier transaction of this session looked it up and was rolled back.
    IF coalesce(known, '') = '' THEN
        BEGIN
            known := (SELECT c.system_identifier FROM pg_control_system() AS c)::text;
        EXCEPTION WHEN insufficient_privilege THEN
            -- A server that hides it: all its clusters count as one.
            known := '0';
        END;
        PERFORM set_config('holdfast.cluster', known, false);
    END IF;
    RETURN known::bigint;
END
$$;

-- Drawn once right here, so that its last value is always one that was given out.
CREATE SEQUENCE {schema}.event_positions MINVALUE 0 START 0;
SELECT nextval('{schema}.event_positions');

-- A position is drawn under the lock on the channel's row, so that it grows with the number within the channel.
ALTER TABLE {schema}.events
    ADD COLUMN position bigint NOT NULL DEFAULT 0,
    ADD COLUMN transaction xid8,
    ADD COLUMN cluster bigint;
ALTER TABLE {schema}.events
    ALTER COLUMN position SET DEFAULT nextval('{schema}.event_positions'),
    ALTER COLUMN transaction SET DEFAULT pg_current_xact_id(),
    ALTER COLUMN cluster SET DEFAULT {schema}.event_cluster();

-- A statement has its snapshot before it evaluates any default. So each event that the snapshot could see had drawn its
-- position by the time the last one is read here.
ALTER TABLE {schema}.inputs
    ADD COLUMN event_position bigint,
    ADD COLUMN event_snapshot pg_snapshot,
    ADD COLUMN event_transaction xid8,
    ADD COLUMN event_cluster bigint;
ALTER TABLE {schema}.inputs
    ALTER COLUMN event_position SET DEFAULT pg_sequence_last_value('{schema}.event_positions'),
    ALTER COLUMN event_snapshot SET DEFAULT pg_current_snapshot(),
    ALTER COLUMN event_transaction SET DEFAULT pg_current_xact_id(),
    ALTER COLUMN event_cluster SET DEFAULT {schema}.event_cluster();

-- Why a waiting task may go on by now, or NULL. When several of its waits hold, the lowest number names the reason.
-- An event has to be there to be read: the channel's counter also counts those that were pruned, and a task that was
-- woken for one of them would find nothing, wait again and be woken again.
CREATE OR REPLACE FUNCTION {schema}.reason_to_go_on(waiting_id text, moment timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT (ARRAY['time came', 'event', 'children ended', 'decided'])[min(CASE w.kind
            WHEN 'time' THEN CASE WHEN w.at <= moment THEN 1 END
            WHEN 'event' THEN CASE WHEN EXISTS (
                SELECT FROM {schema}.events e WHERE e.channel = w.channel AND e.number > w.after OFFSET 0) THEN 2 END
            WHEN 'children' THEN CASE WHEN w.remaining = 0 THEN 3 END
            WHEN 'decided' THEN CASE WHEN EXISTS (
                SELECT FROM {schema}.approvals a WHERE a.id = w.approval_id AND a.state <> 'open') THEN 4 END
        END)]
        FROM {schema}.waits w WHERE w.task_id = waiting_id
    );
END
$$;
