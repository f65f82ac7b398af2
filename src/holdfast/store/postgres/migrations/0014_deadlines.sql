-- A Move to pending may bring a new deadline: a task that failed by the old one would fail again at the next sweep. It is
-- written by the statement that moves the task, so that no sweep sees the task in its queue with the old deadline.

-- Commits of clients that do not know the field leave it NULL, which keeps the deadline.
ALTER TYPE {schema}.commit_record ADD ATTRIBUTE deadline timestamptz;

-- Write the task rows of the accepted Commits, with their moves.
CREATE OR REPLACE FUNCTION {schema}.write_tasks(
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
        feedback = coalesce(c.feedback, t.feedback), deadline = coalesce(c.deadline, t.deadline),
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
