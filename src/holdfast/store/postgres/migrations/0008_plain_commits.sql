-- The Commits of every day, many at once: a worker that holds its tasks writes steps, or completes them, and does
-- nothing else (plain.py). They travel as flat rows and are written as sets, one statement for each table, where
-- commit_batch() has to look into every Commit for whatever it may hold.
--
-- It is safe because it does nothing that commit_batch() would not do. A Commit whose guard does not hold, or whose task
-- is not as simple as it looks, is neither applied nor answered; the client sends it to commit_batch(), to be judged.
--
-- OFFSET 0 keeps a lookup a lookup, by key and row by row. Joined freely, a plan made while a table was small would read
-- all of it, and PL/pgSQL keeps its plans.

CREATE TYPE {schema}.plain_commit AS (
    task_id text, fence bigint, sequence bigint, completes boolean, reason text, result integer
);

-- A step beside its task; output and error are positions in the payloads.
CREATE TYPE {schema}.plain_step AS (
    task_id text, round integer, key text, kind text, "position" bigint, state text, attempts integer, fence bigint,
    digest text, output integer, error integer, effect_id text,
    started_at timestamptz, finished_at timestamptz, retry_at timestamptz, undone_at timestamptz
);

-- A task that is about to be completed: how many moves it has made, and what the Commit says of the last one.
CREATE TYPE {schema}.plain_end AS (task_id text, fence bigint, moves integer, reason text, result integer);

-- Apply what can be applied of these Commits, which are of one worker and on different tasks, and return how each of
-- those tasks stands now.
CREATE FUNCTION {schema}.commit_plain(
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
    -- had to be waited for is looked at again as it then is. A task that is waiting might have to be woken.
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

-- Of these tasks, which the caller has locked, those whose end has no consequences: nobody waits for one, it never asked
-- anybody, holds no reservation and has no outcome yet. All of that is only ever added under the task's lock.
CREATE FUNCTION {schema}.with_nothing_loose(ends {schema}.plain_end[]) RETURNS {schema}.plain_end[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT e FROM unnest(ends) AS e
        WHERE NOT EXISTS (SELECT FROM {schema}.joins j WHERE j.child_id = e.task_id OFFSET 0)
          AND NOT EXISTS (SELECT FROM {schema}.approvals a WHERE a.task_id = e.task_id OFFSET 0)
          AND NOT EXISTS (SELECT FROM {schema}.reservations r WHERE r.task_id = e.task_id OFFSET 0)
          AND NOT EXISTS (SELECT FROM {schema}.outcomes o WHERE o.task_id = e.task_id OFFSET 0));
END
$$;
