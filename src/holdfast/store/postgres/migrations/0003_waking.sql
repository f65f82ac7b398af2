-- What follows for others when something happens to a task. These functions change only tasks whose rows the
-- caller has locked: a task's row lock covers everything that belongs to the task, its waits and joins included.

-- Move those of these tasks that are waiting to pending, and return their ids. `counted` is 0 where the task's own
-- Commit counts the revision already.
CREATE FUNCTION {schema}.wake(ids text[], why text, who text, moment timestamptz, counted integer DEFAULT 1)
RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    woken text[];
BEGIN
    IF cardinality(ids) = 0 THEN
        RETURN ids;
    END IF;
    WITH moved AS (
        INSERT INTO {schema}.transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
        SELECT t.id, t.moves + 1, t.state, 'pending', why, who, t.fence, moment
        FROM {schema}.tasks t WHERE t.id = ANY (ids) AND t.state = 'waiting'
        RETURNING task_id
    )
    SELECT coalesce(array_agg(task_id), '{}') INTO woken FROM moved;
    PERFORM {schema}.stop_waiting(woken);
    UPDATE {schema}.tasks t
    SET state = 'pending', available_at = moment, rank = {schema}.rank_of(moment, t.priority), wake_at = NULL,
        moves = t.moves + 1, ready = {schema}.readiness('pending', t.owner, moment, t.deaths, moment),
        revision = t.revision + counted, updated_at = moment
    WHERE t.id = ANY (woken);
    RETURN woken;
END
$$;

-- Why a waiting task may go on by now, or NULL. When several of its waits hold, the lowest number names the reason.
CREATE FUNCTION {schema}.reason_to_go_on(waiting_id text, moment timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT (ARRAY['time came', 'event', 'children ended', 'decided'])[min(CASE w.kind
            WHEN 'time' THEN CASE WHEN w.at <= moment THEN 1 END
            WHEN 'event' THEN CASE WHEN EXISTS (
                SELECT FROM {schema}.channels c WHERE c.channel = w.channel AND c.last_number > w.after) THEN 2 END
            WHEN 'children' THEN CASE WHEN w.remaining = 0 THEN 3 END
            WHEN 'decided' THEN CASE WHEN EXISTS (
                SELECT FROM {schema}.approvals a WHERE a.id = w.approval_id AND a.state <> 'open') THEN 4 END
        END)]
        FROM {schema}.waits w WHERE w.task_id = waiting_id
    );
END
$$;

-- Forget what these tasks waited for; a replay that still has to wait says so again.
CREATE FUNCTION {schema}.stop_waiting(ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.joins WHERE task_id = ANY (ids);
    DELETE FROM {schema}.waits WHERE task_id = ANY (ids);
END
$$;

-- Store what a task that was just moved to waiting waits for. Its children are locked, so none of them can end
-- between the count and the end of this transaction without seeing the join.
CREATE FUNCTION {schema}.start_waiting(waiting_id text, wanted jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.waits (task_id, key, kind, at, channel, after, approval_id, remaining)
    SELECT waiting_id, w.key, w.kind, w.at, w.channel, w.after, w.approval_id,
           CASE WHEN w.kind = 'children' THEN 0 END
    FROM jsonb_to_recordset(wanted)
        AS w (key text, kind text, at timestamptz, channel text, after bigint, approval_id text);

    WITH counted AS (
        INSERT INTO {schema}.joins (child_id, task_id, key)
        SELECT DISTINCT c.id, waiting_id, w.key
        FROM jsonb_to_recordset(wanted) AS w (key text, children text[])
        JOIN {schema}.tasks c ON c.id = ANY (w.children) AND c.finished_at IS NULL
        RETURNING key
    )
    UPDATE {schema}.waits w SET remaining = n.children
    FROM (SELECT key, count(*) AS children FROM counted GROUP BY key) n
    WHERE w.task_id = waiting_id AND w.key = n.key;
END
$$;

-- Draw the consequences for tasks that have just ended: nobody decides their approvals or settles their
-- reservations any more, and a task that waited only for them goes on. Returns the ids of the woken.
CREATE FUNCTION {schema}.after_the_end(ids text[], who text, moment timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    parents text[];
BEGIN
    UPDATE {schema}.approvals SET state = 'closed', decided_at = moment
    WHERE task_id = ANY (ids) AND state = 'open';

    PERFORM {schema}.count_as_spent(ids);
    PERFORM {schema}.stop_waiting(ids);

    WITH gone AS (
        DELETE FROM {schema}.joins WHERE child_id = ANY (ids) RETURNING task_id, key
    ), lowered AS (
        UPDATE {schema}.waits w SET remaining = w.remaining - n.children
        FROM (SELECT task_id, key, count(*) AS children FROM gone GROUP BY task_id, key) n
        WHERE w.task_id = n.task_id AND w.key = n.key
        RETURNING w.task_id, w.remaining
    )
    SELECT coalesce(array_agg(DISTINCT task_id), '{}') INTO parents FROM lowered WHERE remaining = 0;
    RETURN {schema}.wake(parents, 'children ended', who, moment);
END
$$;

-- Turn reservations that nobody will settle into spending: all of these tasks', or those below a fence.
CREATE FUNCTION {schema}.count_as_spent(ids text[], below_fence bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM {schema}.reservations
        WHERE task_id = ANY (ids) AND (below_fence IS NULL OR fence < below_fence)
        RETURNING account, meter, amount
    )
    UPDATE {schema}.accounts a SET reserved = a.reserved - n.amount, spent = a.spent + n.amount
    FROM (SELECT account, meter, sum(amount)::bigint AS amount FROM gone GROUP BY account, meter) n
    WHERE a.account = n.account AND a.meter = n.meter;
END
$$;

-- The topics to hint at when these tasks changed: each task, and each queue where one of them can now be claimed.
CREATE FUNCTION {schema}.hints_of(ids text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT topic
        FROM {schema}.tasks t,
             LATERAL (VALUES ('task:' || t.id), (CASE WHEN t.ready > 0 THEN 'queue:' || t.queue END)) AS v (topic)
        WHERE t.id = ANY (ids) AND topic IS NOT NULL
    );
END
$$;
