-- Commit: many Commits of many tasks, durable in one transaction, each accepted or refused alone.
--
-- The client plans a batch as runs (plan.py). The Commits of a run are on different tasks and none touches anything
-- of another one's task, so that a run can be judged and written as a set: one statement for the steps of all of
-- them, one for the rows of all of them. A Commit that may touch more is a run of its own. Runs follow one another,
-- so every Commit sees what those before it did, as if they had been sent one by one.

-- One Commit. A worker's has owner, fence and sequence; anybody else's has a request and may have expectations.
-- What commutes is folded by the client (steps, patches, links, flags, the move); what does not stands in `ordered`.
CREATE TYPE {schema}.commit_record AS (
    n integer, task_id text, actor text,
    owner text, fence bigint, sequence bigint,
    request text, states text[], revision bigint, version bigint,
    steps jsonb, patches jsonb, links jsonb, ordered jsonb, refusable boolean,
    cancel text, undo boolean, undoing boolean, writes_outcome boolean, result integer, error integer,
    lets_go boolean, to_state text, reason text, available_at timestamptz, wake_at timestamptz, waits jsonb,
    counts_attempt boolean, new_round boolean, feedback text
);

-- A step as it travels; output and error are positions in the payloads.
CREATE TYPE {schema}.step_record AS (
    key text, kind text, "position" bigint, state text, round integer, attempts integer, fence bigint, digest text,
    output integer, error integer, effect_id text,
    started_at timestamptz, finished_at timestamptz, retry_at timestamptz, undone_at timestamptz
);

-- What a batch has to lock (plan.py's Locks).
CREATE TYPE {schema}.lock_list AS (
    tasks text[], ending text[], emits text[], listens text[], accounts text[], keys jsonb
);

-- Apply a batch and return {"answers": [...], "hints": [...]}.
--
-- An operation that refuses its Commit raises, which undoes everything since the last savepoint. Refusals are rare
-- and savepoints are not free (beyond 64 of them every reader of the database pays), so the batch is first tried
-- under a single one; only if something in it is refused is it applied again, one Commit at a time, each under its own.
CREATE FUNCTION {schema}.commit_batch(batch jsonb, payloads bytea[], at timestamptz DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF NOT (batch ->> 'refusable')::boolean THEN
        RETURN {schema}.apply_batch(batch, payloads, false, at);
    END IF;
    BEGIN
        RETURN {schema}.apply_batch(batch, payloads, false, at);
    EXCEPTION WHEN SQLSTATE 'HF001' THEN
        RETURN {schema}.apply_batch(batch, payloads, true, at);
    END;
END
$$;

-- Lock everything, then apply one run after the other. A run is {"parts": [...], "commits": [...]}; the parts say what
-- kinds of things its Commits write, so that no statement is run for nothing.
CREATE FUNCTION {schema}.apply_batch(batch jsonb, payloads bytea[], one_by_one boolean, at timestamptz) RETURNS jsonb
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
    IF jsonb_array_length(locks.keys) > 0 THEN
        PERFORM {schema}.lock_names('key', locks.keys);
    END IF;
    -- Only now, when nobody can come in between: a time read before a wait for a lock would be in the past.
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

-- Whether the run ends a task that somebody waits for. The end wakes the waiting one, which may be another task of the
-- run, so the order within the run matters after all.
CREATE FUNCTION {schema}.ends_an_awaited_task(run {schema}.commit_record[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN cardinality(run) > 1 AND EXISTS (
        SELECT FROM unnest(run) AS c JOIN {schema}.joins j ON j.child_id = c.task_id
        WHERE {schema}.is_terminal(c.to_state));
END
$$;

-- Apply one Commit, under a savepoint if it can still be refused when its operations are applied.
CREATE FUNCTION {schema}.apply_alone(
    c {schema}.commit_record, parts text[], payloads bytea[], moment timestamptz, OUT answers jsonb, OUT hints text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    refusal text;
    detail text;
BEGIN
    IF NOT c.refusable THEN
        SELECT a.* INTO answers, hints FROM {schema}.apply_run(ARRAY[c], parts, payloads, moment) AS a;
        RETURN;
    END IF;
    BEGIN
        SELECT a.* INTO answers, hints FROM {schema}.apply_run(ARRAY[c], parts, payloads, moment) AS a;
        RETURN;
    EXCEPTION WHEN SQLSTATE 'HF001' THEN
        GET STACKED DIAGNOSTICS refusal = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    END;
    SELECT jsonb_build_array({schema}.answer(c.n, refusal, t) || jsonb_build_object('detail', detail::jsonb))
    INTO answers FROM {schema}.tasks t WHERE t.id = c.task_id;
    hints := '{}';
END
$$;

-- What is answered for one Commit: the verdict (NULL: applied) and how the task stands.
CREATE FUNCTION {schema}.answer(n integer, verdict text, t {schema}.tasks) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'n', n, 'verdict', verdict, 'state', t.state, 'fence', t.fence, 'sequence', t.sequence,
        'revision', t.revision, 'version', t.version, 'owner', t.owner, 'cancel_requested', t.cancel_requested)
$$;

-- Judge a Commit against its task as it stands under the lock: model/commit.py's judge(), with duplicates before it.
-- `seen`: the request of an outsider was applied before.
CREATE FUNCTION {schema}.judge(c {schema}.commit_record, t {schema}.tasks, seen boolean) RETURNS text
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
        WHEN c.to_state IS NOT NULL AND NOT {schema}.is_legal_move(t.state, c.to_state) THEN 'illegal_move'
    END
$$;

-- Apply Commits on different tasks that touch nothing of each other's: judge all, write all that is accepted, then
-- draw the consequences.
CREATE FUNCTION {schema}.apply_run(
    run {schema}.commit_record[], parts text[], payloads bytea[], moment timestamptz,
    OUT answers jsonb, OUT hints text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    accepted {schema}.commit_record[];
    children jsonb := '[]';
    touched text[] := '{}';
BEGIN
    SELECT array_agg(j.c) FILTER (WHERE j.verdict IS NULL),
           coalesce(jsonb_agg({schema}.answer((j.c).n, j.verdict, j.t)) FILTER (WHERE j.verdict IS NOT NULL), '[]')
    INTO accepted, answers
    FROM (
        SELECT r AS c, t, {schema}.judge(r, t, q.request IS NOT NULL) AS verdict
        FROM unnest(run) AS r
        LEFT JOIN {schema}.tasks t ON t.id = r.task_id
        LEFT JOIN {schema}.requests q ON q.task_id = r.task_id AND q.request = r.request
        OFFSET 0  -- judged once, not once for each use of the verdict
    ) AS j;
    hints := '{}';
    IF accepted IS NULL THEN
        RETURN;
    END IF;

    IF 'ordered' = ANY (parts) THEN
        SELECT o.touched, o.children INTO touched, children FROM {schema}.apply_in_order(accepted, payloads, moment) AS o;
    END IF;
    PERFORM {schema}.write_journal(accepted, parts, payloads, moment);
    PERFORM {schema}.write_tasks(accepted, parts, payloads, moment);
    touched := touched || {schema}.follow_up(accepted, parts, moment);

    SELECT answers || jsonb_agg({schema}.answer(a.n, NULL, t) || CASE
        WHEN children = '[]' THEN '{}' ELSE jsonb_build_object('children', children) END)
    INTO answers
    FROM unnest(accepted) AS a JOIN {schema}.tasks t ON t.id = a.task_id;
    IF cardinality(touched) > 0 THEN
        hints := {schema}.hints_of(touched);
    END IF;
END
$$;

-- Apply the operations of the accepted Commits that have to be applied in order. Returns the ids of tasks that they
-- created or woke, and what became of children.
CREATE FUNCTION {schema}.apply_in_order(
    accepted {schema}.commit_record[], payloads bytea[], moment timestamptz, OUT touched text[], OUT children jsonb
)
LANGUAGE plpgsql AS $$
DECLARE
    c {schema}.commit_record;
    standing_fence bigint;
    op jsonb;
    done record;
BEGIN
    touched := '{}';
    children := '[]';
    FOREACH c IN ARRAY accepted LOOP
        CONTINUE WHEN c.ordered IS NULL;
        -- An outsider's operations count under the fence that stands; a worker's was just found to be that one.
        standing_fence := (SELECT t.fence FROM {schema}.tasks t WHERE t.id = c.task_id);
        FOR op IN SELECT jsonb_array_elements(c.ordered) LOOP
            done := {schema}.apply_operation(
                c.task_id, standing_fence, c.request IS NULL, c.actor, op, payloads, moment);
            touched := touched || done.touched;
            children := CASE WHEN done.child IS NULL THEN children ELSE children || done.child END;
        END LOOP;
    END LOOP;
END
$$;

-- Draw the consequences of what was written. Returns the ids of the tasks that moved or woke.
CREATE FUNCTION {schema}.follow_up(accepted {schema}.commit_record[], parts text[], moment timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    touched text[] := '{}';
    ended text[];
    hastened text[];
    c {schema}.commit_record;
    is_cancelled boolean;
    why text;
BEGIN
    IF 'moves' = ANY (parts) THEN
        touched := ARRAY(SELECT a.task_id FROM unnest(accepted) AS a WHERE a.lets_go OR a.to_state IS NOT NULL);
        -- Only a run of one ends a task that somebody waits for, so there is one actor to whom the wake-up is owed.
        ended := ARRAY(SELECT a.task_id FROM unnest(accepted) AS a WHERE {schema}.is_terminal(a.to_state));
        IF cardinality(ended) > 0 THEN
            touched := touched || {schema}.after_the_end(ended, accepted[1].actor, moment);
        END IF;
    END IF;
    IF 'cancels' = ANY (parts) THEN
        -- A worker may have to see to a cancel, and need not wait until the task would have been due.
        WITH due AS (
            UPDATE {schema}.tasks t
            SET available_at = moment, rank = {schema}.rank_of(moment, t.priority),
                ready = {schema}.readiness(t.state, t.owner, moment, t.deaths, moment)
            FROM unnest(accepted) AS a
            WHERE t.id = a.task_id AND a.cancel IS NOT NULL AND t.cancel_requested IS NOT NULL
              AND t.state = 'pending' AND t.available_at > moment
            RETURNING t.id
        )
        SELECT array_agg(due.id) INTO hastened FROM due;
        touched := touched || coalesce(hastened, '{}');
    END IF;
    FOR c IN
        SELECT a.* FROM unnest(accepted) AS a JOIN {schema}.tasks t ON t.id = a.task_id WHERE t.state = 'waiting'
    LOOP
        IF c.to_state = 'waiting' THEN
            PERFORM {schema}.start_waiting(c.task_id, c.waits);
        END IF;
        -- A task that is left waiting for something that is already true goes on at once, and so does one whose cancel
        -- was requested while somebody held it: only its next holder can see to that. One that undoes its steps does.
        is_cancelled := c.to_state = 'waiting' AND EXISTS (
            SELECT FROM {schema}.tasks t
            WHERE t.id = c.task_id AND t.cancel_requested IS NOT NULL AND NOT t.undoing);
        why := CASE WHEN is_cancelled THEN 'cancel requested' ELSE {schema}.reason_to_go_on(c.task_id, moment) END;
        IF why IS NOT NULL THEN
            touched := touched || {schema}.wake(ARRAY[c.task_id], why, c.actor, moment, 0);
        END IF;
    END LOOP;
    RETURN touched;
END
$$;

-- Write what the accepted Commits add to the journals of their tasks.
CREATE FUNCTION {schema}.write_journal(
    accepted {schema}.commit_record[], parts text[], payloads bytea[], moment timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF 'steps' = ANY (parts) THEN
        INSERT INTO {schema}.steps
        SELECT c.task_id, s.round, s.key, s.kind, s.position, s.state, s.attempts, s.fence, s.digest,
               payloads[s.output], payloads[s.error], s.effect_id,
               s.started_at, s.finished_at, s.retry_at, s.undone_at
        FROM unnest(accepted) AS c, jsonb_populate_recordset(NULL::{schema}.step_record, c.steps) AS s
        ON CONFLICT (task_id, round, key) DO UPDATE SET
            kind = excluded.kind, position = excluded.position, state = excluded.state, attempts = excluded.attempts,
            fence = excluded.fence, digest = excluded.digest, output = excluded.output, error = excluded.error,
            effect_id = excluded.effect_id, started_at = excluded.started_at, finished_at = excluded.finished_at,
            retry_at = excluded.retry_at, undone_at = excluded.undone_at;
    END IF;

    IF 'patches' = ANY (parts) THEN
        INSERT INTO {schema}.patches (task_id, version, body, author, reason, at, step_key, round)
        SELECT t.id, t.version + p.n, payloads[(p.patch ->> 'body_at')::integer], p.patch ->> 'author',
               p.patch ->> 'reason', moment, p.patch ->> 'step_key', coalesce((p.patch ->> 'round')::integer, t.round)
        FROM unnest(accepted) AS c JOIN {schema}.tasks t ON t.id = c.task_id,
             jsonb_array_elements(c.patches) WITH ORDINALITY AS p (patch, n);
    END IF;

    IF 'links' = ANY (parts) THEN
        INSERT INTO {schema}.artifact_links
        SELECT c.task_id, l.artifact_id, l.name, l.type, l.summary, l.bytes, l.step, coalesce(l.created_at, moment)
        FROM unnest(accepted) AS c, jsonb_populate_recordset(NULL::{schema}.artifact_links, c.links) AS l
        ON CONFLICT (task_id, artifact_id) DO UPDATE SET
            name = excluded.name, type = excluded.type, summary = excluded.summary, bytes = excluded.bytes,
            step = excluded.step, created_at = excluded.created_at;
    END IF;

    IF 'requests' = ANY (parts) THEN
        INSERT INTO {schema}.requests (task_id, request)
        SELECT c.task_id, c.request FROM unnest(accepted) AS c WHERE c.request IS NOT NULL;
    END IF;
END
$$;

-- Write the task rows of the accepted Commits, with their moves.
CREATE FUNCTION {schema}.write_tasks(
    accepted {schema}.commit_record[], parts text[], payloads bytea[], moment timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- The usual case, apart from the rest: nothing that is indexed changes, so this is a HOT update.
    IF 'stays' = ANY (parts) THEN
        UPDATE {schema}.tasks t
        SET sequence = coalesce(c.sequence, t.sequence), revision = t.revision + 1, updated_at = moment,
            version = t.version + coalesce(jsonb_array_length(c.patches), 0),
            cancel_requested = coalesce(t.cancel_requested, c.cancel), must_undo = coalesce(c.undo, t.must_undo),
            undoing = coalesce(c.undoing, t.undoing)
        FROM unnest(accepted) AS c
        WHERE t.id = c.task_id AND c.to_state IS NULL AND NOT c.lets_go;
    END IF;
    IF 'outcomes' = ANY (parts) THEN
        -- A task that is revived has no outcome any more; otherwise the last one written counts.
        DELETE FROM {schema}.outcomes o
        USING unnest(accepted) AS c, {schema}.tasks t
        WHERE o.task_id = c.task_id AND t.id = c.task_id AND (
            (c.to_state = 'pending' AND t.state = 'failed')
            OR (c.writes_outcome AND c.result IS NULL AND c.error IS NULL));
        INSERT INTO {schema}.outcomes (task_id, result, error)
        SELECT c.task_id, payloads[c.result], payloads[c.error]
        FROM unnest(accepted) AS c JOIN {schema}.tasks t ON t.id = c.task_id
        WHERE c.writes_outcome AND (c.result IS NOT NULL OR c.error IS NOT NULL)
          AND NOT (coalesce(c.to_state, '') = 'pending' AND t.state = 'failed')
        ON CONFLICT (task_id) DO UPDATE SET result = excluded.result, error = excluded.error;
    END IF;
    IF NOT 'moves' = ANY (parts) THEN
        RETURN;
    END IF;

    -- Before the rows change, because the old row says where the move comes from.
    INSERT INTO {schema}.transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
    SELECT t.id, t.moves + 1, t.state, c.to_state, c.reason, c.actor, t.fence, moment
    FROM unnest(accepted) AS c JOIN {schema}.tasks t ON t.id = c.task_id
    WHERE c.to_state IS NOT NULL;

    -- Asked for each: as a join it might be planned to read every task that is waiting.
    PERFORM {schema}.stop_waiting(array_agg(c.task_id))
    FROM unnest(accepted) AS c
    WHERE c.to_state IS NOT NULL AND (SELECT t.state FROM {schema}.tasks t WHERE t.id = c.task_id) = 'waiting'
    HAVING count(*) > 0;

    UPDATE {schema}.tasks t
    SET sequence = coalesce(c.sequence, t.sequence), revision = t.revision + 1, updated_at = moment,
        version = t.version + coalesce(jsonb_array_length(c.patches), 0),
        cancel_requested = n.cancel, must_undo = coalesce(c.undo, t.must_undo),
        -- A revived task starts again: whatever has to be undone later, nothing is being undone now.
        undoing = CASE WHEN t.state = 'failed' AND c.to_state = 'pending' THEN false
                       ELSE coalesce(c.undoing, t.undoing) END,
        state = n.state, finished_at = n.finished_at, moves = t.moves + n.moved, wake_at = n.wake_at,
        owner = n.owner, claim = CASE WHEN c.lets_go THEN 0 ELSE t.claim END, alone = t.alone AND NOT c.lets_go,
        available_at = n.available_at, rank = {schema}.rank_of(n.available_at, t.priority),
        round = t.round + c.new_round::integer, attempts = t.attempts + c.counts_attempt::integer,
        deaths = n.deaths, lone_deaths = CASE WHEN c.new_round THEN 0 ELSE t.lone_deaths END,
        feedback = coalesce(c.feedback, t.feedback),
        ready = {schema}.readiness(n.state, n.owner, n.available_at, n.deaths, moment)
    FROM unnest(accepted) AS c JOIN {schema}.tasks b ON b.id = c.task_id, LATERAL (
        SELECT coalesce(c.to_state, b.state) AS state,
               (c.to_state IS NOT NULL)::integer AS moved,
               CASE WHEN c.to_state IS NULL THEN b.finished_at WHEN {schema}.is_terminal(c.to_state) THEN moment END
                   AS finished_at,
               CASE WHEN c.to_state IS NULL THEN b.wake_at ELSE c.wake_at END AS wake_at,
               CASE WHEN c.lets_go THEN NULL ELSE b.owner END AS owner,
               CASE WHEN c.to_state IS DISTINCT FROM 'pending' THEN b.available_at
                    WHEN r.cancel IS NULL THEN coalesce(c.available_at, moment)
                    ELSE moment END AS available_at,
               r.cancel,
               CASE WHEN c.new_round THEN 0 ELSE b.deaths END AS deaths
        -- A request that came too late for a failed task is not meant for the one that was revived.
        FROM (SELECT CASE WHEN b.state = 'failed' AND c.to_state = 'pending' THEN NULL
                          ELSE coalesce(b.cancel_requested, c.cancel) END AS cancel) AS r
    ) AS n
    WHERE t.id = c.task_id AND (c.to_state IS NOT NULL OR c.lets_go);
END
$$;
