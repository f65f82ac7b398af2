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
        WHEN 'require_quiet' THEN PERFORM {schema}.require_quiet(op);
    END CASE;
END
$$;
