-- Children belong to their parent: a parent begins an ended child again.

-- Which state may follow which: the tables MOVES and MOVES_BY_PARENT of model/transitions.py together. This is what the
-- log of moves may hold; judge() refuses an ordinary Move that only a parent may make.
CREATE OR REPLACE FUNCTION {schema}.is_legal_move(source text, target text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE source
        WHEN 'pending' THEN target IN ('running', 'failed', 'cancelled')
        WHEN 'running' THEN target IN ('pending', 'waiting', 'review', 'completed', 'failed', 'cancelled')
        WHEN 'waiting' THEN target IN ('pending', 'failed', 'cancelled')
        WHEN 'review' THEN target IN ('completed', 'pending', 'failed', 'waiting', 'cancelled')
        WHEN 'failed' THEN target = 'pending'
        WHEN 'completed' THEN target = 'pending'
        WHEN 'cancelled' THEN target = 'pending'
        ELSE false
    END;
END
$$;

-- Judge a Commit against its task as it stands under the lock: model/commit.py's judge(), with duplicates before it.
-- `seen`: the request of an outsider was applied before.
CREATE OR REPLACE FUNCTION {schema}.judge(c {schema}.commit_record, t {schema}.tasks, seen boolean) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN t.id IS NULL THEN 'not_found'
        WHEN seen THEN 'duplicate'
        WHEN c.request IS NULL AND t.fence = c.fence AND c.sequence <= t.sequence THEN 'duplicate'
        WHEN c.request IS NULL AND (t.fence <> c.fence OR t.owner IS DISTINCT FROM c.owner) THEN 'superseded'
        WHEN c.request IS NULL AND c.sequence <> t.sequence + 1 THEN 'out_of_order'
        WHEN c.request IS NOT NULL
            AND (NOT t.state = ANY (c.states) OR t.revision <> c.revision OR t.version <> c.version) THEN 'conflict'
        -- Moving it and writing its outcome or its steps is for the holder alone.
        WHEN c.request IS NOT NULL AND t.owner IS NOT NULL
            AND (c.to_state IS NOT NULL OR c.writes_outcome OR c.steps IS NOT NULL) THEN 'leased'
        -- Out of these two only reopen_child() leads.
        WHEN c.to_state IS NOT NULL
            AND (t.state IN ('completed', 'cancelled') OR NOT {schema}.is_legal_move(t.state, c.to_state))
            THEN 'illegal_move'
    END
$$;

-- Begin an ended child again, or refuse where it is no child of this task, has not ended, or has changed since its parent
-- read it. The child's row is locked with the tasks of the batch.
CREATE FUNCTION {schema}.reopen_child(owner_id text, who text, op jsonb, payloads bytea[], moment timestamptz)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    child {schema}.tasks;
    due timestamptz := coalesce((op ->> 'available_at')::timestamptz, moment);
    has_new_round boolean := (op ->> 'new_round')::boolean;
BEGIN
    SELECT t.* INTO child FROM {schema}.tasks t WHERE t.id = op ->> 'child_id';
    IF child.parent_id IS DISTINCT FROM owner_id OR child.finished_at IS NULL
        OR child.revision <> (op ->> 'revision')::bigint THEN
        PERFORM {schema}.refuse('conflict', jsonb_build_object(
            'child_id', op ->> 'child_id', 'parent_id', child.parent_id, 'state', child.state,
            'revision', child.revision));
    END IF;

    INSERT INTO {schema}.transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
    VALUES (child.id, child.moves + 1, child.state, 'pending', op ->> 'reason', who, child.fence, moment);
    UPDATE {schema}.tasks t
    SET state = 'pending', finished_at = NULL, moves = child.moves + 1,
        attempts = 0, deaths = 0, lone_deaths = 0, cancel_requested = NULL, undoing = false,
        deadline = (op ->> 'deadline')::timestamptz, available_at = due, rank = {schema}.rank_of(due, child.priority),
        ready = {schema}.readiness('pending', NULL, due, 0, moment),
        round = child.round + has_new_round::integer,
        feedback = CASE WHEN has_new_round THEN op ->> 'feedback' ELSE child.feedback END,
        revision = child.revision + 1, updated_at = moment
    WHERE t.id = child.id;
    DELETE FROM {schema}.outcomes o WHERE o.task_id = child.id;

    IF op ->> 'input' IS NOT NULL THEN
        UPDATE {schema}.inputs i
        SET user_input = payloads[(op ->> 'input')::integer], digest = op ->> 'input_digest', search = op ->> 'search'
        WHERE i.task_id = child.id;
    END IF;
    INSERT INTO {schema}.steps
    SELECT child.id, s.round, s.key, s.kind, s.position, s.state, s.attempts, s.fence, s.digest,
           payloads[s.output], payloads[s.error], s.effect_id,
           s.started_at, s.finished_at, s.retry_at, s.undone_at
    FROM jsonb_populate_recordset(NULL::{schema}.step_record, op -> 'lines') AS s
    ON CONFLICT (task_id, round, key) DO UPDATE SET
        kind = excluded.kind, position = excluded.position, state = excluded.state, attempts = excluded.attempts,
        fence = excluded.fence, digest = excluded.digest, output = excluded.output, error = excluded.error,
        effect_id = excluded.effect_id, started_at = excluded.started_at, finished_at = excluded.finished_at,
        retry_at = excluded.retry_at, undone_at = excluded.undone_at;
END
$$;

-- Apply one operation of a Commit. Returns ids of tasks that it created, woke or began again; `child` is set by submit_child.
CREATE OR REPLACE FUNCTION {schema}.apply_operation(
    owner_id text, owner_fence bigint, fenced boolean, who text, op jsonb, payloads bytea[], moment timestamptz,
    OUT touched text[], OUT child jsonb
)
LANGUAGE plpgsql AS $$
BEGIN
    touched := '{}';
    CASE op ->> 'op'
        WHEN 'write_effect' THEN PERFORM {schema}.write_effect(owner_id, fenced, op, payloads, moment);
        WHEN 'save_checkpoint' THEN PERFORM {schema}.save_checkpoint(owner_id, op, payloads, moment);
        WHEN 'rotate_checkpoints' THEN
            PERFORM {schema}.rotate_checkpoints(owner_id, (op ->> 'keep')::bigint, (op ->> 'before')::timestamptz);
        WHEN 'set_aside_checkpoint' THEN
            UPDATE {schema}.checkpoints SET damaged = op ->> 'why'
            WHERE task_id = owner_id AND number = (op ->> 'number')::bigint;
        WHEN 'set_limits' THEN PERFORM {schema}.set_limits(op ->> 'account', op -> 'limits');
        WHEN 'reserve' THEN PERFORM {schema}.reserve(owner_id, owner_fence, op);
        WHEN 'settle' THEN PERFORM {schema}.settle(owner_id, owner_fence, op);
        WHEN 'settle_stale' THEN PERFORM {schema}.count_as_spent(ARRAY[owner_id], owner_fence);
        WHEN 'open_approval' THEN PERFORM {schema}.open_approval(owner_id, op, payloads, moment);
        WHEN 'decide' THEN PERFORM {schema}.decide(owner_id, op, payloads, moment);
        WHEN 'consume_approval' THEN PERFORM {schema}.consume_approval(owner_id, op);
        WHEN 'submit_child' THEN
            child := {schema}.submit_child(owner_id, who, op, payloads, moment);
            touched := ARRAY[child ->> 'task_id'];
        WHEN 'reopen_child' THEN
            PERFORM {schema}.reopen_child(owner_id, who, op, payloads, moment);
            touched := ARRAY[op ->> 'child_id'];
        WHEN 'emit' THEN
            touched := coalesce({schema}.append_event(
                op ->> 'channel', op ->> 'key', payloads[(op ->> 'payload_at')::integer], who, moment, owner_id),
                '{}');
        WHEN 'inherit_keys' THEN
            UPDATE {schema}.tasks SET key_form = (op ->> 'key_form')::integer WHERE id = owner_id AND key_form = 0;
        WHEN 'require_quiet' THEN PERFORM {schema}.require_quiet(op);
    END CASE;
END
$$;

-- Which form the keys of a task's journal have (model/task.py): what was begun before has flat ones, to its end. The
-- default of the rows that are there costs no write; only what was never begun is written.
ALTER TABLE {schema}.tasks ADD COLUMN key_form smallint NOT NULL DEFAULT 1;
ALTER TABLE {schema}.tasks ALTER COLUMN key_form SET DEFAULT 0;
UPDATE {schema}.tasks t SET key_form = 0
WHERE t.fence = 0 AND NOT EXISTS (SELECT FROM {schema}.steps s WHERE s.task_id = t.id);

-- A task as the model shows it: the columns of Task, in its order. task_records stays as it is for processes of the
-- version before, whose prepared statements would fail if it got another column.
CREATE VIEW {schema}.shown_tasks AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       i.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form
FROM {schema}.tasks t
JOIN {schema}.inputs i ON i.task_id = t.id
LEFT JOIN {schema}.outcomes o ON o.task_id = t.id;

-- These four get a parameter more. Dropped, not overloaded: a call of the version before must find the new one.
DROP FUNCTION {schema}.claim(text, bigint, integer, text[], text[], boolean, timestamptz);
DROP FUNCTION {schema}.acquire(text, text, timestamptz);
DROP FUNCTION {schema}.choose(integer, text[], text[], smallint, timestamptz);
DROP FUNCTION {schema}.claimable(integer, text[], text[], smallint, timestamptz);

-- The first tasks that a claim may take, by rank, from several queues and names. LATERAL per queue and name: each reads
-- the first few of its own index range; `= ANY` would sort the whole queue. Nothing is locked yet.
-- Written out for both kinds: a partial index is used only where its condition stands as a constant.
CREATE FUNCTION {schema}.claimable(
    most integer, queues text[], names text[], wanted_ready smallint, speaks integer, moment timestamptz
) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    IF wanted_ready = 2 THEN
        RETURN ARRAY(
            SELECT c.id FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name),
            LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 2 AND t.queue = q.queue AND t.name = n.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                ORDER BY t.rank, t.id LIMIT most
            ) AS c
            ORDER BY c.rank, c.id LIMIT most);
    END IF;
    RETURN ARRAY(
        SELECT c.id FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name),
        LATERAL (
            SELECT t.id, t.rank FROM {schema}.tasks t
            WHERE t.ready = 1 AND t.queue = q.queue AND t.name = n.name
              AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
            ORDER BY t.rank, t.id LIMIT most
        ) AS c
        ORDER BY c.rank, c.id LIMIT most);
END
$$;

-- Lock up to `most` of the first claimable tasks, and no more than those: whoever claims beside us takes the next ones.
-- What others have locked is skipped, so the candidates are more than wanted, and more again while too few are free.
CREATE FUNCTION {schema}.choose(
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
            WHERE t.id = ANY (candidates) AND t.ready = wanted_ready AND t.key_form <= speaks
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
CREATE FUNCTION {schema}.claim(
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
BEGIN
    -- A look without locks first. Idle workers look often; a lock, like a change, would have to reach the disk.
    SELECT w.* INTO worker FROM {schema}.workers w WHERE w.id = wanted_id;
    IF worker.state = 'live' AND number > worker.claims
        AND (most <= 0 OR cardinality({schema}.claimable(1, queues, names, wanted_ready, speaks, moment)) = 0) THEN
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
    chosen := {schema}.choose(CASE WHEN wants_suspect THEN 1 ELSE most END, queues, names, wanted_ready, speaks, moment);
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
CREATE FUNCTION {schema}.acquire(
    wanted_id text, wanted_task text, at timestamptz DEFAULT NULL, speaks integer DEFAULT 1
) RETURNS TABLE (id text, fresh boolean, lone boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    worker {schema}.workers := {schema}.living_worker(wanted_id, false);
    before {schema}.tasks;
    moment timestamptz;
BEGIN
    SELECT t.* INTO before FROM {schema}.tasks t WHERE t.id = wanted_task FOR NO KEY UPDATE;
    moment := coalesce(at, clock_timestamp());
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

-- The tasks that a prune may take: whole trees. A task without a parent that is stored, with all its descendants, if all of
-- them ended before the cutoff, nothing is reserved on an account of theirs and none of their effects is in doubt: a person
-- has to decide those, and finds them by their task. In the order in which the roots ended, parents before children: where
-- `most` cuts a tree, what is left of it has no parent any more and goes with the next batch. By the index of ended tasks,
-- then by those of children and of doubts.
CREATE FUNCTION {schema}.prunable(cutoff timestamptz, most integer) RETURNS TABLE (id text, root text)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE roots AS MATERIALIZED (
        SELECT t.id, t.finished_at FROM {schema}.tasks t
        WHERE t.finished_at IS NOT NULL AND t.finished_at < cutoff
          AND NOT EXISTS (SELECT FROM {schema}.tasks p WHERE p.id = t.parent_id OFFSET 0)
          AND NOT EXISTS (
              WITH RECURSIVE tree AS (
                  SELECT t.id AS id
                  UNION ALL
                  SELECT c.id FROM tree, LATERAL (
                      SELECT k.id FROM {schema}.tasks k WHERE k.parent_id = tree.id OFFSET 0) AS c
              )
              SELECT FROM tree, LATERAL (
                  SELECT k.finished_at FROM {schema}.tasks k WHERE k.id = tree.id OFFSET 0) AS m
              WHERE m.finished_at IS NULL OR m.finished_at >= cutoff
                 OR EXISTS (SELECT FROM {schema}.reservations r WHERE r.account = tree.id OFFSET 0)
                 OR EXISTS (
                     SELECT FROM {schema}.effects e
                     WHERE e.task_id = tree.id AND e.state IN ('armed', 'in_doubt', 'needs_human') OFFSET 0)
              OFFSET 0)
        ORDER BY t.finished_at, t.id LIMIT most
    ), trees AS (
        SELECT roots.id, 0 AS depth, roots.id AS root, roots.finished_at AS ended FROM roots
        UNION ALL
        SELECT c.id, trees.depth + 1, trees.root, trees.ended FROM trees, LATERAL (
            SELECT k.id FROM {schema}.tasks k WHERE k.parent_id = trees.id OFFSET 0) AS c
    )
    SELECT trees.id, trees.root FROM trees ORDER BY trees.ended, trees.root, trees.depth, trees.id LIMIT most;
END
$$;

-- Delete what ended, happened or was stored before `cutoff`; tasks only as whole trees. First a look, then the locks, then
-- a second look in a later statement: somebody may have revived one of them in between. A tree of which anybody has
-- locked a task stays.
CREATE OR REPLACE FUNCTION {schema}.prune(
    cutoff timestamptz, most integer,
    OUT tasks integer, OUT events integer, OUT artifacts integer, OUT uploads integer
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wanted text[] := ARRAY(SELECT p.id FROM {schema}.prunable(cutoff, most) AS p);
    locked text[] := ARRAY(
        SELECT t.id FROM {schema}.tasks t WHERE t.id = ANY (wanted) ORDER BY t.id FOR UPDATE SKIP LOCKED);
    gone text[];
    contents text[];
BEGIN
    WITH ended AS MATERIALIZED (SELECT p.id, p.root FROM {schema}.prunable(cutoff, most) AS p)
    SELECT coalesce(array_agg(e.id), '{}') INTO gone FROM ended e
    WHERE NOT e.root IN (SELECT other.root FROM ended other WHERE NOT other.id = ANY (locked));
    DELETE FROM {schema}.inputs WHERE task_id = ANY (gone);
    DELETE FROM {schema}.outcomes WHERE task_id = ANY (gone);
    DELETE FROM {schema}.task_keys k USING {schema}.tasks t
    WHERE t.id = ANY (gone) AND k.name = t.name AND k.key = t.key;
    DELETE FROM {schema}.transitions WHERE task_id = ANY (gone);
    DELETE FROM {schema}.requests WHERE task_id = ANY (gone);
    DELETE FROM {schema}.steps WHERE task_id = ANY (gone);
    DELETE FROM {schema}.effects WHERE task_id = ANY (gone);
    DELETE FROM {schema}.evidence WHERE task_id = ANY (gone);
    DELETE FROM {schema}.patches WHERE task_id = ANY (gone);
    DELETE FROM {schema}.checkpoints WHERE task_id = ANY (gone);
    DELETE FROM {schema}.approvals WHERE task_id = ANY (gone);
    DELETE FROM {schema}.reservations WHERE task_id = ANY (gone);
    DELETE FROM {schema}.accounts WHERE account = ANY (gone);
    DELETE FROM {schema}.artifact_links WHERE task_id = ANY (gone);
    PERFORM {schema}.stop_waiting(gone);
    DELETE FROM {schema}.tasks t WHERE t.id = ANY (gone);
    tasks := cardinality(gone);

    -- The channel's counter stays, so that no number is ever used twice.
    -- A channel <word>:<id> belongs to the task or the effect with that id. Its events stay while that task is open: the
    -- counter does not forget an event, so a message that is deleted unread would be waited for without end. They stay
    -- while that effect is stored: the first event decides which call took the effect over. Oldest first, by the index of
    -- ages alone, with one look each into the primary key of the tasks and the index of effects by id. What stays is
    -- passed over again by the next batch. One statement: a task that is revived with a message is seen with it, or
    -- neither is.
    DELETE FROM {schema}.events e USING (
        SELECT old.channel, old.number FROM {schema}.events old
        WHERE old.at < cutoff
          AND (strpos(old.channel, ':') = 0 OR NOT (
              EXISTS (
                  SELECT FROM {schema}.tasks t
                  WHERE t.id = substr(old.channel, strpos(old.channel, ':') + 1) AND t.finished_at IS NULL OFFSET 0)
              OR EXISTS (
                  SELECT FROM {schema}.effects f
                  WHERE f.effect_id = substr(old.channel, strpos(old.channel, ':') + 1) OFFSET 0)))
        ORDER BY old.at LIMIT most
    ) AS o
    WHERE e.channel = o.channel AND e.number = o.number;
    GET DIAGNOSTICS events = ROW_COUNT;

    -- Uploads before artifacts, as whoever finishes one locks them; and none that somebody is just adding to.
    WITH ended AS (
        DELETE FROM {schema}.uploads u USING (
            SELECT old.id FROM {schema}.uploads old
            WHERE old.renewed_at < cutoff ORDER BY old.renewed_at LIMIT most FOR UPDATE SKIP LOCKED
        ) AS o
        WHERE u.id = o.id RETURNING u.id
    )
    SELECT coalesce(array_agg(id), '{}') INTO contents FROM ended;
    uploads := cardinality(contents);
    DELETE FROM {schema}.artifact_chunks WHERE content = ANY (contents);

    WITH ended AS (
        DELETE FROM {schema}.artifacts a USING (
            SELECT old.id FROM {schema}.artifacts old
            WHERE old.created_at < cutoff
              AND NOT EXISTS (SELECT FROM {schema}.artifact_links l WHERE l.artifact_id = old.id)
            ORDER BY old.created_at LIMIT most
        ) AS o
        WHERE a.id = o.id RETURNING a.content
    )
    SELECT coalesce(array_agg(content), '{}') INTO contents FROM ended;
    artifacts := cardinality(contents);
    DELETE FROM {schema}.artifact_chunks WHERE content = ANY (contents);

    DELETE FROM {schema}.workers w
    WHERE w.state = 'dead' AND w.seen_at < cutoff AND NOT EXISTS (
        SELECT FROM {schema}.tasks t WHERE t.owner = w.id);
END
$$;
