-- Putting tasks and events into the store.

-- A task to submit; input, result and error are positions in the payloads that came along.
CREATE TYPE {schema}.new_task AS (
    n integer, id text, name text, agent_id text, state text, queue text, priority integer, key text,
    available_at timestamptz, deadline timestamptz, schedule text, parent_id text, actor text,
    input integer, input_digest text, search text, result integer, error integer, budget jsonb, round integer
);

-- What became of each submission: its position, the task that holds the id or key, and whether that one is new.
CREATE TYPE {schema}.submission AS (n integer, task_id text, created boolean, conflict boolean);

-- Submit tasks in order, and return what became of those that are not new. `one_by_one`: the caller saw an id or key twice
-- among them, so that a later one has to meet the earlier one.
CREATE FUNCTION {schema}.submit(
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
    IF jsonb_array_length(keys) > 1 THEN
        PERFORM {schema}.lock_names('key', keys);
    END IF;
    IF one_by_one THEN
        -- These are inserted in the caller's order; two callers with opposite orders would meet in a circle.
        PERFORM {schema}.lock_names('id', (SELECT jsonb_agg(w.id) FROM unnest(wanted) AS w));
        FOREACH lone IN ARRAY wanted LOOP
            RETURN QUERY
            SELECT s.* FROM {schema}.submit_distinct(ARRAY[lone], payloads, coalesce(at, clock_timestamp())) AS s
            WHERE NOT s.created;
        END LOOP;
    ELSE
        RETURN QUERY
        SELECT s.* FROM {schema}.submit_distinct(wanted, payloads, coalesce(at, clock_timestamp())) AS s
        WHERE NOT s.created;
    END IF;
END
$$;

-- Submit tasks of which no two share an id or a key. Usually all of them are new and have neither key nor outcome nor
-- budget; then three tables are written and nothing else is looked at.
CREATE FUNCTION {schema}.submit_distinct(wanted {schema}.new_task[], payloads bytea[], moment timestamptz)
RETURNS SETOF {schema}.submission
LANGUAGE plpgsql AS $$
DECLARE
    has_keys boolean;
    has_outcomes boolean;
    has_budgets boolean;
    created text[];
    all_new boolean;
BEGIN
    SELECT bool_or(w.key IS NOT NULL), bool_or(w.result IS NOT NULL OR w.error IS NOT NULL), bool_or(w.budget IS NOT NULL)
    INTO has_keys, has_outcomes, has_budgets FROM unnest(wanted) AS w;

    IF has_keys THEN
        -- Whoever inserts a key first has it. A loser waits here until the winner has committed, and reads who that is
        -- in a later statement: this one's snapshot is older than the winner's commit.
        INSERT INTO {schema}.task_keys (name, key, task_id)
        SELECT w.name, w.key, w.id FROM unnest(wanted) AS w
        WHERE w.key IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = w.id OFFSET 0)
        ORDER BY w.name, w.key
        ON CONFLICT DO NOTHING;
    END IF;

    WITH stored AS (
        INSERT INTO {schema}.tasks (
            id, name, agent_id, state, updated_at, finished_at, queue, priority, key, available_at, deadline,
            schedule, parent_id, ready, rank, round
        )
        SELECT w.id, w.name, w.agent_id, w.state, moment,
               CASE WHEN {schema}.is_terminal(w.state) THEN moment END,
               w.queue, w.priority, w.key, coalesce(w.available_at, moment), w.deadline, w.schedule, w.parent_id,
               {schema}.readiness(w.state, NULL, coalesce(w.available_at, moment), 0, moment),
               {schema}.rank_of(coalesce(w.available_at, moment), w.priority), w.round
        FROM unnest(wanted) AS w
        WHERE w.key IS NULL
           OR w.id = (SELECT k.task_id FROM {schema}.task_keys k WHERE k.name = w.name AND k.key = w.key)
        ORDER BY w.id
        ON CONFLICT DO NOTHING
        RETURNING id
    )
    SELECT coalesce(array_agg(id), '{}') INTO created FROM stored;
    -- Where all are new, nobody has to be looked for among them.
    all_new := cardinality(created) = cardinality(wanted);

    IF has_keys AND NOT all_new THEN
        -- A key can only be left without its task where another submission stored the same id under another key
        -- meanwhile.
        DELETE FROM {schema}.task_keys k USING unnest(wanted) AS w
        WHERE k.name = w.name AND k.key = w.key AND k.task_id = w.id AND NOT w.id = ANY (created)
          AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = w.id AND t.name = k.name AND t.key = k.key);
    END IF;

    INSERT INTO {schema}.inputs (task_id, created_at, user_input, digest, search)
    SELECT w.id, moment, payloads[w.input], w.input_digest, w.search FROM unnest(wanted) AS w
    WHERE all_new OR w.id = ANY (created);
    INSERT INTO {schema}.transitions (task_id, number, to_state, reason, actor, fence, at)
    SELECT w.id, 1, w.state, 'submitted', w.actor, 0, moment FROM unnest(wanted) AS w
    WHERE all_new OR w.id = ANY (created);
    IF has_outcomes THEN
        INSERT INTO {schema}.outcomes (task_id, result, error)
        SELECT w.id, payloads[w.result], payloads[w.error] FROM unnest(wanted) AS w
        WHERE w.id = ANY (created) AND (w.result IS NOT NULL OR w.error IS NOT NULL);
    END IF;
    IF has_budgets THEN
        INSERT INTO {schema}.accounts (account, meter, ceiling)
        SELECT w.id, b.key, b.value::bigint FROM unnest(wanted) AS w, jsonb_each_text(w.budget) AS b
        WHERE all_new OR w.id = ANY (created)
        ON CONFLICT (account, meter) DO UPDATE SET ceiling = excluded.ceiling;
    END IF;

    IF all_new AND NOT has_keys THEN
        RETURN QUERY SELECT w.n, w.id, true, false FROM unnest(wanted) AS w;
        RETURN;
    END IF;

    -- A prune that was under way may have taken a task or a key that an earlier statement of ours still saw. Whoever
    -- sent this sends it again.
    IF EXISTS (
        SELECT FROM unnest(wanted) AS w
        LEFT JOIN {schema}.task_keys k ON k.name = w.name AND k.key = w.key
        WHERE (w.key IS NOT NULL AND w.id = ANY (created) AND k.task_id IS DISTINCT FROM w.id)
           OR NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.id IN (w.id, k.task_id)))
    THEN
        RAISE EXCEPTION 'a task of this submission was just pruned; send it again' USING ERRCODE = 'serialization_failure';
    END IF;

    -- The id decides first, then the key.
    RETURN QUERY
    SELECT w.n, t.id, w.id = ANY (created),
           (t.name, (SELECT i.digest FROM {schema}.inputs i WHERE i.task_id = t.id))
               IS DISTINCT FROM (w.name, w.input_digest)
    FROM unnest(wanted) AS w
    JOIN {schema}.tasks t ON t.id = coalesce(
        (SELECT same.id FROM {schema}.tasks same WHERE same.id = w.id),
        (SELECT k.task_id FROM {schema}.task_keys k WHERE k.name = w.name AND k.key = w.key))
    ORDER BY w.n;
END
$$;

-- Append an event to a channel whose row, and whose waiting tasks, the caller has locked; wake those tasks, except the
-- one whose own Commit emits, which is looked at when that Commit has been applied.
-- Returns their ids, or NULL where an event with this key was there before.
CREATE FUNCTION {schema}.append_event(
    wanted_channel text, wanted_key text, body bytea, who text, moment timestamptz, apart_from text DEFAULT NULL
) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    next_number bigint;
BEGIN
    IF EXISTS (SELECT FROM {schema}.events e WHERE e.channel = wanted_channel AND e.key = wanted_key) THEN
        RETURN NULL;
    END IF;
    UPDATE {schema}.channels c SET last_number = c.last_number + 1 WHERE c.channel = wanted_channel
    RETURNING c.last_number INTO next_number;
    INSERT INTO {schema}.events (channel, number, payload, actor, key, at)
    VALUES (wanted_channel, next_number, body, who, wanted_key, moment);
    RETURN {schema}.wake(ARRAY(
        SELECT DISTINCT w.task_id FROM {schema}.waits w
        WHERE w.kind = 'event' AND w.channel = wanted_channel AND w.after < next_number
          AND w.task_id IS DISTINCT FROM apart_from), 'event', who, moment);
END
$$;

-- Emit an event on its own; returns it, or the first one with this key, and what to hint at.
CREATE FUNCTION {schema}.emit(
    wanted_channel text, wanted_key text, body bytea, who text, at timestamptz DEFAULT NULL,
    OUT event {schema}.events, OUT hints text[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    woken text[];
BEGIN
    PERFORM {schema}.lock_tasks('{}', '{}', ARRAY[wanted_channel], '{}', '{}');
    woken := {schema}.append_event(wanted_channel, wanted_key, body, who, coalesce(at, clock_timestamp()));
    hints := CASE WHEN woken IS NULL THEN '{}' ELSE {schema}.hints_of(woken) || ('channel:' || wanted_channel) END;
    SELECT e.* INTO event FROM {schema}.events e
    WHERE e.channel = wanted_channel AND (e.key = wanted_key OR wanted_key IS NULL)
    ORDER BY e.number DESC LIMIT 1;
END
$$;
