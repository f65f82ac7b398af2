-- Tasks that only wait although they keep their worker. The column holds the fence under which the task rests, so that
-- the note is void as soon as the lease is another one; 0 is none.
ALTER TABLE {schema}.tasks ADD COLUMN resting bigint NOT NULL DEFAULT 0;

-- A task as the model shows it, with one column more at its end.
CREATE OR REPLACE VIEW {schema}.shown_tasks AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       i.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form,
       t.owner IS NOT NULL AND t.resting = t.fence AS resting
FROM {schema}.tasks t
JOIN {schema}.inputs i ON i.task_id = t.id
LEFT JOIN {schema}.outcomes o ON o.task_id = t.id;

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
        WHEN 'rest' THEN
            UPDATE {schema}.tasks SET resting = CASE WHEN (op ->> 'resting')::boolean THEN fence ELSE 0 END
            WHERE id = owner_id;
        WHEN 'share_worker' THEN
            UPDATE {schema}.tasks SET alone = false, deaths = CASE WHEN (op ->> 'acquitted')::boolean THEN 0 ELSE deaths END
            WHERE id = owner_id;
        WHEN 'require_quiet' THEN PERFORM {schema}.require_quiet(op);
    END CASE;
END
$$;

-- Take back the tasks of the dead (model/worker.py's after_death()). A task that killed POISON_AFTER workers which ran
-- nothing else is set aside.
CREATE OR REPLACE FUNCTION {schema}.recover(
    most integer, moment timestamptz, OUT recovered text[], OUT poisoned text[], OUT touched text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    lost text[] := ARRAY(
        SELECT t.id FROM {schema}.workers w JOIN {schema}.tasks t ON t.owner = w.id
        WHERE w.state = 'dead' AND NOT w.emptied
        ORDER BY t.id LIMIT most FOR NO KEY UPDATE OF t SKIP LOCKED);
    -- A death counts where the task was being worked on, and had not only rested for long (QUIET_FOR).
    counting text[] := ARRAY(
        SELECT t.id FROM {schema}.tasks t JOIN {schema}.workers w ON w.id = t.owner
        WHERE t.id = ANY (lost) AND t.state IN ('running', 'review')
          AND (t.resting <> t.fence OR w.seen_at < t.updated_at + interval '60 seconds'));
    deadly text[];
BEGIN
    deadly := ARRAY(
        SELECT t.id FROM {schema}.tasks t
        WHERE t.id = ANY (counting) AND t.alone AND t.lone_deaths + 1 >= 3);
    poisoned := {schema}.endable(deadly);
    recovered := ARRAY(SELECT id FROM unnest(lost) AS id WHERE NOT id = ANY (deadly) ORDER BY id);

    UPDATE {schema}.tasks t SET deaths = t.deaths + 1, lone_deaths = t.lone_deaths + t.alone::integer
    WHERE t.id = ANY (recovered || poisoned) AND t.id = ANY (counting);
    PERFORM {schema}.take_back(recovered, 'its worker died', 'sweep', moment);
    UPDATE {schema}.tasks t SET owner = NULL, alone = false, claim = 0, fence = t.fence + 1, sequence = 0
    WHERE t.id = ANY (poisoned);
    touched := recovered || poisoned || {schema}.fail(poisoned, 'poison', ARRAY(
        SELECT {schema}.error_body('Poison', t.lone_deaths || ' workers died while running only this task')
        FROM unnest(poisoned) WITH ORDINALITY AS p (id, n) JOIN {schema}.tasks t ON t.id = p.id ORDER BY p.n), moment);

    -- Dead workers claim nothing more: one without tasks need never be looked at again.
    UPDATE {schema}.workers w SET emptied = true
    WHERE w.id IN (
        SELECT idle.id FROM {schema}.workers idle
        WHERE idle.state = 'dead' AND NOT idle.emptied
          AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.owner = idle.id)
        FOR UPDATE SKIP LOCKED);
END
$$;
