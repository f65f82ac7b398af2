-- Fair queues: their tasks take turns by the value of a label. See decision 0035. No worker of the version before may go on:
-- it would not have the tasks given their turns, and so claim none of them.
--
-- The order of locks: a pass locks the rows of fair queues, by name, and then tasks, of which it skips those that are locked.
-- Nothing that holds a task waits for the row of a fair queue.

CREATE TABLE {schema}.fair_queues (
    queue text COLLATE "C" PRIMARY KEY,
    fair_by text NOT NULL,
    -- The highest turn that was claimed, apart from what turns_claimed says.
    turn bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- What claims have reached since. Rows of their own, or claims of one queue would wait for each other. The next pass adds
-- them up and deletes them.
CREATE TABLE {schema}.turns_claimed (
    queue text COLLATE "C" NOT NULL,
    turn bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX turns_claimed_by_queue ON {schema}.turns_claimed (queue);

-- The last turn that was given in a lane: a tenant's tasks of one priority that never began, or those that did. Only while
-- claims have not gone past that turn.
CREATE TABLE {schema}.lanes (
    queue text COLLATE "C",
    lane text COLLATE "C",
    last bigint NOT NULL,
    PRIMARY KEY (queue, lane)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX lanes_by_turn ON {schema}.lanes (queue, last);

-- A task of a fair queue that is ready is held until it has its turn: bit 4 of `held`. With it, `rank` is its turn, so many
-- microseconds after 1970, and it stands in its lane. A submission only notes its task by that: it locks no lane.
ALTER TABLE {schema}.tasks ADD COLUMN lane text COLLATE "C";
CREATE INDEX tasks_without_turn ON {schema}.tasks (queue) WHERE ready >= 1 AND held >= 4;
-- Those of them that will wait for a limit: for a count.
CREATE INDEX tasks_to_stand_in_line ON {schema}.tasks (waits_for)
    WHERE ready >= 1 AND held IN (4, 6) AND waits_for IS NOT NULL;
CREATE INDEX tasks_in_lanes ON {schema}.tasks (queue, lane, rank) WHERE lane IS NOT NULL AND ready >= 1;
-- The first turn of each name that a claim could take, apart from tasks with limits.
CREATE INDEX tasks_with_turns ON {schema}.tasks (queue, name, ready, rank)
    WHERE lane IS NOT NULL AND limits IS NULL AND held = 0 AND ready >= 1;

-- A turn as it stands in `rank`, and back.
CREATE FUNCTION {schema}.rank_of_turn(turn bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT timestamptz 'epoch' + turn * interval '1 microsecond'
$$;
CREATE FUNCTION {schema}.turn_of_rank(rank timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM rank) * 1000000)::bigint
$$;

-- Count tasks that enter a queue with settings, or refuse all of them where it is full. Tasks of a schedule are not refused.
-- Tasks of a fair queue wait for their turns.
--
-- Only a queue with a limit is locked, by what may be refused: these submissions wait for each other, perhaps for a
-- transaction of a user's own. Elsewhere the number is noted, as for moves. The worker that submits the task of a schedule
-- could claim nothing while it waited. set_queue() gives a queue a limit while no task is written.
CREATE OR REPLACE FUNCTION {schema}.enter_queue(wanted text, ids text[], pending_ones bigint, is_refusable boolean)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    settings {schema}.queues;
BEGIN
    IF is_refusable AND EXISTS (
        SELECT FROM {schema}.queues q WHERE q.name = wanted AND q.max_pending IS NOT NULL)
    THEN
        SELECT q.* INTO settings FROM {schema}.queues q WHERE q.name = wanted FOR NO KEY UPDATE;
        IF {schema}.count_again(wanted) + pending_ones > settings.max_pending THEN
            PERFORM {schema}.refuse('full', jsonb_build_object('queue', wanted, 'limit', settings.max_pending));
        END IF;
        UPDATE {schema}.queues q SET pending = q.pending + pending_ones WHERE q.name = wanted;
    ELSIF pending_ones > 0 THEN
        PERFORM {schema}.note_pending(wanted, pending_ones::integer);
    END IF;
    IF EXISTS (SELECT FROM {schema}.fair_queues f WHERE f.queue = wanted) THEN
        UPDATE {schema}.tasks t SET is_counted = true, held = t.held | CASE WHEN t.ready >= 1 THEN 4 ELSE 0 END
        WHERE t.id = ANY (ids);
    ELSE
        UPDATE {schema}.tasks t SET is_counted = true WHERE t.id = ANY (ids);
    END IF;
END
$$;

-- Note that tasks of a queue became pending, or are pending no more. Now and then the changes are added up here: a queue to
-- which nothing is submitted, or that cannot be full, must not collect them for ever.
CREATE FUNCTION {schema}.note_pending(wanted text, changed integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.queue_changes (queue, change) VALUES (wanted, changed);
    IF random() < 0.001 THEN
        PERFORM FROM {schema}.queues q WHERE q.name = wanted FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM {schema}.count_again(wanted);
        END IF;
    END IF;
END
$$;

-- A task of a fair queue becomes ready, or gets another place among the ready ones: it waits for its turn. Or it leaves before
-- it has had one. AFTER, with a statement of its own for the few tasks that it concerns, as with the tasks of limits.
CREATE FUNCTION {schema}.follow_fair_task() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.ready = 0 THEN
        UPDATE {schema}.tasks t SET held = t.held & 3 WHERE t.id = NEW.id;
    ELSIF EXISTS (SELECT FROM {schema}.fair_queues f WHERE f.queue = NEW.queue) THEN
        UPDATE {schema}.tasks t
        SET held = t.held | 4, lane = NULL, rank = {schema}.rank_of(t.available_at, t.priority) WHERE t.id = NEW.id;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER task_waits_for_its_turn AFTER UPDATE OF ready, rank ON {schema}.tasks
    FOR EACH ROW
    WHEN ((NEW.is_counted OR OLD.finished_at IS NOT NULL)
          AND CASE WHEN NEW.ready = 0 THEN NEW.held >= 4
                   ELSE OLD.held < 4 AND NEW.held < 4 AND (OLD.ready = 0 OR OLD.rank <> NEW.rank) END)
    EXECUTE FUNCTION {schema}.follow_fair_task();

-- Whether a task of these queues, or (NULL) of any, has to get its turn before a claim. Not STABLE: it sees what the sweep in
-- the same statement has done.
CREATE FUNCTION {schema}.lacks_turns(queues text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM {schema}.fair_queues f
        WHERE (queues IS NULL OR f.queue = ANY (queues))
          AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.queue = f.queue AND t.ready >= 1 AND t.held >= 4));
END
$$;

-- Give turns to the tasks that have none: of these queues, or (NULL) of all. All that can be seen at once, and in one
-- statement, or a tenant that has submitted 100,000 tasks would stand before those of whom none has a turn yet. Returns
-- whether a line of tasks with limits has to be looked at now.
--
-- Nothing has to be durable: after a crash, the tasks wait for their turns again.
CREATE FUNCTION {schema}.give_turns(queues text[], at timestamptz DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    one record;
    now_at bigint;
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    PERFORM set_config('synchronous_commit', 'off', true);
    -- Before the rows of the queues: set_turns() locks in this order.
    LOCK TABLE {schema}.tasks IN ROW EXCLUSIVE MODE;
    FOR one IN
        SELECT f.queue, f.fair_by FROM {schema}.fair_queues f
        WHERE (queues IS NULL OR f.queue = ANY (queues))
          AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.queue = f.queue AND t.ready >= 1 AND t.held >= 4)
        ORDER BY f.queue FOR NO KEY UPDATE
    LOOP
        now_at := {schema}.add_turns_up(one.queue);
        DELETE FROM {schema}.lanes l WHERE l.queue = one.queue AND l.last < now_at;
        PERFORM {schema}.give_turns_in(one.queue, one.fair_by, now_at);
    END LOOP;
    RETURN EXISTS (SELECT FROM {schema}.limits) AND {schema}.has_noted_line(coalesce(at, clock_timestamp()));
END
$$;

-- Which turn claims of a queue have reached, whose row the caller has locked.
CREATE FUNCTION {schema}.add_turns_up(wanted text) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE
    reached bigint;
    now_at bigint;
BEGIN
    WITH gone AS (DELETE FROM {schema}.turns_claimed c WHERE c.queue = wanted RETURNING c.turn)
    SELECT max(gone.turn) INTO reached FROM gone;
    UPDATE {schema}.fair_queues f SET turn = greatest(f.turn, reached) WHERE f.queue = wanted RETURNING f.turn INTO now_at;
    RETURN now_at;
END
$$;

-- The turn of a lane's first task of this name: what the claims have reached. Tasks of a name that no worker has served for a
-- time have turns that the claims went past. The first task of another tenant goes right behind the first of them.
CREATE FUNCTION {schema}.first_turn(wanted text, wanted_name text, wanted_ready smallint, now_at bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN least(now_at, 1 + (
        SELECT {schema}.turn_of_rank(t.rank) FROM {schema}.tasks t
        WHERE t.queue = wanted AND t.name = wanted_name AND t.ready = wanted_ready
          AND t.lane IS NOT NULL AND t.limits IS NULL AND t.held = 0 AND t.ready >= 1
        ORDER BY t.rank LIMIT 1));
END
$$;

-- The last turn of a lane: of a task that is there, or the one that it has just had; or -1. Rows of lanes that claims have
-- gone past are deleted.
CREATE FUNCTION {schema}.last_turn(wanted text, wanted_lane text, now_at bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN greatest(
        -1,
        (SELECT {schema}.turn_of_rank(t.rank) FROM {schema}.tasks t
         WHERE t.queue = wanted AND t.lane = wanted_lane AND t.lane IS NOT NULL AND t.ready >= 1
         ORDER BY t.rank DESC LIMIT 1),
        (SELECT now_at FROM {schema}.lanes l WHERE l.queue = wanted AND l.lane = wanted_lane));
END
$$;

-- The same for one queue, whose row the caller has locked. A lane is named by priority, whether the task has begun, and the tenant,
-- if it has the label. Each task of a lane gets
-- the turn after the one before it, but none before the turn of a first task. The windows do that without a join, which the
-- planner, who knows nothing of how many there are, would have go over all lanes for each task.
CREATE FUNCTION {schema}.give_turns_in(wanted text, label text, now_at bigint) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    WITH fresh AS MATERIALIZED (
        SELECT t.id, t.name, t.ready, t.rank,
               t.priority || CASE WHEN t.fence > 0 THEN ' 1' ELSE ' 0' END || coalesce(' ' || (t.labels ->> label), '') AS lane
        FROM {schema}.tasks t WHERE t.queue = wanted AND t.ready >= 1 AND t.held >= 4
        FOR NO KEY UPDATE SKIP LOCKED
    ), numbered AS MATERIALIZED (
        SELECT f.*, row_number() OVER (PARTITION BY f.lane COLLATE "C" ORDER BY f.rank, f.id) AS n,
               row_number() OVER (PARTITION BY f.name, f.ready) AS n_of_name
        FROM fresh f
    ), looked_up AS MATERIALIZED (
        SELECT n.*, CASE WHEN n.n = 1 THEN {schema}.last_turn(wanted, n.lane, now_at) END AS last,
               CASE WHEN n.n_of_name = 1 THEN {schema}.first_turn(wanted, n.name, n.ready, now_at) END AS first
        FROM numbered n
    ), bounded AS (
        SELECT l.id, l.lane, l.n, max(l.last) OVER (PARTITION BY l.lane COLLATE "C") AS last,
               max(l.first) OVER (PARTITION BY l.name, l.ready) AS first
        FROM looked_up l
    ), turned AS MATERIALIZED (
        SELECT b.id, b.lane,
               b.n + greatest(b.last, max(b.first - b.n) OVER (PARTITION BY b.lane COLLATE "C" ORDER BY b.n)) AS turn
        FROM bounded b
    ), kept AS (
        INSERT INTO {schema}.lanes AS l (queue, lane, last)
        SELECT wanted, t.lane, max(t.turn) FROM turned t GROUP BY t.lane COLLATE "C", t.lane
        ON CONFLICT (queue, lane) DO UPDATE SET last = excluded.last
    )
    UPDATE {schema}.tasks t SET held = t.held & 3, rank = {schema}.rank_of_turn(n.turn), lane = n.lane
    FROM turned n WHERE t.id = n.id;
END
$$;

-- Those of these queues that are fair, or NULL. A claim has locked the table of tasks first, as lock_slots() does: a change of
-- the setting is seen here, or waits for the claim.
CREATE FUNCTION {schema}.fair_among(queues text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.fair_queues) THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT array_agg(f.queue) FROM {schema}.fair_queues f WHERE f.queue = ANY (queues));
END
$$;

-- Note which turns a claim has reached. Now and then they are added up: a queue to which nothing is submitted must not collect
-- them for ever.
CREATE FUNCTION {schema}.go_on_to_turns(chosen text[], fair text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT t.queue, max({schema}.turn_of_rank(t.rank)) AS turn FROM {schema}.tasks t
        WHERE t.id = ANY (chosen) AND t.queue = ANY (fair) GROUP BY t.queue
    LOOP
        INSERT INTO {schema}.turns_claimed (queue, turn) VALUES (one.queue, one.turn);
        IF random() < 0.01 THEN
            PERFORM FROM {schema}.fair_queues f WHERE f.queue = one.queue FOR NO KEY UPDATE SKIP LOCKED;
            IF FOUND THEN
                PERFORM {schema}.add_turns_up(one.queue);
            END IF;
        END IF;
    END LOOP;
END
$$;

-- Change by which label the tasks of a queue take turns, if that is among the settings. No task is written meanwhile: one that
-- is on its way has to be among those that get turns, or their ranks back.
CREATE FUNCTION {schema}.set_turns(wanted text, settings jsonb) RETURNS void
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    label text := settings ->> 'fair_by';
BEGIN
    IF NOT settings ? 'fair_by' THEN
        RETURN;
    END IF;
    PERFORM {schema}.stop_writing_tasks();
    IF label IS NOT DISTINCT FROM (SELECT f.fair_by FROM {schema}.fair_queues f WHERE f.queue = wanted) THEN
        RETURN;
    END IF;
    DELETE FROM {schema}.lanes l WHERE l.queue = wanted;
    IF label IS NULL THEN
        DELETE FROM {schema}.fair_queues f WHERE f.queue = wanted;
        DELETE FROM {schema}.turns_claimed c WHERE c.queue = wanted;
    ELSE
        INSERT INTO {schema}.fair_queues AS f (queue, fair_by) VALUES (wanted, label)
        ON CONFLICT (queue) DO UPDATE SET fair_by = excluded.fair_by;
    END IF;
    UPDATE {schema}.tasks t
    SET held = CASE WHEN label IS NOT NULL AND t.ready >= 1 THEN t.held | 4 ELSE t.held & 3 END,
        lane = NULL, rank = {schema}.rank_of(t.available_at, t.priority)
    WHERE t.finished_at IS NULL AND t.queue = wanted;
END
$$;

-- The settings of queues as they are shown.
CREATE OR REPLACE VIEW {schema}.shown_queues AS
SELECT q.name, q.max_pending, q.pending + coalesce(
    (SELECT sum(c.change) FROM {schema}.queue_changes c WHERE c.queue = q.name), 0)::bigint AS pending,
    s.concurrency, s.taken + coalesce(
    (SELECT sum(c.change) FROM {schema}.slot_changes c WHERE c.queue = q.name), 0)::bigint AS working,
    r.kept_for::text AS retention, f.fair_by
FROM {schema}.queues q LEFT JOIN {schema}.queue_slots s ON s.queue = q.name
LEFT JOIN {schema}.retentions r ON r.queue = q.name
LEFT JOIN {schema}.fair_queues f ON f.queue = q.name;
