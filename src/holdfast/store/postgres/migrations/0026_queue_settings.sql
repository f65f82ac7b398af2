-- Queues that limit how many of their tasks are at work. No worker of the version before may go on: it does not know the
-- refusal of a task that wants to work again.

-- How many tasks of a queue may have a slot at the same time, over all workers together, for those queues that limit it. A
-- task has a slot while a worker holds it and it does not rest (decision 0023). Apart from the row with the other settings:
-- that one is locked by submissions, and a claim must not wait for a transaction of a user's own that submits.
CREATE TABLE {schema}.queue_slots (
    queue text COLLATE "C" PRIMARY KEY,
    concurrency bigint NOT NULL CHECK (concurrency >= 1),
    -- How many have one, apart from what slot_changes says.
    taken bigint NOT NULL
) WITH (fillfactor = 50);

-- Tasks that lost their slot since the count above. Rows of their own: an end, a wait or a death that changed the count
-- itself would wait for every claim from the queue. A claim, which locks the row of the queue, adds them up and deletes them.
CREATE TABLE {schema}.slot_changes (
    queue text COLLATE "C" NOT NULL,
    change integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX slot_changes_by_queue ON {schema}.slot_changes (queue);

-- Whether a worker works on the task. The condition of the trigger below says the same.
CREATE FUNCTION {schema}.has_slot(t {schema}.tasks) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT t.owner IS NOT NULL AND t.resting <> t.fence
$$;

-- Add up what changed in queues whose rows the caller has locked.
CREATE FUNCTION {schema}.count_slots(locked text[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    WITH gone AS (
        DELETE FROM {schema}.slot_changes c WHERE c.queue = ANY (locked) RETURNING c.queue, c.change
    ), summed AS (
        SELECT gone.queue, sum(gone.change) AS change FROM gone GROUP BY gone.queue
    )
    UPDATE {schema}.queue_slots s SET taken = s.taken + n.change FROM summed n WHERE s.queue = n.queue;
END
$$;

-- A counted task loses its slot, whatever takes it: an end, a wait, a rest, a death. Gaining one is counted by the functions
-- that give it, which hold the row of the queue. Now and then the changes are added up here: a queue from which nothing is
-- claimed must not collect them for ever.
CREATE FUNCTION {schema}.note_slot_left() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.queue_slots s WHERE s.queue = NEW.queue) THEN
        RETURN NULL;
    END IF;
    INSERT INTO {schema}.slot_changes (queue, change) VALUES (NEW.queue, -1);
    IF random() < 0.001 THEN
        PERFORM FROM {schema}.queue_slots s WHERE s.queue = NEW.queue FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM {schema}.count_slots(ARRAY[NEW.queue]);
        END IF;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER task_leaves_a_slot AFTER UPDATE OF owner, resting ON {schema}.tasks
    FOR EACH ROW
    WHEN (OLD.is_counted AND OLD.owner IS NOT NULL AND OLD.resting <> OLD.fence
          AND (NEW.owner IS NULL OR NEW.resting = NEW.fence))
    EXECUTE FUNCTION {schema}.note_slot_left();

-- Whether as many tasks of a queue are at work as may be, as far as can be seen without its lock.
CREATE FUNCTION {schema}.is_at_work(wanted text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM {schema}.queue_slots s
        WHERE s.queue = wanted AND s.concurrency <= s.taken + (
            SELECT coalesce(sum(c.change), 0) FROM {schema}.slot_changes c WHERE c.queue = wanted));
END
$$;

-- Those of these queues of which something may begin: neither paused nor full, as far as can be seen without a lock.
CREATE FUNCTION {schema}.open_queues(queues text[]) RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    unpaused text[] := {schema}.unpaused('queue', queues);
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.queue_slots) THEN
        RETURN unpaused;
    END IF;
    RETURN ARRAY(SELECT u FROM unnest(unpaused) AS u WHERE NOT {schema}.is_at_work(u));
END
$$;

-- Lock the rows of those of these queues that have a limit, in the order of their names, and return which these are.
--
-- A claim does that before it locks tasks, of which it takes only those that it need not wait for. Every function that waits
-- for tasks locks these rows after them. So no two wait for each other.
--
-- The lock of the table comes first: set_queue() counts the tasks of a queue that gets a limit while no task is written, and
-- so either counts what the caller is about to give a slot, or is seen here.
CREATE FUNCTION {schema}.lock_slots(wanted text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE {schema}.tasks IN ROW EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM {schema}.queue_slots) THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        SELECT s.queue FROM {schema}.queue_slots s WHERE s.queue = ANY (wanted) ORDER BY s.queue FOR NO KEY UPDATE);
END
$$;

-- The same, and how many of their tasks may begin.
CREATE FUNCTION {schema}.lock_places(wanted text[]) RETURNS TABLE (queue text, free bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    locked text[] := {schema}.lock_slots(wanted);
BEGIN
    IF cardinality(locked) = 0 THEN
        RETURN;
    END IF;
    PERFORM {schema}.count_slots(locked);
    RETURN QUERY
    SELECT s.queue, s.concurrency - s.taken FROM {schema}.queue_slots s WHERE s.queue = ANY (locked);
END
$$;

-- Count tasks that get a slot, in queues whose rows are locked.
CREATE FUNCTION {schema}.take_places(ids text[], queues text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.queue_slots s SET taken = s.taken + n.tasks
    FROM (
        SELECT t.queue, count(*) AS tasks FROM {schema}.tasks t
        WHERE t.id = ANY (ids) AND t.queue = ANY (queues) GROUP BY t.queue
    ) AS n
    WHERE s.queue = n.queue;
END
$$;

-- Take what a task needs to begin, or to work again, and other tasks may have: a place of its queue. All of it is taken, or
-- nothing, and then the answer says what there is too little of. The caller has locked the task's row.
CREATE FUNCTION {schema}.take_what_it_needs(t {schema}.tasks) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    places bigint := (SELECT p.free FROM {schema}.lock_places(ARRAY[t.queue]) AS p);
BEGIN
    IF places <= 0 THEN
        RETURN (SELECT jsonb_build_object('task_id', t.id, 'queue', s.queue, 'limit', s.concurrency)
                FROM {schema}.queue_slots s WHERE s.queue = t.queue);
    ELSIF places > 0 THEN
        PERFORM {schema}.take_places(ARRAY[t.id], ARRAY[t.queue]);
    END IF;
    RETURN NULL;
END
$$;

-- Lock up to `most` of the first claimable tasks, and no more of a queue than may be at work. `limited` are the queues with a
-- limit, whose rows the caller has locked, and `places` is how many more tasks of each may begin. `fair` are those whose tasks
-- take turns (0032_fair_queues.sql). First this looks, without locks, which tasks of each of these queues and of all others
-- together come first. Then it takes so many of each, and returns them in order.
--
-- Turns are numbers of their own in each queue. Among tasks of other queues, one with a turn stands by the rank of the oldest of
-- itself and the next nine, so that a young task whose turn it is does not hold up older ones behind it; and not before one
-- that has an earlier turn. Where there are no turns, that is its rank.
CREATE FUNCTION {schema}.choose_within(
    most integer, queues text[], names text[], wanted_ready smallint, speaks integer, moment timestamptz,
    limited text[], places bigint[], fair text[]
) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    apart text[] := coalesce(limited, '{}') || coalesce(fair, '{}');
    others text[];
    chosen text[] := '{}';
    part record;
BEGIN
    IF cardinality(apart) = 0 THEN
        RETURN {schema}.choose(most, queues, names, wanted_ready, speaks, moment);
    END IF;
    others := ARRAY(SELECT q FROM unnest(queues) AS q WHERE NOT q = ANY (apart));
    FOR part IN
        SELECT c.place, count(*)::integer AS tasks
        FROM (
            SELECT p.place
            FROM (
                SELECT NULL AS place, most AS free
                UNION ALL SELECT * FROM unnest(limited, places)
                UNION ALL SELECT q, most FROM unnest(fair) AS q WHERE NOT q = ANY (coalesce(limited, '{}'))
            ) AS p,
            LATERAL (
                SELECT o.id, o.rank, max(o.oldest) OVER (ORDER BY o.rank, o.id) AS place
                FROM (
                    SELECT t.id, t.rank, min({schema}.rank_of(t.available_at, t.priority)) OVER (
                        ORDER BY t.rank, t.id ROWS BETWEEN CURRENT ROW AND 9 FOLLOWING) AS oldest
                    FROM unnest({schema}.claimable(
                        least(most, p.free)::integer + CASE WHEN p.place = ANY (fair) THEN 9 ELSE 0 END,
                        CASE WHEN p.place IS NULL THEN others ELSE ARRAY[p.place] END,
                        names, wanted_ready, speaks, moment)) AS candidate (id)
                    JOIN {schema}.tasks t ON t.id = candidate.id
                ) AS o
                ORDER BY o.rank, o.id LIMIT least(most, p.free)
            ) AS f
            WHERE p.free > 0
            ORDER BY f.place, f.rank, f.id LIMIT most
        ) AS c
        GROUP BY c.place
    LOOP
        chosen := chosen || {schema}.choose(
            part.tasks, CASE WHEN part.place IS NULL THEN others ELSE ARRAY[part.place] END,
            names, wanted_ready, speaks, moment);
    END LOOP;
    IF fair IS NULL THEN
        RETURN chosen;
    END IF;
    RETURN ARRAY(
        SELECT c.id FROM (
            SELECT o.id, o.rank, max(o.oldest) OVER (PARTITION BY o.queue ORDER BY o.rank, o.id) AS place
            FROM (
                SELECT t.id, t.rank, t.queue, min({schema}.rank_of(t.available_at, t.priority)) OVER (
                    PARTITION BY t.queue ORDER BY t.rank, t.id ROWS BETWEEN CURRENT ROW AND 9 FOLLOWING) AS oldest
                FROM {schema}.tasks t WHERE t.id = ANY (chosen)
            ) AS o
        ) AS c
        ORDER BY c.place, c.rank, c.id);
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
    limited text[];
    places bigint[];
    open_queues text[] := {schema}.open_queues(queues);
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
    open_queues := {schema}.open_queues(queues);
    open_names := {schema}.unpaused('task', names);
    SELECT array_agg(p.queue), array_agg(p.free) INTO limited, places FROM {schema}.lock_places(open_queues) AS p;
    chosen := {schema}.choose_within(
        CASE WHEN wants_suspect THEN 1 ELSE most END, open_queues, open_names, wanted_ready, speaks, moment,
        limited, places, NULL);
    IF cardinality(chosen) = 0 THEN
        RETURN;
    END IF;
    IF limited IS NOT NULL THEN
        PERFORM {schema}.take_places(chosen, limited);
    END IF;
    UPDATE {schema}.workers w SET claims = number WHERE w.id = worker.id;

    -- One pass over the chosen. A task in review stays there, so a task that is running now was pending before.
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
    missing jsonb;
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
            missing := {schema}.take_what_it_needs(before);
            IF missing IS NOT NULL THEN
                RAISE EXCEPTION 'task % has to wait', wanted_task USING ERRCODE = 'HF009', DETAIL = missing::text;
            END IF;
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

-- Begin or end the rest of a task. It works again only if it gets what it needs for that; otherwise its Commit is refused.
-- The rows of the queues are locked with all else that the batch locks.
CREATE FUNCTION {schema}.rest(owner_id text, begins boolean) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    before {schema}.tasks;
    missing jsonb;
BEGIN
    SELECT t.* INTO before FROM {schema}.tasks t WHERE t.id = owner_id;
    IF NOT begins AND before.resting = before.fence THEN
        missing := {schema}.take_what_it_needs(before);
        IF missing IS NOT NULL THEN
            PERFORM {schema}.refuse('no_place', missing);
        END IF;
    END IF;
    UPDATE {schema}.tasks t SET resting = CASE WHEN begins THEN t.fence ELSE 0 END WHERE t.id = owner_id;
    RETURN CASE WHEN begins AND before.is_counted THEN ARRAY[owner_id] ELSE '{}' END;
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
        WHEN 'rest' THEN touched := {schema}.rest(owner_id, (op ->> 'resting')::boolean);
        WHEN 'share_worker' THEN
            UPDATE {schema}.tasks SET alone = false, deaths = CASE WHEN (op ->> 'acquitted')::boolean THEN 0 ELSE deaths END
            WHERE id = owner_id;
        WHEN 'require_quiet' THEN PERFORM {schema}.require_quiet(op);
    END CASE;
END
$$;

-- What a batch has to lock (plan.py's Locks).
ALTER TYPE {schema}.lock_list ADD ATTRIBUTE wakes text[];

-- Lock everything, then apply one run after the other. A run is {"parts": [...], "commits": [...]}; the parts say what
-- kinds of things its Commits write, so that no statement is run for nothing.
CREATE OR REPLACE FUNCTION {schema}.apply_batch(
    batch jsonb, payloads bytea[], one_by_one boolean, at timestamptz
) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    locks {schema}.lock_list := jsonb_populate_record(NULL::{schema}.lock_list, batch -> 'locks');
    moment timestamptz;
    planned record;
    applied record;
    answers jsonb := '[]';
    hints text[] := '{}';
BEGIN
    PERFORM {schema}.lock_tasks(locks.tasks, locks.ending, locks.emits, locks.listens, locks.accounts);
    IF cardinality(locks.wakes) > 0 THEN
        PERFORM {schema}.lock_slots(ARRAY(SELECT t.queue FROM {schema}.tasks t WHERE t.id = ANY (locks.wakes)));
    END IF;
    IF jsonb_array_length(locks.keys) > 0 THEN
        PERFORM {schema}.lock_names('key', locks.keys);
    END IF;
    -- Only now, with all locks held: a time read before a wait for a lock would be in the past.
    moment := coalesce(at, clock_timestamp());

    FOR planned IN
        SELECT r.parts, ARRAY(SELECT c FROM jsonb_populate_recordset(NULL::{schema}.commit_record, r.commits) AS c) AS run
        FROM jsonb_to_recordset(batch -> 'runs') AS r (parts text[], commits jsonb)
    LOOP
        IF one_by_one OR {schema}.ends_an_awaited_task(planned.run) THEN
            FOR i IN 1 .. cardinality(planned.run) LOOP
                applied := {schema}.apply_alone(planned.run[i], planned.parts, payloads, moment);
                answers := answers || applied.answers;
                hints := hints || applied.hints;
            END LOOP;
        ELSE
            applied := {schema}.apply_run(planned.run, planned.parts, payloads, moment);
            answers := answers || applied.answers;
            hints := hints || applied.hints;
        END IF;
    END LOOP;
    RETURN jsonb_build_object('answers', answers, 'hints', to_jsonb(hints));
END
$$;

-- The topics to hint at when these tasks changed: each task, and each queue where one of them can now be claimed, or where
-- others may have waited for its slot.
CREATE OR REPLACE FUNCTION {schema}.hints_of(ids text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT topic
        FROM {schema}.tasks t,
             LATERAL (VALUES ('task:' || t.id), (CASE WHEN t.ready > 0 THEN 'queue:' || t.queue END),
                             ({schema}.hint_of_place(t))) AS v (topic)
        WHERE t.id = ANY (ids) AND topic IS NOT NULL
    );
END
$$;

-- The topic of the queue of a task without a slot, if the last claim from it has left no place.
CREATE FUNCTION {schema}.hint_of_place(t {schema}.tasks) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT t.is_counted OR {schema}.has_slot(t) THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT 'queue:' || s.queue FROM {schema}.queue_slots s WHERE s.queue = t.queue AND s.taken >= s.concurrency);
END
$$;

DROP FUNCTION {schema}.commit_plain(text, text, json, json, bytea[], timestamptz);

-- Apply what can be applied of these Commits, which are of one worker and on different tasks, and return how each of
-- those tasks stands now, with the topic of its queue if others may have waited for its slot.
CREATE FUNCTION {schema}.commit_plain(
    holder text, who text, commits json, steps json, payloads bytea[], at timestamptz DEFAULT NULL
) RETURNS TABLE (
    task_id text, revision bigint, version bigint, state text, cancel_requested text, hint text
)
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
    -- Only now, with all locks held: a time read before a wait for a lock would be in the past.
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
        RETURNING t.id, t.revision, t.version, t.state, t.cancel_requested, NULL;
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
        RETURNING t.id, t.revision, t.version, t.state, t.cancel_requested,
            CASE WHEN t.is_counted THEN {schema}.hint_of_place(t) END;
    END IF;
END
$$;

-- Keep tasks from being written until the end of this transaction. A session that writes one then waits behind this lock, also
-- while it is itself waited for. So it is waited for in short turns: a transaction of a user's own, which has submitted
-- something and stays open, holds up the caller of this function and nobody else.
CREATE FUNCTION {schema}.stop_writing_tasks() RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '300ms' AS $$
BEGIN
    LOOP
        BEGIN
            LOCK TABLE {schema}.tasks IN SHARE ROW EXCLUSIVE MODE;
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1 + 0.4 * random());
        END;
    END LOOP;
END
$$;

DROP FUNCTION {schema}.set_queue(text, boolean, bigint);

-- Change the settings of a queue that are given, {"max_pending": 5, "concurrency": null}. The first time, its tasks are
-- counted, and no task is written meanwhile: one that is on its way, and was stored without a look at the settings, has to be
-- among them. The same when it gets a limit for its pending tasks, or for its tasks at work, which are counted then.
CREATE FUNCTION {schema}.set_queue(wanted text, settings jsonb) RETURNS void
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    new_limit bigint := settings ->> 'concurrency';
    is_limited boolean := EXISTS (SELECT FROM {schema}.queue_slots s WHERE s.queue = wanted);
    limit_comes_or_goes boolean := settings ? 'concurrency' AND is_limited = (new_limit IS NULL);
BEGIN
    PERFORM {schema}.set_turns(wanted, settings);  -- first: it locks the table of tasks, if anything
    IF limit_comes_or_goes OR NOT EXISTS (
        SELECT FROM {schema}.queues q
        WHERE q.name = wanted AND (q.max_pending IS NOT NULL OR settings ->> 'max_pending' IS NULL))
    THEN
        PERFORM {schema}.stop_writing_tasks();
    END IF;
    IF NOT EXISTS (SELECT FROM {schema}.queues q WHERE q.name = wanted) THEN
        INSERT INTO {schema}.queues (name, pending) VALUES (wanted, 0) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            UPDATE {schema}.tasks t SET is_counted = true WHERE t.finished_at IS NULL AND t.queue = wanted;
            UPDATE {schema}.queues q SET pending = (
                SELECT count(*) FROM {schema}.tasks t
                WHERE t.finished_at IS NULL AND t.state = 'pending' AND t.queue = wanted)
            WHERE q.name = wanted;
        END IF;
    END IF;
    IF settings ? 'max_pending' THEN
        UPDATE {schema}.queues q SET max_pending = (settings ->> 'max_pending')::bigint
        WHERE q.name = wanted AND q.max_pending IS DISTINCT FROM (settings ->> 'max_pending')::bigint;
    END IF;
    IF limit_comes_or_goes AND new_limit IS NULL THEN
        DELETE FROM {schema}.queue_slots s WHERE s.queue = wanted;
        DELETE FROM {schema}.slot_changes c WHERE c.queue = wanted;
    ELSIF limit_comes_or_goes THEN
        INSERT INTO {schema}.queue_slots (queue, concurrency, taken)
        SELECT wanted, new_limit, count(*) FROM {schema}.tasks t
        WHERE t.finished_at IS NULL AND t.queue = wanted AND t.owner IS NOT NULL AND t.resting <> t.fence
        ON CONFLICT DO NOTHING;
    END IF;
    IF new_limit IS NOT NULL THEN
        UPDATE {schema}.queue_slots s SET concurrency = new_limit WHERE s.queue = wanted AND s.concurrency <> new_limit;
    END IF;
END
$$;

-- The settings of queues as they are shown.
CREATE OR REPLACE VIEW {schema}.shown_queues AS
SELECT q.name, q.max_pending, q.pending + coalesce(
    (SELECT sum(c.change) FROM {schema}.queue_changes c WHERE c.queue = q.name), 0)::bigint AS pending,
    s.concurrency, s.taken + coalesce(
    (SELECT sum(c.change) FROM {schema}.slot_changes c WHERE c.queue = q.name), 0)::bigint AS working
FROM {schema}.queues q LEFT JOIN {schema}.queue_slots s ON s.queue = q.name;
