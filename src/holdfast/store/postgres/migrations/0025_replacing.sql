-- A submission can replace a task with its key that was never claimed.
-- Workers from version 23 on may go on.

ALTER TYPE {schema}.new_task ADD ATTRIBUTE if_exists text, ADD ATTRIBUTE debounce_max interval;

-- Submit tasks in order, and return what became of those that are not new. `one_by_one`: the caller saw an id or key twice
-- among them, so that a later one has to meet the earlier one; or one of them may replace a task.
CREATE OR REPLACE FUNCTION {schema}.submit(
    tasks json, payloads bytea[], one_by_one boolean, at timestamptz DEFAULT NULL
) RETURNS SETOF {schema}.submission
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wanted {schema}.new_task[] := ARRAY(SELECT t FROM json_populate_recordset(NULL::{schema}.new_task, tasks) AS t);
    lone {schema}.new_task;
    keys jsonb;
BEGIN
    SELECT jsonb_agg(jsonb_build_array(w.name, w.key)) INTO keys FROM unnest(wanted) AS w WHERE w.key IS NOT NULL;
    -- One that replaces a task locks its row, and then, in a queue with settings, the row of the queue: the key comes first.
    IF jsonb_array_length(keys) > 1 OR (one_by_one AND keys IS NOT NULL) THEN
        PERFORM {schema}.lock_names('key', keys);
    END IF;
    IF one_by_one THEN
        -- These are inserted in the caller's order; two callers with opposite orders would meet in a circle.
        PERFORM {schema}.lock_names('id', (SELECT jsonb_agg(w.id) FROM unnest(wanted) AS w));
        FOREACH lone IN ARRAY wanted LOOP
            IF lone.if_exists = 'replace' OR lone.debounce_max IS NOT NULL THEN
                RETURN QUERY
                SELECT s.* FROM {schema}.submit_replacing(lone, payloads, coalesce(at, clock_timestamp())) AS s
                WHERE NOT s.created;
            ELSE
                RETURN QUERY
                SELECT s.* FROM {schema}.submit_distinct(ARRAY[lone], payloads, coalesce(at, clock_timestamp())) AS s
                WHERE NOT s.created;
            END IF;
        END LOOP;
    ELSE
        RETURN QUERY
        SELECT s.* FROM {schema}.submit_distinct(wanted, payloads, coalesce(at, clock_timestamp())) AS s
        WHERE NOT s.created;
    END IF;
END
$$;

-- Submit a task that replaces the one with its key, if that was never claimed; with debounce_max, a task that was claimed
-- hands over its key. The lock on the row of the task that has the key decides: a claim skips that row, or was first.
-- (SQLite: submission.py.)
CREATE FUNCTION {schema}.submit_replacing(lone {schema}.new_task, payloads bytea[], moment timestamptz)
RETURNS SETOF {schema}.submission
LANGUAGE plpgsql AS $$
DECLARE
    answer {schema}.submission;
    holder {schema}.tasks;
BEGIN
    LOOP
        SELECT s.* INTO answer FROM {schema}.submit_distinct(ARRAY[lone], payloads, moment) AS s;
        EXIT WHEN answer.created;
        IF answer.task_id = lone.id THEN
            -- Sent again. Whatever has replaced it since stays.
            answer.conflict := false;
            EXIT;
        END IF;
        SELECT t.* INTO holder FROM {schema}.tasks t WHERE t.id = answer.task_id FOR NO KEY UPDATE;
        -- Pruned, or its key was handed over, while we waited for the lock: who has the key now?
        CONTINUE WHEN holder.id IS NULL OR holder.key IS DISTINCT FROM lone.key;
        IF {schema}.replace_waiting(holder, lone, payloads, moment) THEN
            answer.conflict := false;
            EXIT;
        END IF;
        EXIT WHEN lone.debounce_max IS NULL;
        UPDATE {schema}.tasks t SET key = NULL WHERE t.id = holder.id;
        UPDATE {schema}.task_keys k SET task_id = lone.id
        WHERE k.name = lone.name AND k.key = lone.key AND k.task_id = holder.id;
    END LOOP;
    RETURN NEXT answer;
END
$$;

-- Give a task whose row is locked the input, options and time of another one; false, and no change, if it was ever claimed
-- (model/task.py's is_untouched).
CREATE FUNCTION {schema}.replace_waiting(
    holder {schema}.tasks, lone {schema}.new_task, payloads bytea[], moment timestamptz
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    starts_at timestamptz := coalesce(lone.available_at, moment);
BEGIN
    IF holder.state <> 'pending' OR holder.fence > 0 OR holder.moves > 1 OR holder.version > 0
        OR holder.cancel_requested IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Elsewhere it would have to be counted: the triggers count what is stored and what changes its state.
    IF lone.queue <> holder.queue THEN
        PERFORM {schema}.refuse(
            'other queue', jsonb_build_object('task', holder.id, 'queue', holder.queue, 'wanted', lone.queue));
    END IF;
    IF lone.debounce_max IS NOT NULL THEN
        starts_at := least(starts_at, (
            SELECT i.created_at + lone.debounce_max FROM {schema}.inputs i WHERE i.task_id = holder.id));
    END IF;
    UPDATE {schema}.tasks t
    SET agent_id = lone.agent_id, priority = lone.priority,
        ready = {schema}.readiness('pending', NULL, starts_at, t.deaths, moment),
        rank = {schema}.rank_of(starts_at, lone.priority), available_at = starts_at, deadline = lone.deadline,
        labels = lone.labels, updated_at = moment, revision = t.revision + 1
    WHERE t.id = holder.id;
    UPDATE {schema}.inputs i
    SET user_input = payloads[lone.input], digest = lone.input_digest, search = lone.search WHERE i.task_id = holder.id;
    UPDATE {schema}.accounts a SET ceiling = NULL WHERE a.account = holder.id;
    INSERT INTO {schema}.accounts (account, meter, ceiling)
    SELECT holder.id, b.key, b.value::bigint FROM jsonb_each_text(lone.budget) AS b
    ON CONFLICT (account, meter) DO UPDATE SET ceiling = excluded.ceiling;
    RETURN true;
END
$$;
