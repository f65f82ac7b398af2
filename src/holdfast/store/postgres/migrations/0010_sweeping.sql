-- What time alone makes true. A sweep never waits for a lock: what somebody else holds is left for the next sweep.

-- One bounded batch of everything. The order matters: whoever could go on in time is woken before deadlines are
-- looked at.
CREATE FUNCTION {schema}.sweep(
    most integer, at timestamptz DEFAULT NULL,
    OUT recovered text[], OUT poisoned text[], OUT woken text[], OUT due integer, OUT failed text[],
    OUT expired text[], OUT more boolean, OUT next_due timestamptz, OUT hints text[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    moment timestamptz := coalesce(at, clock_timestamp());
    lost record;
    undecided record;
    late record;
    timers text[];
    made_ready text[];
BEGIN
    PERFORM {schema}.declare_dead(moment, at IS NULL);
    SELECT part.* INTO lost FROM {schema}.recover(most, moment) AS part;
    SELECT part.* INTO undecided FROM {schema}.expire_approvals(most, moment) AS part;
    timers := {schema}.wake_timers(most, moment);
    SELECT part.* INTO late FROM {schema}.pass_deadlines(most, moment) AS part;
    made_ready := {schema}.make_ready(most, moment);

    recovered := lost.recovered;
    poisoned := lost.poisoned;
    expired := undecided.expired;
    woken := timers || late.woken;
    failed := late.failed;
    due := cardinality(made_ready);
    more := most IN (cardinality(recovered || poisoned), cardinality(expired), cardinality(timers),
                     cardinality(failed || late.woken), due);
    next_due := {schema}.next_due();
    hints := {schema}.hints_of(
        lost.touched || undecided.touched || woken || failed || late.touched || made_ready);
END
$$;

-- Declare dead whose lease ran out. FOR UPDATE keeps claims out and looks at the row again under the lock, so that a
-- heartbeat that came first counts. Right after a start of the server nobody could have sent one: everybody gets one
-- lease from then on, or a restart would make all work doubtful at once.
CREATE FUNCTION {schema}.declare_dead(moment timestamptz, real_time boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.workers w SET state = 'dead'
    WHERE w.id IN (
        SELECT late.id FROM {schema}.workers late
        WHERE NOT late.emptied AND late.state IN ('live', 'draining') AND late.expires_at <= moment
          AND (NOT real_time OR pg_postmaster_start_time() + late.lease * interval '1 second' <= moment)
        ORDER BY late.id FOR UPDATE SKIP LOCKED);
END
$$;

-- Take back the tasks of the dead (model/worker.py's after_death()). A task that killed POISON_AFTER workers which ran
-- nothing else is set aside.
CREATE FUNCTION {schema}.recover(
    most integer, moment timestamptz, OUT recovered text[], OUT poisoned text[], OUT touched text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    lost text[] := ARRAY(
        SELECT t.id FROM {schema}.workers w JOIN {schema}.tasks t ON t.owner = w.id
        WHERE w.state = 'dead' AND NOT w.emptied
        ORDER BY t.id LIMIT most FOR NO KEY UPDATE OF t SKIP LOCKED);
    deadly text[];
BEGIN
    deadly := ARRAY(
        SELECT t.id FROM {schema}.tasks t
        WHERE t.id = ANY (lost) AND t.state IN ('running', 'review') AND t.alone AND t.lone_deaths + 1 >= 3);
    poisoned := {schema}.endable(deadly);
    recovered := ARRAY(SELECT id FROM unnest(lost) AS id WHERE NOT id = ANY (deadly) ORDER BY id);

    -- A death counts where the task was being worked on.
    UPDATE {schema}.tasks t SET deaths = t.deaths + 1, lone_deaths = t.lone_deaths + t.alone::integer
    WHERE t.id = ANY (recovered || poisoned) AND t.state IN ('running', 'review');
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

-- Of these tasks, which the caller has locked, those that can be ended without waiting: every task that would be woken
-- and every account that would be charged could be locked, too.
CREATE FUNCTION {schema}.endable(ids text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    parents text[] := {schema}.waiters(ids, '{}');
    charged text[];
BEGIN
    IF cardinality(ids) = 0 THEN
        RETURN ids;
    END IF;
    parents := ARRAY(
        SELECT t.id FROM {schema}.tasks t WHERE t.id = ANY (parents) FOR NO KEY UPDATE SKIP LOCKED);
    charged := ARRAY(
        SELECT a.account || chr(31) || a.meter FROM {schema}.accounts a
        WHERE EXISTS (
            SELECT FROM {schema}.reservations r
            WHERE r.task_id = ANY (ids) AND r.account = a.account AND r.meter = a.meter)
        FOR NO KEY UPDATE SKIP LOCKED);
    RETURN ARRAY(
        SELECT id FROM unnest(ids) WITH ORDINALITY AS wanted (id, n)
        WHERE NOT EXISTS (
            SELECT FROM {schema}.joins j WHERE j.child_id = wanted.id AND NOT j.task_id = ANY (parents))
          AND NOT EXISTS (
            SELECT FROM {schema}.reservations r
            WHERE r.task_id = wanted.id AND NOT r.account || chr(31) || r.meter = ANY (charged))
        ORDER BY n);
END
$$;

-- Fail tasks that nobody holds, each with its error, and return the ids of those that this wakes.
CREATE FUNCTION {schema}.fail(ids text[], why text, errors bytea[], moment timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(ids) = 0 THEN
        RETURN ids;
    END IF;
    INSERT INTO {schema}.transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
    SELECT t.id, t.moves + 1, t.state, 'failed', why, 'sweep', t.fence, moment
    FROM {schema}.tasks t WHERE t.id = ANY (ids);
    UPDATE {schema}.tasks t
    SET state = 'failed', finished_at = moment, moves = t.moves + 1, ready = 0, wake_at = NULL,
        updated_at = moment, revision = t.revision + 1
    WHERE t.id = ANY (ids);
    INSERT INTO {schema}.outcomes (task_id, error)
    SELECT f.id, f.error FROM unnest(ids, errors) AS f (id, error)
    ON CONFLICT (task_id) DO UPDATE SET result = NULL, error = excluded.error;
    RETURN {schema}.after_the_end(ids, 'sweep', moment);
END
$$;

-- An error as the store writes it: canonical JSON. Neither word nor number in it needs an escape.
CREATE FUNCTION {schema}.error_body(type_name text, message text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT convert_to('{"message":"' || message || '","type":"' || type_name || '"}', 'UTF8')
$$;

-- Close approvals that nobody decided in time, and wake the tasks that wait for them.
CREATE FUNCTION {schema}.expire_approvals(most integer, moment timestamptz, OUT expired text[], OUT touched text[])
LANGUAGE plpgsql AS $$
DECLARE
    late text[] := ARRAY(
        SELECT a.id FROM {schema}.approvals a JOIN {schema}.tasks t ON t.id = a.task_id
        WHERE a.state = 'open' AND a.expires_at <= moment
        ORDER BY a.expires_at, a.id LIMIT most FOR NO KEY UPDATE OF t SKIP LOCKED);
BEGIN
    -- Somebody may have decided between the look and the lock; a later statement sees that.
    WITH gone AS (
        UPDATE {schema}.approvals a SET state = 'expired', decided_at = moment
        WHERE a.id = ANY (late) AND a.state = 'open'
        RETURNING a.id, a.task_id, a.expires_at
    )
    SELECT coalesce(array_agg(id ORDER BY expires_at, id), '{}'), coalesce(array_agg(DISTINCT task_id), '{}')
    INTO expired, touched FROM gone;
    PERFORM {schema}.wake(ARRAY(
        SELECT DISTINCT w.task_id FROM {schema}.approvals a
        JOIN {schema}.waits w ON w.task_id = a.task_id AND w.kind = 'decided' AND w.approval_id = a.id
        WHERE a.id = ANY (expired)), 'decided', 'sweep', moment);
END
$$;

-- Wake tasks whose timer ran out.
CREATE FUNCTION {schema}.wake_timers(most integer, moment timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    due text[] := ARRAY(
        SELECT t.id FROM {schema}.tasks t WHERE t.wake_at <= moment
        ORDER BY t.wake_at, t.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED);
BEGIN
    PERFORM {schema}.wake(due, 'time came', 'sweep', moment);
    RETURN due;
END
$$;

-- Fail tasks whose deadline passed while nobody held them. Those that must undo their steps are woken for it instead;
-- if they are in the queue already, or undoing, there is nothing to do.
CREATE FUNCTION {schema}.pass_deadlines(
    most integer, moment timestamptz, OUT failed text[], OUT woken text[], OUT touched text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    late text[] := ARRAY(
        SELECT t.id FROM {schema}.tasks t
        WHERE t.deadline IS NOT NULL AND t.deadline <= moment AND t.owner IS NULL AND NOT t.undoing
          AND (t.state = 'waiting' OR (t.state IN ('pending', 'review') AND NOT t.must_undo))
        ORDER BY t.deadline, t.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED);
BEGIN
    woken := ARRAY(
        SELECT t.id FROM {schema}.tasks t WHERE t.id = ANY (late) AND t.must_undo ORDER BY t.deadline, t.id);
    failed := {schema}.endable(ARRAY(
        SELECT t.id FROM {schema}.tasks t WHERE t.id = ANY (late) AND NOT t.must_undo ORDER BY t.deadline, t.id));

    PERFORM {schema}.wake(woken, 'deadline passed', 'sweep', moment);
    touched := {schema}.fail(failed, 'deadline passed', ARRAY(
        SELECT {schema}.error_body('holdfast.DeadlineExceeded', format(
            'the deadline of task %s (%s) passed %s s ago, while nobody worked on it', t.id, {schema}.iso(t.deadline),
            to_char(trunc(extract(epoch FROM moment - t.deadline)::numeric, 3), 'FM999999999990.000')))
        FROM {schema}.tasks t WHERE t.id = ANY (failed) ORDER BY t.deadline, t.id), moment);
END
$$;

-- A moment as Python's isoformat() writes it in UTC.
CREATE FUNCTION {schema}.iso(moment timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', CASE
        WHEN date_trunc('second', moment AT TIME ZONE 'UTC') = moment AT TIME ZONE 'UTC' THEN 'YYYY-MM-DD"T"HH24:MI:SS'
        ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US' END) || '+00:00'
$$;

-- Let delayed tasks be claimed whose time has come. No change of the task itself, so it counts no revision.
CREATE FUNCTION {schema}.make_ready(most integer, moment timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    due text[] := ARRAY(
        SELECT t.id FROM {schema}.tasks t
        WHERE t.ready = 0 AND t.state = 'pending' AND t.owner IS NULL AND t.available_at <= moment
        ORDER BY t.available_at, t.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED);
BEGIN
    UPDATE {schema}.tasks t SET ready = {schema}.readiness(t.state, t.owner, t.available_at, t.deaths, moment)
    WHERE t.id = ANY (due);
    RETURN due;
END
$$;

-- The earliest moment known at which there will be something to sweep, apart from dead workers. Five index ends.
CREATE FUNCTION {schema}.next_due() RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    RETURN least(
        (SELECT min(t.available_at) FROM {schema}.tasks t
         WHERE t.ready = 0 AND t.state = 'pending' AND t.owner IS NULL),
        (SELECT min(t.wake_at) FROM {schema}.tasks t WHERE t.wake_at IS NOT NULL),
        (SELECT min(t.deadline) FROM {schema}.tasks t
         WHERE t.deadline IS NOT NULL AND t.owner IS NULL AND NOT t.undoing
           AND (t.state = 'waiting' OR (t.state IN ('pending', 'review') AND NOT t.must_undo))),
        (SELECT min(a.expires_at) FROM {schema}.approvals a WHERE a.state = 'open' AND a.expires_at IS NOT NULL));
END
$$;
