-- The operations of a Commit that have to be applied in order: those that can be refused, and those that touch what
-- another of them may have touched before. One function each; apply_operation() at the end picks it.
--
-- Payloads are positions in the array that came with the batch: {"arguments_at": 3} means payloads[3].

-- Refuse the whole Commit of the operation at hand. The error undoes what the Commit has done so far; commit_batch()
-- catches it. `detail` is a JSON object with what the message to a person needs.
CREATE FUNCTION {schema}.refuse(refusal text, detail jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'HF001', MESSAGE = refusal, DETAIL = detail::text;
END
$$;

CREATE FUNCTION {schema}.write_effect(
    owner_id text, fenced boolean, op jsonb, payloads bytea[], moment timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    e {schema}.effects := jsonb_populate_record(NULL::{schema}.effects, op);
    before text;
BEGIN
    SELECT state INTO before FROM {schema}.effects WHERE task_id = owner_id AND effect_id = e.effect_id;
    IF NOT {schema}.is_legal_effect_move(before, e.state, fenced) THEN
        PERFORM {schema}.refuse('effect', jsonb_build_object('id', e.effect_id, 'before', before, 'after', e.state));
    END IF;
    INSERT INTO {schema}.effects
    VALUES (owner_id, e.effect_id, e.step_key, e.effect_class, e.state, e.round, e.fence, e.attempt,
            payloads[(op ->> 'arguments_at')::integer], e.arguments_hash, e.approval_id, e.dispatch_by, e.settle_at,
            payloads[(op ->> 'result_at')::integer], e.note, e.compensable, e.thread_of, moment)
    ON CONFLICT (task_id, effect_id) DO UPDATE SET
        step_key = excluded.step_key, effect_class = excluded.effect_class, state = excluded.state,
        round = excluded.round, fence = excluded.fence, attempt = excluded.attempt, arguments = excluded.arguments,
        arguments_hash = excluded.arguments_hash, approval_id = excluded.approval_id,
        dispatch_by = excluded.dispatch_by, settle_at = excluded.settle_at, result = excluded.result,
        note = excluded.note, compensable = excluded.compensable, thread_of = excluded.thread_of,
        updated_at = excluded.updated_at;
END
$$;

CREATE FUNCTION {schema}.save_checkpoint(owner_id text, op jsonb, payloads bytea[], moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    c {schema}.checkpoints := jsonb_populate_record(NULL::{schema}.checkpoints, op);
BEGIN
    INSERT INTO {schema}.checkpoints
    VALUES (owner_id, c.number, c.position, c.version, payloads[(op ->> 'body_at')::integer], c.checksum, c.schema,
            coalesce(c.created_at, moment), c.damaged)
    ON CONFLICT (task_id, number) DO UPDATE SET
        position = excluded.position, version = excluded.version, body = excluded.body,
        checksum = excluded.checksum, schema = excluded.schema, created_at = excluded.created_at,
        damaged = excluded.damaged;
END
$$;

-- Delete checkpoints that are both beyond the newest `keep` and older than `before`.
CREATE FUNCTION {schema}.rotate_checkpoints(owner_id text, keep bigint, before timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.checkpoints
    WHERE task_id = owner_id AND created_at < before AND number NOT IN (
        SELECT c.number FROM {schema}.checkpoints c
        WHERE c.task_id = owner_id ORDER BY c.number DESC LIMIT greatest(keep, 0));
END
$$;

CREATE FUNCTION {schema}.set_limits(wanted_account text, limits jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.accounts (account, meter, ceiling)
    SELECT wanted_account, l.key, l.value::bigint FROM jsonb_each_text(limits) AS l ORDER BY l.key COLLATE "C"
    ON CONFLICT (account, meter) DO UPDATE SET ceiling = excluded.ceiling;
END
$$;

-- Hold part of a budget for a step, or refuse where a meter would go over its limit.
CREATE FUNCTION {schema}.reserve(owner_id text, owner_fence bigint, op jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted_account text := op ->> 'account';
    wanted record;
    meter_row {schema}.accounts;
BEGIN
    FOR wanted IN
        SELECT a.key AS meter, a.value::bigint AS amount FROM jsonb_each_text(op -> 'amounts') AS a
        ORDER BY a.key COLLATE "C"
    LOOP
        INSERT INTO {schema}.accounts AS a (account, meter, reserved)
        VALUES (wanted_account, wanted.meter, wanted.amount)
        ON CONFLICT (account, meter) DO UPDATE SET reserved = a.reserved + wanted.amount
        WHERE a.ceiling IS NULL OR a.spent + a.reserved + wanted.amount <= a.ceiling;
        IF NOT FOUND THEN
            SELECT a.* INTO meter_row FROM {schema}.accounts a
            WHERE a.account = wanted_account AND a.meter = wanted.meter;
            PERFORM {schema}.refuse('budget', jsonb_build_object(
                'meter', wanted.meter, 'limit', meter_row.ceiling, 'spent', meter_row.spent,
                'reserved', meter_row.reserved, 'asked', wanted.amount));
        END IF;
        INSERT INTO {schema}.reservations AS r (task_id, account, meter, step_key, fence, amount)
        VALUES (owner_id, wanted_account, wanted.meter, op ->> 'step_key', owner_fence, wanted.amount)
        ON CONFLICT (task_id, account, meter, step_key, fence) DO UPDATE SET amount = r.amount + excluded.amount;
    END LOOP;
END
$$;

-- Release what the step holds under this fence and add what was really used. What earlier fences left behind is for
-- settle_stale: nobody knows what became of it.
CREATE FUNCTION {schema}.settle(owner_id text, owner_fence bigint, op jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted_account text := op ->> 'account';
BEGIN
    WITH gone AS (
        DELETE FROM {schema}.reservations
        WHERE task_id = owner_id AND account = wanted_account AND step_key = op ->> 'step_key' AND fence = owner_fence
        RETURNING meter, amount
    )
    UPDATE {schema}.accounts a SET reserved = a.reserved - n.amount
    FROM (SELECT meter, sum(amount)::bigint AS amount FROM gone GROUP BY meter) n
    WHERE a.account = wanted_account AND a.meter = n.meter;

    INSERT INTO {schema}.accounts AS a (account, meter, spent)
    SELECT wanted_account, u.key, u.value::bigint FROM jsonb_each_text(op -> 'amounts') AS u
    ORDER BY u.key COLLATE "C"
    ON CONFLICT (account, meter) DO UPDATE SET spent = a.spent + excluded.spent;
END
$$;

-- Ask a person. The same question again, with the same arguments, is left as it stands.
CREATE FUNCTION {schema}.open_approval(owner_id text, op jsonb, payloads bytea[], moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    a {schema}.approvals := jsonb_populate_record(NULL::{schema}.approvals, op);
BEGIN
    INSERT INTO {schema}.approvals
    VALUES (owner_id, a.id, a.kind, a.step_key, a.question, a.risk, payloads[(op ->> 'arguments_at')::integer],
            a.arguments_hash, a.policy, a.requested_by, a.deciders, a.expires_at, a.fallback, a.state,
            payloads[(op ->> 'answer_at')::integer], a.decided_by, a.note, a.consumed_by,
            coalesce(a.created_at, moment), a.decided_at)
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND AND NOT EXISTS (
        SELECT FROM {schema}.approvals stored
        WHERE stored.id = a.id AND stored.task_id = owner_id AND stored.arguments_hash = a.arguments_hash
    ) THEN
        PERFORM {schema}.refuse('approval', jsonb_build_object('id', a.id, 'why', 'opened before, for other arguments'));
    END IF;
END
$$;

-- Decide an open approval. Whether that wakes the task is seen when the whole Commit has been applied. To take it back
-- is for whoever asked, not for its deciders.
CREATE FUNCTION {schema}.decide(owner_id text, op jsonb, payloads bytea[], moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    a {schema}.approvals;
    why text;
BEGIN
    SELECT stored.* INTO a FROM {schema}.approvals stored
    WHERE stored.id = op ->> 'approval_id' AND stored.task_id = owner_id;
    why := CASE
        WHEN a.id IS NULL THEN 'not one of this task'
        WHEN a.state <> 'open' THEN a.state || ' already'
        WHEN a.expires_at <= moment THEN 'expired'
        WHEN op ->> 'state' <> 'void' AND cardinality(a.deciders) > 0 AND NOT op ->> 'by' = ANY (a.deciders)
            THEN 'for others to decide: ' || array_to_string(a.deciders, ', ')
    END;
    IF why IS NOT NULL THEN
        PERFORM {schema}.refuse('approval', jsonb_build_object('id', op ->> 'approval_id', 'why', why));
    END IF;
    UPDATE {schema}.approvals
    SET state = op ->> 'state', decided_by = op ->> 'by', note = op ->> 'note', decided_at = moment,
        answer = payloads[(op ->> 'answer_at')::integer]
    WHERE id = a.id;
END
$$;

-- Use an approval for one effect, and for no other.
CREATE FUNCTION {schema}.consume_approval(owner_id text, op jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    a {schema}.approvals;
    why text;
BEGIN
    SELECT stored.* INTO a FROM {schema}.approvals stored
    WHERE stored.id = op ->> 'approval_id' AND stored.task_id = owner_id;
    why := CASE
        WHEN a.id IS NULL THEN 'not one of this task'
        WHEN (CASE WHEN a.state = 'expired' THEN a.fallback ELSE a.state END) <> 'approved'
            THEN a.state || ', not approved'
        WHEN a.arguments_hash <> op ->> 'arguments_hash' THEN 'for other arguments'
        WHEN a.consumed_by <> op ->> 'effect_id' THEN 'used already, for effect ' || a.consumed_by
    END;
    IF why IS NOT NULL THEN
        PERFORM {schema}.refuse('approval', jsonb_build_object('id', op ->> 'approval_id', 'why', why));
    END IF;
    UPDATE {schema}.approvals SET consumed_by = op ->> 'effect_id' WHERE id = a.id;
END
$$;

-- Submit a child, or refuse where its key is taken by other input. Returns {"task_id", "created"}.
CREATE FUNCTION {schema}.submit_child(owner_id text, who text, op jsonb, payloads bytea[], moment timestamptz)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    child {schema}.new_task := jsonb_populate_record(NULL::{schema}.new_task, op);
    answer {schema}.submission;
BEGIN
    child.parent_id := owner_id;
    child.actor := who;
    SELECT * INTO answer FROM {schema}.submit_distinct(ARRAY[child], payloads, moment);
    IF answer.conflict THEN
        PERFORM {schema}.refuse('key', jsonb_build_object('key', child.key, 'task_id', answer.task_id));
    END IF;
    RETURN jsonb_build_object('task_id', answer.task_id, 'created', answer.created);
END
$$;

-- Refuse if anybody emitted on the channel since it was read. Its row is locked, and this statement is later than that:
-- whoever emits has committed by now, or comes after this Commit.
CREATE FUNCTION {schema}.require_quiet(op jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    last bigint := (SELECT c.last_number FROM {schema}.channels c WHERE c.channel = op ->> 'channel');
BEGIN
    IF last > (op ->> 'after')::bigint THEN
        PERFORM {schema}.refuse('conflict', op || jsonb_build_object('last', last));
    END IF;
END
$$;

-- Apply one operation of a Commit. Returns ids of tasks that it created or woke; `child` is set by submit_child.
CREATE FUNCTION {schema}.apply_operation(
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
        WHEN 'emit' THEN
            touched := coalesce({schema}.append_event(
                op ->> 'channel', op ->> 'key', payloads[(op ->> 'payload_at')::integer], who, moment, owner_id),
                '{}');
        WHEN 'require_quiet' THEN PERFORM {schema}.require_quiet(op);
    END CASE;
END
$$;
