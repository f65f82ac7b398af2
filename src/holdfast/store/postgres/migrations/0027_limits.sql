-- Limits: how much all workers together may do at the same time, or in a time. See decision 0032. No worker of the version
-- before may go on: it would not look into the lines of the tasks that wait for a limit.
--
-- The order of locks: the worker, queue_slots by queue and tasks by id (a claim skips tasks that are locked, so it may lock
-- them after the slots), and after them the rows of keys, by key. A transaction
-- that holds the row of a key waits for other keys, for the rows of a request of a step, and for nothing else. Rows of keys
-- that are not there yet are inserted, sorted, before any of them is locked.

-- A number that is NULL limits nothing. Times are in microseconds: `per`, and what the model makes of it: for how long a
-- permit may be used, and to which multiple its end is rounded up (flow_limit.py's validity_of and grain_of).
CREATE TABLE {schema}.limits (
    name text COLLATE "C" PRIMARY KEY,
    concurrency bigint CHECK (concurrency >= 1),
    rate bigint CHECK (rate >= 1),
    tokens bigint CHECK (tokens >= 1),
    per bigint CHECK (per > 0),
    burst bigint NOT NULL,
    each boolean NOT NULL,
    validity bigint NOT NULL,
    grain bigint CHECK ((grain IS NULL) = (per IS NULL))
);

-- What counts against a limit: its name, or 'name:key' where it holds for each key apart.
CREATE TABLE {schema}.limit_keys (
    key text COLLATE "C" PRIMARY KEY,
    -- How many tasks and steps have a permit, apart from what limit_changes says. The rows of the tasks and of `permits` say
    -- which: this is a cache of them.
    taken bigint NOT NULL DEFAULT 0,
    -- The sums of its rows in limit_uses, including those that are over but not deleted yet.
    calls bigint NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    closed_until timestamptz,
    -- When its line has to be looked at because of the time. NULL: time changes nothing.
    look_at timestamptz,
    -- How many permits may be given before its line has to be looked at, 0 or less: it has to be. NULL: none that is given makes
    -- another task claimable.
    ahead bigint
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX limit_keys_to_look_at ON {schema}.limit_keys (look_at) WHERE look_at IS NOT NULL;

-- Changes of `taken`, and with change 0 keys whose lines have to be looked at. Rows of their own: a batch of Commits that
-- changed the keys themselves would lock them in the order of its tasks, and would wait for every claim. A transaction that
-- has locked the key adds them up and deletes them. With `until`: the row of limit_uses whose tokens are corrected.
CREATE TABLE {schema}.limit_changes (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text COLLATE "C" NOT NULL,
    change integer NOT NULL,
    until timestamptz,
    tokens bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX limit_changes_by_key ON {schema}.limit_changes (key, number);
CREATE INDEX limit_changes_to_look_at ON {schema}.limit_changes (number) WHERE change = 0;

-- What began, by the moment from which on it counts no more. Written only under the lock of its key.
CREATE TABLE {schema}.limit_uses (
    key text COLLATE "C",
    until timestamptz,
    calls bigint NOT NULL,
    tokens bigint NOT NULL,
    PRIMARY KEY (key, until)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- Requests of steps, a row for each key of each. A request's rows are inserted under the locks of all its keys: two requests
-- stand in the same order in the lines of all keys that both have.
CREATE TABLE {schema}.permits (
    id text COLLATE "C",
    key text COLLATE "C",
    place bigint GENERATED ALWAYS AS IDENTITY,
    task_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    -- As many as it asked for; `reserved` is what was counted of them when it was granted, in the row `until` of limit_uses.
    tokens bigint NOT NULL,
    lasts double precision NOT NULL,
    granted_at timestamptz,
    until timestamptz,
    reserved bigint NOT NULL DEFAULT 0,
    -- From then on its call is over, even if its worker died.
    settles_at timestamptz,
    PRIMARY KEY (id, key),
    CHECK ((granted_at IS NULL) = (settles_at IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX permits_in_line ON {schema}.permits (key, place) WHERE granted_at IS NULL;
CREATE INDEX permits_by_worker ON {schema}.permits (worker_id, id, key);

-- The sorted keys of a task's limits, NULL for the many without; and the key in whose line it waits, or waited last.
ALTER TABLE {schema}.tasks ADD COLUMN limits text[], ADD COLUMN waits_for text COLLATE "C";

-- A task with limits that is not at work is held: bit 2 of `held`. The lines, in the order in which tasks are let out; and
-- those that were let out and not claimed yet: candidates. Suspects have lines of their own, as only an idle worker takes one.
CREATE INDEX tasks_in_line ON {schema}.tasks (waits_for, queue, name, ready, rank, id) WHERE ready >= 1 AND held = 2;
CREATE INDEX tasks_let_out ON {schema}.tasks (waits_for, queue, name, ready, rank, id)
    WHERE ready >= 1 AND held = 0 AND waits_for IS NOT NULL;
-- The pending ones in the lines, for a list of what comes next in a queue, whatever they wait for. The condition on the state
-- also keeps the planner from this index where one line is asked for in the order of rank.
CREATE INDEX tasks_kept_back ON {schema}.tasks (queue, rank, id) WHERE ready >= 1 AND held = 2 AND state = 'pending';

-- A task as the model shows it, with two columns more at its end.
CREATE OR REPLACE VIEW {schema}.shown_tasks AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       i.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form,
       t.owner IS NOT NULL AND t.resting = t.fence AS resting, t.labels, t.limits,
       CASE WHEN t.finished_at IS NULL THEN t.waits_for END AS waits_for
FROM {schema}.tasks t
JOIN {schema}.inputs i ON i.task_id = t.id
LEFT JOIN {schema}.outcomes o ON o.task_id = t.id;

-- Refuse keys of no limit, and those that have not the form that their limit asks for (flow_limit.py's allows). No lock: a
-- limit never goes, and `each` never changes.
CREATE FUNCTION {schema}.require_limits(keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    one text;
    known record;
BEGIN
    FOREACH one IN ARRAY coalesce(keys, '{}') LOOP
        SELECT l.name, l.each INTO known FROM {schema}.limits l WHERE l.name = split_part(one, ':', 1);
        IF (known.each AND length(one) <= length(known.name) + 1)
            OR (known.each IS NOT TRUE AND one IS DISTINCT FROM known.name) THEN
            PERFORM {schema}.refuse('limit', jsonb_build_object('key', one, 'each', known.each));
        END IF;
    END LOOP;
END
$$;

-- Note that the line of a key has to be looked at. Once in a transaction is enough: as long as the row is there and is ours,
-- no other transaction has seen it.
CREATE FUNCTION {schema}.note_key(wanted text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT c.xmin FROM {schema}.limit_changes c WHERE c.key = wanted ORDER BY c.number DESC LIMIT 1)
        IS DISTINCT FROM pg_current_xact_id()::xid THEN
        INSERT INTO {schema}.limit_changes (key, change) VALUES (wanted, 0);
    END IF;
END
$$;

-- Whether a task that comes may be left to the claims at once: its key has room, as far as can be seen without a lock, no task
-- stands in the line of the key, and few others can be claimed already. It need not be right: a claim decides, and holds again
-- what it has no room for. The number is how many such tasks a key can put in the way of claims. (What a rate allows again is
-- not looked for: the task waits in the line until a promotion does.)
CREATE FUNCTION {schema}.is_open(wanted text, moment timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM {schema}.limits l LEFT JOIN {schema}.limit_keys k ON k.key = wanted
        WHERE l.name = split_part(wanted, ':', 1)
          AND (l.concurrency > coalesce(k.taken, 0) + (
              SELECT coalesce(sum(c.change), 0) FROM {schema}.limit_changes c WHERE c.key = wanted)) IS NOT FALSE
          AND (l.rate + l.burst > k.calls) IS NOT FALSE AND (k.closed_until > moment) IS NOT TRUE
          AND NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.subject IN ('limit:' || wanted, 'limit:' || l.name))
          AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.waits_for = wanted AND t.ready >= 1 AND t.held = 2)
          AND NOT EXISTS (
              SELECT FROM {schema}.tasks t
              WHERE t.waits_for = wanted AND t.ready >= 1 AND t.held = 0 AND t.waits_for IS NOT NULL OFFSET 15));
END
$$;

-- A task with limits is stored: it stands in the line of its first key, unless it can be claimed at once.
CREATE FUNCTION {schema}.enter_line() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.finished_at IS NULL THEN
        NEW.waits_for := NEW.limits[1];
        IF NEW.ready = 0 OR cardinality(NEW.limits) > 1 OR NOT {schema}.is_open(NEW.waits_for, NEW.updated_at) THEN
            NEW.held := NEW.held | 2;
        END IF;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER limited_task_enters_a_line BEFORE INSERT ON {schema}.tasks
    FOR EACH ROW WHEN (NEW.limits IS NOT NULL) EXECUTE FUNCTION {schema}.enter_line();

-- Only once it is certain that it was not stored before: its limits have to be there, and its line is to be looked at. So are
-- keys without a row, which gets it from whatever looks at it first: inserted here, two submissions could wait for each other.
CREATE FUNCTION {schema}.note_limited_task() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.require_limits(NEW.limits);
    IF NEW.held & 2 = 2 THEN
        PERFORM {schema}.note_key(w.key) FROM unnest(NEW.limits) AS w (key)
        WHERE w.key = NEW.waits_for AND NEW.ready >= 1
           OR NOT EXISTS (SELECT FROM {schema}.limit_keys k WHERE k.key = w.key OFFSET 0);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER limited_task_is_stored AFTER INSERT ON {schema}.tasks
    FOR EACH ROW WHEN (NEW.limits IS NOT NULL) EXECUTE FUNCTION {schema}.note_limited_task();

-- Whatever happens to a task with limits: it gives its permits back, it comes into a line or is due there, or it is a
-- candidate no more, so that another one can be let out instead. AFTER, with a statement of its own for the few tasks that
-- it concerns: a trigger BEFORE an update would have the server lock the row of every task first, for each of its steps.
-- A claim, an acquire and a task that has rested take their permits themselves.
CREATE FUNCTION {schema}.follow_limited_task() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    was_candidate boolean := OLD.limits IS NOT NULL AND OLD.ready >= 1 AND OLD.held = 0;
    is_candidate boolean := NEW.limits IS NOT NULL AND NEW.ready >= 1 AND NEW.held = 0;
BEGIN
    IF pg_trigger_depth() > 1 THEN  -- the updates below
        RETURN NULL;
    END IF;
    IF OLD.owner IS NOT NULL AND OLD.resting <> OLD.fence AND (NEW.owner IS NULL OR NEW.resting = NEW.fence) THEN
        INSERT INTO {schema}.limit_changes (key, change) SELECT k.key, -1 FROM unnest(OLD.limits) AS k (key);
    END IF;

    IF NEW.limits IS NOT NULL AND NEW.owner IS NULL AND NEW.finished_at IS NULL THEN
        IF OLD.owner IS NOT NULL OR OLD.finished_at IS NOT NULL THEN
            UPDATE {schema}.tasks t SET held = t.held | 2, waits_for = t.limits[1] WHERE t.id = NEW.id;
            IF NEW.ready >= 1 AND NEW.held & 1 = 0 THEN
                PERFORM {schema}.note_key(NEW.limits[1]);
            END IF;
        ELSIF NEW.ready = 0 AND NEW.held & 2 = 0 THEN  -- a candidate that was put off
            UPDATE {schema}.tasks t SET held = t.held | 2 WHERE t.id = NEW.id;
        ELSIF NEW.ready >= 1 AND NEW.held = 2
            -- It is due, it is paused no more, or it has another place in the line. What a claim holds again is none of it.
            AND (OLD.ready = 0 OR OLD.held = 3
                 OR (OLD.rank, OLD.deadline, OLD.must_undo) IS DISTINCT FROM (NEW.rank, NEW.deadline, NEW.must_undo)) THEN
            PERFORM {schema}.note_key(NEW.waits_for);
        END IF;
    END IF;

    -- Not where a claim found this very key full.
    IF was_candidate AND NEW.owner IS NULL AND NOT is_candidate
        AND (NEW.held & 2 = 0 OR NEW.waits_for IS DISTINCT FROM OLD.waits_for) THEN
        PERFORM {schema}.note_key(OLD.waits_for);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER limited_task_is_moved
    AFTER UPDATE OF owner, finished_at, ready, held, resting, limits, rank, deadline, must_undo ON {schema}.tasks
    FOR EACH ROW
    WHEN ((OLD.limits IS NOT NULL OR NEW.limits IS NOT NULL)
          -- There is nothing to do where it begins, where it is let out, and where the statement that ends it has noted its
          -- permits (commit_plain).
          AND NOT (OLD.owner IS NULL AND (NEW.owner IS NOT NULL OR OLD.held = 2 AND NEW.held = 0))
          AND NOT (NEW.finished_at IS NOT NULL AND NEW.waits_for IS NULL AND OLD.waits_for IS NOT NULL)
          AND (OLD.owner, OLD.finished_at, OLD.ready, OLD.held, OLD.resting, OLD.limits, OLD.rank, OLD.deadline, OLD.must_undo)
              IS DISTINCT FROM
              (NEW.owner, NEW.finished_at, NEW.ready, NEW.held, NEW.resting, NEW.limits, NEW.rank, NEW.deadline, NEW.must_undo))
    EXECUTE FUNCTION {schema}.follow_limited_task();

-- From which moment on a permit that is given at `moment` counts no more.
CREATE FUNCTION {schema}.end_of_use(moment timestamptz, per bigint, validity bigint, grain bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT timestamptz 'epoch' + interval '1 microsecond'
        * ((((extract(epoch FROM moment) * 1000000)::bigint + validity + per + grain - 1) / grain) * grain)
$$;

-- Make the rows of these keys that are missing. The caller has locked no key.
CREATE FUNCTION {schema}.make_keys(keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.limit_keys (key)
    SELECT w.key FROM unnest(keys) AS w (key)
    WHERE NOT EXISTS (SELECT FROM {schema}.limit_keys k WHERE k.key = w.key OFFSET 0)
    ORDER BY w.key COLLATE "C"
    ON CONFLICT DO NOTHING;
END
$$;

-- Lock the rows of these keys, in order, and make those that are missing. The sweep may delete one in between.
CREATE FUNCTION {schema}.lock_keys(keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        PERFORM {schema}.make_keys(keys);
        PERFORM FROM {schema}.limit_keys k WHERE k.key = ANY (keys) ORDER BY k.key FOR NO KEY UPDATE;
        EXIT WHEN NOT EXISTS (
            SELECT FROM unnest(keys) AS w (key)
            WHERE NOT EXISTS (SELECT FROM {schema}.limit_keys k WHERE k.key = w.key OFFSET 0));
    END LOOP;
END
$$;

-- Bring the rows of these keys, which the caller has locked, up to date. A caller that `looks` at their lines then deletes what is
-- noted for that, too. Any other one has the lines looked at whose keys got permits back: nothing else says so any more.
CREATE FUNCTION {schema}.settle_keys(keys text[], moment timestamptz, looks boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    freed text[];
BEGIN
    WITH gone AS (
        DELETE FROM {schema}.limit_changes c WHERE c.key = ANY (keys) AND (looks OR c.change <> 0)
        RETURNING c.key, c.change, c.until, c.tokens
    ), corrected AS (
        -- A row that is over corrects nothing.
        UPDATE {schema}.limit_uses u SET tokens = u.tokens + g.tokens
        FROM (SELECT o.key, o.until, sum(o.tokens)::bigint AS tokens FROM gone o
              WHERE o.until IS NOT NULL GROUP BY o.key, o.until) AS g
        WHERE u.key = g.key AND u.until = g.until
        RETURNING u.key, g.tokens
    ), summed AS (
        SELECT a.key, sum(a.change)::bigint AS change, sum(a.tokens)::bigint AS tokens
        FROM (SELECT g.key, g.change, 0::bigint AS tokens FROM gone g
              UNION ALL SELECT c.key, 0, c.tokens FROM corrected c) AS a
        GROUP BY a.key
    ), settled AS (
        UPDATE {schema}.limit_keys k SET taken = k.taken + s.change, tokens = k.tokens + s.tokens
        FROM summed s WHERE k.key = s.key AND (s.change <> 0 OR s.tokens <> 0)
    )
    SELECT array_agg(s.key) INTO freed FROM summed s;
    IF freed IS NOT NULL AND NOT looks THEN
        PERFORM {schema}.note_those_with_lines(freed);
    END IF;

    WITH over AS (
        DELETE FROM {schema}.limit_uses u WHERE u.key = ANY (keys) AND u.until <= moment RETURNING u.key, u.calls, u.tokens
    )
    UPDATE {schema}.limit_keys k SET calls = k.calls - s.calls, tokens = k.tokens - s.tokens
    FROM (SELECT o.key, sum(o.calls)::bigint AS calls, sum(o.tokens)::bigint AS tokens FROM over o GROUP BY o.key) AS s
    WHERE k.key = s.key;
END
$$;

-- Have the lines of those of these keys looked at that have one.
CREATE FUNCTION {schema}.note_those_with_lines(keys text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {schema}.tasks t WHERE t.waits_for > '' AND t.ready >= 1 AND t.held = 2) THEN
        PERFORM {schema}.note_key(w.key) FROM unnest(keys) AS w (key)
        WHERE EXISTS (SELECT FROM {schema}.tasks t WHERE t.waits_for = w.key AND t.ready >= 1 AND t.held = 2 OFFSET 0);
    END IF;
END
$$;

-- How keys stand, whether they are locked and up to date or not: what is left of places, calls and tokens (NULL: any number,
-- below 0: more than there may be), what keeps everything back, and when the first calls count no more.
CREATE FUNCTION {schema}.standings(keys text[], moment timestamptz) RETURNS TABLE (
    key text, places bigint, calls bigint, tokens bigint, is_paused boolean, closed_until timestamptz,
    calls_end timestamptz, settings {schema}.limits
)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT w.key,
           l.concurrency - coalesce(k.taken, 0)
               - (SELECT coalesce(sum(c.change), 0)::bigint FROM {schema}.limit_changes c WHERE c.key = w.key),
           l.rate + l.burst - coalesce(k.calls, 0) + o.calls,
           l.tokens - coalesce(k.tokens, 0) + o.tokens,
           EXISTS (SELECT FROM {schema}.pauses p WHERE p.subject IN ('limit:' || w.key, 'limit:' || l.name)),
           CASE WHEN k.closed_until > moment THEN k.closed_until END,
           CASE WHEN l.rate IS NOT NULL THEN (
               SELECT u.until FROM {schema}.limit_uses u
               WHERE u.key = w.key AND u.until > moment AND u.calls > 0 ORDER BY u.until LIMIT 1) END,
           l
    FROM unnest(keys) AS w (key)
    JOIN {schema}.limits l ON l.name = split_part(w.key, ':', 1)
    LEFT JOIN {schema}.limit_keys k ON k.key = w.key,
    LATERAL (
        SELECT coalesce(sum(u.calls), 0)::bigint AS calls, coalesce(sum(u.tokens), 0)::bigint AS tokens
        FROM {schema}.limit_uses u WHERE u.key = w.key AND u.until <= moment
    ) AS o;
END
$$;

-- For how many tasks each key has room, in the order of the keys, and when time may change that. Where all places are taken,
-- one that is given back is noted, so that no time has to be waited for. As in standings(), but nothing is read that a limit
-- does not ask for: a claim asks for a hundred keys at once.
CREATE FUNCTION {schema}.rooms(keys text[], moment timestamptz)
RETURNS TABLE (key text, room bigint, look_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    any_paused boolean := EXISTS (
        SELECT FROM {schema}.pauses p WHERE p.subject > 'limit:' AND p.subject < 'limit;');
BEGIN
    RETURN QUERY
    SELECT w.key,
           CASE WHEN b.is_paused OR k.closed_until > moment THEN 0
                ELSE greatest(least(b.places, b.calls, 1000000000), 0) END,
           CASE WHEN b.is_paused THEN NULL WHEN k.closed_until > moment THEN k.closed_until
                WHEN l.rate IS NOT NULL AND (b.places IS NULL OR b.places > 0) THEN (
                    SELECT u.until FROM {schema}.limit_uses u
                    WHERE u.key = w.key AND u.until > moment AND u.calls > 0 ORDER BY u.until LIMIT 1) END
    FROM unnest(keys) WITH ORDINALITY AS w (key, n)
    JOIN {schema}.limits l ON l.name = split_part(w.key, ':', 1)
    LEFT JOIN {schema}.limit_keys k ON k.key = w.key,
    LATERAL (
        SELECT CASE WHEN l.concurrency IS NOT NULL THEN l.concurrency - coalesce(k.taken, 0) - (
                   SELECT coalesce(sum(c.change), 0)::bigint FROM {schema}.limit_changes c WHERE c.key = w.key) END AS places,
               CASE WHEN l.rate IS NOT NULL THEN l.rate + l.burst - coalesce(k.calls, 0) + (
                   SELECT coalesce(sum(u.calls), 0)::bigint FROM {schema}.limit_uses u
                   WHERE u.key = w.key AND u.until <= moment) END AS calls,
               any_paused AND EXISTS (
                   SELECT FROM {schema}.pauses p WHERE p.subject IN ('limit:' || w.key, 'limit:' || l.name)) AS is_paused
        OFFSET 0
    ) AS b
    ORDER BY w.n;
END
$$;

-- Count permits that are given at `moment`, with these numbers of tokens, for keys whose rows the caller has locked. They may
-- be used for `valid_for` microseconds, if that is longer than usual. With them what was noted of permits that came back is
-- added up: so the row of a key is written once.
CREATE FUNCTION {schema}.charge(
    keys text[], numbers bigint[], used bigint[], moment timestamptz, valid_for bigint DEFAULT 0
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    freed text[];
    looked_at_again text[];
BEGIN
    IF EXISTS (SELECT FROM {schema}.limits l WHERE l.per IS NOT NULL) THEN
        PERFORM {schema}.settle_keys(keys, moment);
        INSERT INTO {schema}.limit_uses AS u (key, until, calls, tokens)
        SELECT c.key, {schema}.end_of_use(moment, l.per, greatest(l.validity, valid_for), l.grain), c.number, c.used
        FROM unnest(keys, numbers, used) AS c (key, number, used)
        JOIN {schema}.limits l ON l.name = split_part(c.key, ':', 1)
        WHERE c.number > 0 AND l.per IS NOT NULL
        ON CONFLICT (key, until) DO UPDATE SET calls = u.calls + excluded.calls, tokens = u.tokens + excluded.tokens;
    END IF;

    WITH gone AS (
        DELETE FROM {schema}.limit_changes c WHERE c.key = ANY (keys) AND c.change <> 0 AND c.until IS NULL
        RETURNING c.key, c.change
    ), summed AS (
        SELECT a.key, sum(a.number)::bigint AS number, sum(a.change)::bigint AS change, sum(a.used)::bigint AS used
        FROM (SELECT c.key, c.number, 0 AS change, c.used FROM unnest(keys, numbers, used) AS c (key, number, used)
              UNION ALL SELECT g.key, 0, g.change, 0 FROM gone g) AS a
        GROUP BY a.key
    ), charged AS (
        UPDATE {schema}.limit_keys k
        SET taken = k.taken + s.number + s.change, ahead = k.ahead - s.number,
            calls = k.calls + CASE WHEN l.per IS NULL THEN 0 ELSE s.number END,
            tokens = k.tokens + CASE WHEN l.per IS NULL THEN 0 ELSE s.used END
        FROM summed s JOIN {schema}.limits l ON l.name = split_part(s.key, ':', 1)
        WHERE k.key = s.key AND (s.number > 0 OR s.change <> 0)
        RETURNING k.key, k.ahead
    )
    SELECT (SELECT array_agg(DISTINCT g.key) FROM gone g), (SELECT array_agg(c.key) FROM charged c WHERE c.ahead <= 0)
    INTO freed, looked_at_again;
    IF freed IS NOT NULL THEN
        PERFORM {schema}.note_those_with_lines(freed);
    END IF;
    IF looked_at_again IS NOT NULL THEN
        PERFORM {schema}.note_key(w.key) FROM unnest(looked_at_again) AS w (key);
    END IF;
END
$$;

-- Have the lines of these keys, whose rows the caller has locked, looked at when time gives them room.
CREATE FUNCTION {schema}.look_later(keys text[], moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    timed text[] := ARRAY(
        SELECT k.key FROM {schema}.limit_keys k JOIN {schema}.limits l ON l.name = split_part(k.key, ':', 1)
        WHERE k.key = ANY (keys) AND (l.rate IS NOT NULL OR k.closed_until > moment));
BEGIN
    IF cardinality(timed) = 0 THEN
        RETURN;
    END IF;
    timed := ARRAY(
        SELECT w.key FROM unnest(timed) AS w (key)
        WHERE EXISTS (SELECT FROM {schema}.tasks t WHERE t.waits_for = w.key AND t.ready >= 1 AND t.held = 2 OFFSET 0));
    IF cardinality(timed) > 0 THEN
        UPDATE {schema}.limit_keys k SET look_at = r.look_at
        FROM {schema}.rooms(timed, moment) AS r
        WHERE k.key = r.key AND (k.look_at IS NULL OR k.look_at > r.look_at);
    END IF;
END
$$;

-- Have everything looked at that waits for a key from one to another, and return the topics to hint at. The caller has locked
-- the table of keys: no promotion that has not seen what it changes is under way, and a task that enters a line meanwhile
-- notes its key itself.
CREATE FUNCTION {schema}.note_lines(first_key text, last_key text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    keys text[] := ARRAY(
        WITH RECURSIVE lines (key) AS (
            (SELECT t.waits_for FROM {schema}.tasks t
             WHERE t.ready >= 1 AND t.held = 2 AND t.waits_for BETWEEN first_key AND last_key
             ORDER BY t.waits_for LIMIT 1)
            UNION ALL
            SELECT n.waits_for FROM lines l, LATERAL (
                SELECT t.waits_for FROM {schema}.tasks t
                WHERE t.ready >= 1 AND t.held = 2 AND t.waits_for > l.key AND t.waits_for <= last_key
                ORDER BY t.waits_for LIMIT 1) AS n
        )
        SELECT l.key FROM lines l);
    topics text[];
BEGIN
    PERFORM {schema}.note_key(k.key) FROM unnest(keys) AS k (key);
    topics := ARRAY(
        WITH RECURSIVE queues (key, name) AS (
            SELECT k.key, f.queue FROM unnest(keys[1:100]) AS k (key), LATERAL (
                SELECT t.queue FROM {schema}.tasks t
                WHERE t.waits_for = k.key AND t.ready >= 1 AND t.held = 2 ORDER BY t.queue LIMIT 1) AS f
            UNION ALL
            SELECT q.key, n.queue FROM queues q, LATERAL (
                SELECT t.queue FROM {schema}.tasks t
                WHERE t.waits_for = q.key AND t.ready >= 1 AND t.held = 2 AND t.queue > q.name
                ORDER BY t.queue LIMIT 1) AS n
        )
        SELECT DISTINCT 'queue:' || q.name FROM queues q
        UNION ALL
        SELECT DISTINCT 'limit:' || p.key FROM {schema}.permits p
        WHERE p.granted_at IS NULL AND p.key BETWEEN first_key AND last_key
        LIMIT 100);
    RETURN topics || CASE WHEN cardinality(keys) > 100 OR cardinality(topics) = 100 THEN '{*}'::text[] ELSE '{}' END;
END
$$;

-- Set a limit as a whole; returns the topics to hint at, NULL where it was so already. The lock waits for everything that
-- takes permits, or looks at lines, by the old settings: when this has been committed, all obey.
CREATE FUNCTION {schema}.set_limit(
    wanted text, concurrency bigint, rate bigint, tokens bigint, per bigint, burst bigint, each boolean, validity bigint,
    grain bigint
) RETURNS text[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_variable
DECLARE
    given {schema}.limits := ROW(wanted, concurrency, rate, tokens, per, burst, each, validity, grain);
    known {schema}.limits;
BEGIN
    SELECT l.* INTO known FROM {schema}.limits l WHERE l.name = wanted;
    IF known IS NOT DISTINCT FROM given THEN
        RETURN NULL;
    END IF;
    LOCK TABLE {schema}.limit_keys IN EXCLUSIVE MODE;
    SELECT l.* INTO known FROM {schema}.limits l WHERE l.name = wanted;
    IF known IS NOT DISTINCT FROM given THEN
        RETURN NULL;
    END IF;
    IF known.each <> given.each THEN
        RAISE EXCEPTION 'limit % has its keys', wanted USING ERRCODE = 'HF010', DETAIL = known.each;
    END IF;
    IF known.name IS NULL THEN
        INSERT INTO {schema}.limits SELECT given.*;
        IF NOT given.each THEN
            INSERT INTO {schema}.limit_keys (key) VALUES (wanted) ON CONFLICT DO NOTHING;
        END IF;
    ELSE
        UPDATE {schema}.limits l
        SET concurrency = given.concurrency, rate = given.rate, tokens = given.tokens, per = given.per,
            burst = given.burst, validity = given.validity, grain = given.grain
        WHERE l.name = wanted;
    END IF;
    RETURN {schema}.note_lines(wanted, wanted) || {schema}.note_lines(wanted || ':', wanted || ';');
END
$$;

-- Pause a limit with all its keys ('limit:tenant'), or one key ('limit:tenant:acme'), or answer the pause that is there. The
-- lock waits as in set_limit().
CREATE FUNCTION {schema}.pause_limit(wanted text, who text, why text, at timestamptz DEFAULT NULL)
RETURNS SETOF {schema}.pauses
LANGUAGE plpgsql AS $$
DECLARE
    wanted_key text := substr(wanted, length('limit:') + 1);
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.limits l WHERE l.name = wanted_key) THEN
        PERFORM {schema}.require_limits(ARRAY[wanted_key]);
    END IF;
    LOCK TABLE {schema}.limit_keys IN EXCLUSIVE MODE;
    INSERT INTO {schema}.pauses (subject, at, by, reason)
    VALUES (wanted, coalesce(pause_limit.at, clock_timestamp()), who, why)
    ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT p.* FROM {schema}.pauses p WHERE p.subject = wanted;
END
$$;

-- Returns the topics to hint at; NULL where there was no pause.
CREATE FUNCTION {schema}.unpause_limit(wanted text) RETURNS text[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wanted_key text := substr(wanted, length('limit:') + 1);
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.subject = wanted) THEN
        RETURN NULL;
    END IF;
    LOCK TABLE {schema}.limit_keys IN EXCLUSIVE MODE;
    DELETE FROM {schema}.pauses p WHERE p.subject = wanted;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN {schema}.note_lines(wanted_key, wanted_key) || CASE
        WHEN strpos(wanted_key, ':') = 0 THEN {schema}.note_lines(wanted_key || ':', wanted_key || ';') END;
END
$$;

-- Begin nothing with these keys before a time. An earlier time changes nothing.
CREATE FUNCTION {schema}.close_limit(keys text[], until timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    PERFORM {schema}.require_limits(keys);
    PERFORM {schema}.lock_keys(keys);
    UPDATE {schema}.limit_keys k SET closed_until = close_limit.until
    WHERE k.key = ANY (keys) AND (k.closed_until IS NULL OR k.closed_until < close_limit.until);
END
$$;
