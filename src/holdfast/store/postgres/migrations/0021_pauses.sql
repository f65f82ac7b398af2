-- Pauses: nothing new begins of a queue, of the tasks of a name, or of a single task, until it is unpaused. No worker of
-- the version before may go on: it would claim through the functions it finds here, but would not stop what is paused.

-- What is paused: 'queue:<name>', 'task:<name>' for all tasks of a name, or the id of a single task.
CREATE TABLE {schema}.pauses (
    subject text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL,
    by text NOT NULL,
    reason text
);

-- What keeps a task from being claimed although it is ready, a bit for each: 1, it is paused itself. A column apart, so
-- that `ready` stays what the task's state and the time make it, and is right at once when it is held no more. A task
-- that is held is in neither index: however many there are, a claim passes over none.
ALTER TABLE {schema}.tasks ADD COLUMN held smallint NOT NULL DEFAULT 0;
DROP INDEX {schema}.tasks_ready;
DROP INDEX {schema}.tasks_suspect;
CREATE INDEX tasks_ready ON {schema}.tasks (queue, name, rank, id) WHERE ready = 1 AND held = 0;
CREATE INDEX tasks_suspect ON {schema}.tasks (queue, name, rank, id) WHERE ready = 2 AND held = 0;

-- The pause of a single task goes with the task.
CREATE FUNCTION {schema}.forget_pause() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.pauses p WHERE p.subject = OLD.id;
    RETURN NULL;
END
$$;
CREATE TRIGGER task_is_deleted AFTER DELETE ON {schema}.tasks
    FOR EACH ROW WHEN (OLD.held <> 0) EXECUTE FUNCTION {schema}.forget_pause();

-- Pause a subject, or answer the pause that is there. The row of a single task is locked; for a queue or a name, the rows
-- of all workers: one that leases tasks just now holds its own, and looks at the pauses only then. So no lease of what is
-- paused begins once this has returned.
CREATE FUNCTION {schema}.pause(
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
    INSERT INTO {schema}.pauses (subject, at, by, reason)
    VALUES (wanted, coalesce(pause.at, clock_timestamp()), who, why)
    ON CONFLICT DO NOTHING;
    IF is_task AND paused.held & 1 = 0 THEN
        -- Not updated_at: nothing of its work has happened.
        UPDATE {schema}.tasks t SET held = t.held | 1, revision = t.revision + 1 WHERE t.id = wanted;
    ELSIF NOT is_task THEN
        PERFORM FROM {schema}.workers w WHERE w.state <> 'dead' ORDER BY w.id FOR UPDATE;
    END IF;
    RETURN QUERY SELECT p.* FROM {schema}.pauses p WHERE p.subject = wanted;
END
$$;

-- End a pause, and return the queues in which there may be something to claim now; NULL where there was none.
CREATE FUNCTION {schema}.unpause(wanted text, is_task boolean) RETURNS text[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    free text;
BEGIN
    IF is_task THEN
        UPDATE {schema}.tasks t SET held = t.held & ~1, revision = t.revision + 1
        WHERE t.id = wanted AND t.held & 1 = 1
        RETURNING t.queue INTO free;
    END IF;
    DELETE FROM {schema}.pauses p WHERE p.subject = wanted;
    RETURN CASE WHEN FOUND THEN array_remove(ARRAY[free], NULL) END;
END
$$;

-- Those of these queues, or names, that are not paused.
CREATE FUNCTION {schema}.unpaused(kind text, wanted text[]) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.subject >= kind || ':' AND p.subject < kind || ';') THEN
        RETURN wanted;
    END IF;
    RETURN ARRAY(
        SELECT w FROM unnest(wanted) AS w
        WHERE NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.subject = kind || ':' || w));
END
$$;

-- The subject of the pause that keeps a task from being leased: its own comes first.
CREATE FUNCTION {schema}.pause_of(t {schema}.tasks) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN t.held & 1 = 1 THEN t.id ELSE (
        SELECT max(p.subject) FROM {schema}.pauses p WHERE p.subject IN ('task:' || t.name, 'queue:' || t.queue)) END;
END
$$;

DROP FUNCTION {schema}.heartbeat(text, timestamptz);

-- Renew a lease. Also of a worker that is late, as long as nobody has declared it dead: dead is final.
CREATE FUNCTION {schema}.heartbeat(
    wanted_id text, at timestamptz DEFAULT NULL, OUT cancel_requested text[], OUT suspects boolean,
    OUT paused text[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    worker {schema}.workers := {schema}.living_worker(wanted_id, true);
    moment timestamptz := coalesce(at, clock_timestamp());
BEGIN
    UPDATE {schema}.workers w SET seen_at = moment, expires_at = moment + w.lease * interval '1 second'
    WHERE w.id = worker.id;
    cancel_requested := ARRAY(
        SELECT t.id FROM {schema}.tasks t WHERE t.owner = worker.id AND t.cancel_requested IS NOT NULL);
    suspects := EXISTS (SELECT FROM {schema}.tasks t WHERE t.ready = 2 AND t.held = 0);
    paused := ARRAY(SELECT t.id FROM {schema}.tasks t WHERE t.owner = worker.id AND t.held & 1 = 1);
END
$$;

-- The lines among these queues and names that may have a task of this readiness. Where they are many, only those that do:
-- one row of the index is read for each.
CREATE OR REPLACE FUNCTION {schema}.ready_lines(
    queues text[], names text[], wanted_ready smallint, OUT line_queues text[], OUT line_names text[]
)
LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(queues) * cardinality(names) <= 256 THEN  -- fewer than that are looked for sooner than found out
        SELECT array_agg(q.queue), array_agg(n.name) INTO line_queues, line_names
        FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name);
        RETURN;
    END IF;
    IF wanted_ready = 2 THEN
        WITH RECURSIVE lines (queue, name) AS (
            SELECT q.queue, f.name FROM (SELECT DISTINCT unnest(queues)) AS q (queue), LATERAL (
                SELECT t.name FROM {schema}.tasks t
                WHERE t.ready = 2 AND t.held = 0 AND t.queue = q.queue ORDER BY t.name LIMIT 1) AS f
            UNION ALL
            SELECT l.queue, f.name FROM lines l, LATERAL (
                SELECT t.name FROM {schema}.tasks t
                WHERE t.ready = 2 AND t.held = 0 AND t.queue = l.queue AND t.name > l.name
                ORDER BY t.name LIMIT 1) AS f
        )
        SELECT array_agg(l.queue), array_agg(l.name) INTO line_queues, line_names
        FROM lines l WHERE l.name = ANY (names);
        RETURN;
    END IF;
    WITH RECURSIVE lines (queue, name) AS (
        SELECT q.queue, f.name FROM (SELECT DISTINCT unnest(queues)) AS q (queue), LATERAL (
            SELECT t.name FROM {schema}.tasks t
            WHERE t.ready = 1 AND t.held = 0 AND t.queue = q.queue ORDER BY t.name LIMIT 1) AS f
        UNION ALL
        SELECT l.queue, f.name FROM lines l, LATERAL (
            SELECT t.name FROM {schema}.tasks t
            WHERE t.ready = 1 AND t.held = 0 AND t.queue = l.queue AND t.name > l.name
                ORDER BY t.name LIMIT 1) AS f
    )
    SELECT array_agg(l.queue), array_agg(l.name) INTO line_queues, line_names
    FROM lines l WHERE l.name = ANY (names);
END
$$;

-- The first tasks that a claim may take, by rank, from several queues and names. Nothing is locked yet.
-- Written out for both kinds: a partial index is used only where its condition stands as a constant.
CREATE OR REPLACE FUNCTION {schema}.claimable(
    most integer, queues text[], names text[], wanted_ready smallint, speaks integer, moment timestamptz
) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    line_queues text[];
    line_names text[];
BEGIN
    IF cardinality(queues) * cardinality(names) <= 16 THEN
        IF wanted_ready = 2 THEN
            RETURN ARRAY(
                SELECT c.id
                FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name),
                LATERAL (
                    SELECT t.id, t.rank FROM {schema}.tasks t
                    WHERE t.ready = 2 AND t.held = 0 AND t.queue = q.queue AND t.name = n.name
                      AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                    ORDER BY t.rank, t.id LIMIT most
                ) AS c
                ORDER BY c.rank, c.id LIMIT most);
        END IF;
        RETURN ARRAY(
            SELECT c.id
            FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name),
            LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 1 AND t.held = 0 AND t.queue = q.queue AND t.name = n.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                ORDER BY t.rank, t.id LIMIT most
            ) AS c
            ORDER BY c.rank, c.id LIMIT most);
    END IF;

    SELECT f.line_queues, f.line_names INTO line_queues, line_names
    FROM {schema}.ready_lines(queues, names, wanted_ready) AS f;
    IF line_queues IS NULL THEN
        RETURN '{}';
    END IF;
    IF wanted_ready = 2 THEN
        RETURN ARRAY(
            SELECT c.id FROM unnest(line_queues, line_names) AS l (queue, name), LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 2 AND t.held = 0 AND t.queue = l.queue AND t.name = l.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                ORDER BY t.rank, t.id LIMIT most
            ) AS c
            ORDER BY c.rank, c.id LIMIT most);
    END IF;
    RETURN ARRAY(
        WITH firsts AS MATERIALIZED (
            SELECT l.queue, l.name FROM unnest(line_queues, line_names) AS l (queue, name), LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 1 AND t.held = 0 AND t.queue = l.queue AND t.name = l.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                ORDER BY t.rank, t.id LIMIT 1
            ) AS c
            ORDER BY c.rank, c.id LIMIT most
        ), last_needed AS MATERIALIZED (
            SELECT c.rank, c.id FROM firsts l, LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 1 AND t.held = 0 AND t.queue = l.queue AND t.name = l.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                ORDER BY t.rank, t.id LIMIT 2 * most / cardinality(line_queues) + 1
            ) AS c
            ORDER BY c.rank, c.id OFFSET most - 1 LIMIT 1
        ), bound AS MATERIALIZED (
            -- With fewer than `most` in all shares, all has to be read.
            SELECT coalesce(max(b.rank), 'infinity') AS rank, coalesce(max(b.id), '') AS id FROM last_needed b
        )
        SELECT c.id FROM bound b, firsts l, LATERAL (
            SELECT t.id, t.rank FROM {schema}.tasks t
            WHERE t.ready = 1 AND t.held = 0 AND t.queue = l.queue AND t.name = l.name
              AND (t.rank, t.id) <= (b.rank, b.id)
              AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
            ORDER BY t.rank, t.id LIMIT most
        ) AS c
        ORDER BY c.rank, c.id LIMIT most);
END
$$;

-- Lock up to `most` of the first claimable tasks, and no more than those: whoever claims beside us takes the next ones.
-- What others have locked is skipped, so the candidates are more than wanted, and more again while too few are free.
CREATE OR REPLACE FUNCTION {schema}.choose(
    most integer, queues text[], names text[], wanted_ready smallint, speaks integer, moment timestamptz
) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    looked_at integer := most + 10;
    candidates text[];
    chosen text[];
BEGIN
    LOOP
        candidates := {schema}.claimable(looked_at, queues, names, wanted_ready, speaks, moment);
        chosen := ARRAY(
            SELECT t.id FROM {schema}.tasks t
            WHERE t.id = ANY (candidates) AND t.ready = wanted_ready AND t.held = 0 AND t.key_form <= speaks
            ORDER BY t.rank, t.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(chosen) = most OR cardinality(candidates) < looked_at OR looked_at > 20 * (most + 10);
        looked_at := looked_at * 4;
    END LOOP;
    RETURN chosen;
END
$$;

-- Lease ready tasks to a worker. A number that was used before is answered with what is still held of that claim.
--
-- `speaks` is the newest form of keys that the worker knows. A process of the version before says nothing of it: it gets
-- what has flat keys or none, and what it claims first stays flat.
--
-- The answer is short, and the tasks themselves are read by a second statement. The server sends an answer before it
-- commits: one that does not fit into the socket of a client that has stopped reading would keep its locks for as long
-- as the client sleeps.
CREATE OR REPLACE FUNCTION {schema}.claim(
    wanted_id text, number bigint, most integer, queues text[], names text[], wants_suspect boolean,
    at timestamptz DEFAULT NULL, speaks integer DEFAULT 1
) RETURNS TABLE (id text, fresh boolean, lone boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
-- Left to itself, the server would plan claimable() anew for each claim, which takes longer than running it.
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    worker {schema}.workers;
    moment timestamptz := coalesce(at, clock_timestamp());
    wanted_ready smallint := CASE WHEN wants_suspect THEN 2 ELSE 1 END;
    chosen text[];
    open_queues text[] := {schema}.unpaused('queue', queues);
    open_names text[] := {schema}.unpaused('task', names);
BEGIN
    -- A look without locks first. Idle workers look often; a lock, like a change, would have to reach the disk.
    SELECT w.* INTO worker FROM {schema}.workers w WHERE w.id = wanted_id;
    IF worker.state = 'live' AND number > worker.claims
        AND (most <= 0
             OR cardinality({schema}.claimable(1, open_queues, open_names, wanted_ready, speaks, moment)) = 0) THEN
        RETURN;
    END IF;
    worker := {schema}.living_worker(wanted_id, true);
    IF number <= worker.claims THEN
        RETURN QUERY
        SELECT t.id, false, t.alone FROM {schema}.tasks t
        WHERE t.owner = worker.id AND t.claim = number
        ORDER BY t.rank, t.id;
        RETURN;
    END IF;
    IF worker.state = 'draining' OR worker.expires_at <= moment THEN
        RETURN;
    END IF;
    -- Again, under the lock of the worker: a pause waits for that, so that no task is leased after it.
    open_queues := {schema}.unpaused('queue', queues);
    open_names := {schema}.unpaused('task', names);
    chosen := {schema}.choose(
        CASE WHEN wants_suspect THEN 1 ELSE most END, open_queues, open_names, wanted_ready, speaks, moment);
    IF cardinality(chosen) = 0 THEN
        RETURN;
    END IF;
    UPDATE {schema}.workers w SET claims = number WHERE w.id = worker.id;

    -- One pass over the chosen. A task in review stays there, so whoever is running now was pending before.
    RETURN QUERY
    WITH leased AS (
        UPDATE {schema}.tasks t
        SET moves = t.moves + (t.state = 'pending')::integer,
            state = CASE WHEN t.state = 'pending' THEN 'running' ELSE t.state END,
            owner = worker.id, fence = t.fence + 1, sequence = 0, claim = number, alone = wants_suspect, ready = 0,
            started_at = coalesce(t.started_at, moment), updated_at = moment, revision = t.revision + 1,
            key_form = CASE WHEN t.key_form = 0 THEN speaks ELSE t.key_form END
        WHERE t.id = ANY (chosen)
        RETURNING t.id, t.rank, t.state, t.moves, t.fence, t.revision
    ), moved AS (
        INSERT INTO {schema}.transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
        SELECT l.id, l.moves, 'pending', 'running', 'claimed', worker.id, l.fence, moment
        FROM leased l WHERE l.state = 'running'
    )
    SELECT l.id, l.revision = 2, wants_suspect FROM leased l ORDER BY l.rank, l.id;
END
$$;

-- Lease this very task without moving it. One the worker holds already is answered as it stands.
CREATE OR REPLACE FUNCTION {schema}.acquire(
    wanted_id text, wanted_task text, at timestamptz DEFAULT NULL, speaks integer DEFAULT 1
) RETURNS TABLE (id text, fresh boolean, lone boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    worker {schema}.workers := {schema}.living_worker(wanted_id, false);
    before {schema}.tasks;
    moment timestamptz;
    pause text;
BEGIN
    SELECT t.* INTO before FROM {schema}.tasks t WHERE t.id = wanted_task FOR NO KEY UPDATE;
    moment := coalesce(at, clock_timestamp());
    pause := {schema}.pause_of(before);
    CASE
        WHEN worker.expires_at <= moment THEN
            RAISE EXCEPTION 'the lease of worker % ran out', wanted_id USING ERRCODE = 'HF002', DETAIL = wanted_id;
        WHEN before.id IS NULL THEN
            RAISE EXCEPTION 'no task %', wanted_task USING ERRCODE = 'HF003', DETAIL = wanted_task;
        WHEN before.owner = worker.id THEN
            NULL;
        WHEN before.owner IS NOT NULL THEN
            RAISE EXCEPTION 'task % is leased', wanted_task USING ERRCODE = 'HF004', DETAIL = before.owner;
        WHEN before.finished_at IS NOT NULL THEN
            RAISE EXCEPTION 'task % has ended', wanted_task USING ERRCODE = 'HF005', DETAIL = before.state;
        WHEN pause IS NOT NULL THEN
            RAISE EXCEPTION 'task % is paused', wanted_task USING ERRCODE = 'HF008', DETAIL = pause;
        WHEN before.key_form > speaks THEN
            RAISE EXCEPTION 'task % has newer keys', wanted_task USING ERRCODE = 'HF007', DETAIL = before.key_form;
        ELSE
            UPDATE {schema}.tasks t
            SET owner = worker.id, fence = t.fence + 1, sequence = 0, claim = 0, alone = false, ready = 0,
                started_at = coalesce(t.started_at, moment), updated_at = moment, revision = t.revision + 1,
                key_form = CASE WHEN t.key_form = 0 THEN speaks ELSE t.key_form END
            WHERE t.id = wanted_task;
    END CASE;
    RETURN QUERY
    SELECT t.id, before.revision = 1 AND before.owner IS NULL, t.alone FROM {schema}.tasks t WHERE t.id = wanted_task;
END
$$;

-- Apply what can be applied of these Commits, which are of one worker and on different tasks, and return how each of
-- those tasks stands now.
CREATE OR REPLACE FUNCTION {schema}.commit_plain(
    holder text, who text, commits json, steps json, payloads bytea[], at timestamptz DEFAULT NULL
) RETURNS TABLE (task_id text, revision bigint, version bigint, state text, cancel_requested text)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    staying text[];
    ends {schema}.plain_end[];
    ending text[];
    moment timestamptz;
    all_of_them boolean;
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    -- By id, and judged in the same breath: all that the guard looks at stands in the row that is locked, and a row that
    -- had to be waited for is looked at again as it then is. A task that is waiting might have to be woken;
    -- of one that is held, commit_batch() says whether it is paused.
    SELECT coalesce(array_agg(w.task_id) FILTER (WHERE NOT w.completes), '{}'),
           array_agg(ROW(w.task_id, w.fence, held.moves, w.reason, w.result)::{schema}.plain_end)
               FILTER (WHERE w.completes)
    INTO staying, ends
    FROM (
        SELECT c.* FROM json_populate_recordset(NULL::{schema}.plain_commit, commits) AS c
        ORDER BY c.task_id COLLATE "C"
    ) AS w, LATERAL (
        SELECT t.moves FROM {schema}.tasks t
        WHERE t.id = w.task_id AND t.owner = holder AND t.fence = w.fence AND t.sequence = w.sequence - 1
          AND t.held = 0
          AND CASE WHEN w.completes THEN t.state = 'running' ELSE t.state <> 'waiting' END
        FOR NO KEY UPDATE
    ) AS held;
    IF ends IS NOT NULL THEN
        ends := {schema}.with_nothing_loose(ends);
    END IF;
    ending := ARRAY(SELECT e.task_id FROM unnest(ends) AS e);
    all_of_them := cardinality(staying) + cardinality(ending) = json_array_length(commits);
    -- Only now, when nobody can come in between: a time read before a wait for a lock would be in the past.
    moment := coalesce(at, clock_timestamp());

    IF steps IS NOT NULL THEN
        INSERT INTO {schema}.steps
        SELECT s.task_id, s.round, s.key, s.kind, s.position, s.state, s.attempts, s.fence, s.digest,
               payloads[s.output], payloads[s.error], s.effect_id,
               s.started_at, s.finished_at, s.retry_at, s.undone_at
        FROM json_populate_recordset(NULL::{schema}.plain_step, steps) AS s
        WHERE all_of_them OR s.task_id = ANY (staying || ending)
        ON CONFLICT (task_id, round, key) DO UPDATE SET
            kind = excluded.kind, position = excluded.position, state = excluded.state, attempts = excluded.attempts,
            fence = excluded.fence, digest = excluded.digest, output = excluded.output, error = excluded.error,
            effect_id = excluded.effect_id, started_at = excluded.started_at, finished_at = excluded.finished_at,
            retry_at = excluded.retry_at, undone_at = excluded.undone_at;
    END IF;

    IF cardinality(staying) > 0 THEN
        -- Nothing that is indexed changes, so this is a HOT update.
        RETURN QUERY
        UPDATE {schema}.tasks t SET sequence = t.sequence + 1, revision = t.revision + 1, updated_at = moment
        WHERE t.id = ANY (staying)
        RETURNING t.id, t.revision, t.version, t.state, t.cancel_requested;
    END IF;

    IF cardinality(ending) > 0 THEN
        INSERT INTO {schema}.transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
        SELECT e.task_id, e.moves + 1, 'running', 'completed', e.reason, who, e.fence, moment FROM unnest(ends) AS e;
        INSERT INTO {schema}.outcomes (task_id, result)
        SELECT e.task_id, payloads[e.result] FROM unnest(ends) AS e WHERE e.result IS NOT NULL;
        -- A running task that a worker holds is not ready and has no timer, so that nothing else has to change.
        RETURN QUERY
        UPDATE {schema}.tasks t
        SET sequence = t.sequence + 1, revision = t.revision + 1, updated_at = moment, state = 'completed',
            finished_at = moment, moves = t.moves + 1, owner = NULL, claim = 0, alone = false
        WHERE t.id = ANY (ending)
        RETURNING t.id, t.revision, t.version, t.state, t.cancel_requested;
    END IF;
END
$$;

-- What is answered for one Commit: the verdict (NULL: applied) and how the task stands.
CREATE OR REPLACE FUNCTION {schema}.answer(n integer, verdict text, t {schema}.tasks) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'n', n, 'verdict', verdict, 'state', t.state, 'fence', t.fence, 'sequence', t.sequence,
        'revision', t.revision, 'version', t.version, 'owner', t.owner, 'cancel_requested', t.cancel_requested,
        'paused', t.held & 1 = 1)
$$;
