-- The permits of steps: taken, given back, and what is left of those of dead workers. No worker of the version before may go
-- on; 0027_limits.sql says why.

-- A step asks for permits; `n` is its position among the requests that came with it.
CREATE TYPE {schema}.permit_request AS (
    n integer, id text, task_id text, worker_id text, keys text[], tokens bigint, lasts double precision,
    valid_for double precision
);

-- The answer to a request. `again_at`: time changes nothing for it before.
CREATE TYPE {schema}.permit_answer AS (
    n integer, granted boolean, waits_for text, paused boolean, again_at timestamptz
);

-- Which of these requests have room in a key whose row the caller has locked: room for all that stand before it in the line,
-- and for itself. A request of a dead worker waits no more. Stops where the room is used up, so that it reads no more of a
-- long line than could be granted.
CREATE FUNCTION {schema}.fitting(wanted_key text, ids text[], moment timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    now record;
    waiting record;
    room bigint;
    asked bigint := 0;
    fits text[] := '{}';
BEGIN
    SELECT s.places, s.calls, s.tokens, s.is_paused OR s.closed_until IS NOT NULL AS is_shut, (s.settings).tokens AS most
    INTO now FROM {schema}.standings(ARRAY[wanted_key], moment) AS s;
    room := least(now.places, now.calls, 1000000000);
    IF now.is_shut OR room <= 0 THEN
        RETURN fits;
    END IF;
    FOR waiting IN
        SELECT p.id, p.tokens FROM {schema}.permits p
        WHERE p.key = wanted_key AND p.granted_at IS NULL
          AND EXISTS (SELECT FROM {schema}.workers w WHERE w.id = p.worker_id AND w.state <> 'dead')
        ORDER BY p.place LIMIT room
    LOOP
        asked := asked + CASE WHEN now.most IS NULL THEN 0 ELSE least(waiting.tokens, now.most) END;
        EXIT WHEN asked > now.tokens;
        IF waiting.id = ANY (ids) THEN
            fits := fits || waiting.id;
            EXIT WHEN cardinality(fits) = cardinality(ids);
        END IF;
    END LOOP;
    RETURN fits;
END
$$;

-- When a call that begins with a permit of this moment is over, even if its worker dies.
CREATE FUNCTION {schema}.end_of_call(wanted_id text, moment timestamptz, valid_for bigint) RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT moment + greatest(max(l.validity), valid_for) * interval '1 microsecond' + max(p.lasts) * interval '1 second'
        FROM {schema}.permits p JOIN {schema}.limits l ON l.name = split_part(p.key, ':', 1) WHERE p.id = wanted_id);
END
$$;

-- Of these requests, let those that were granted before begin from now on: the answer was lost, and the call counts for
-- longer. One that counts no more waits again, at its place, which is before all that came later. The caller has locked the
-- keys.
CREATE FUNCTION {schema}.renew_permits(ids text[], moment timestamptz, valid_for bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    void text[];
    one record;
BEGIN
    PERFORM FROM {schema}.permits p WHERE p.id = ANY (ids) ORDER BY p.id, p.key FOR UPDATE;
    void := ARRAY(SELECT DISTINCT p.id FROM {schema}.permits p WHERE p.id = ANY (ids) AND p.until <= moment);
    FOR one IN
        SELECT p.id, p.key, p.until, p.reserved, p.id = ANY (void) AS is_void,
               greatest(p.until, {schema}.end_of_use(moment, l.per, greatest(l.validity, valid_for), l.grain)) AS new_until
        FROM {schema}.permits p JOIN {schema}.limits l ON l.name = split_part(p.key, ':', 1)
        WHERE p.id = ANY (ids) AND p.granted_at IS NOT NULL
    LOOP
        IF one.is_void THEN
            UPDATE {schema}.limit_keys k SET taken = k.taken - 1 WHERE k.key = one.key;
            UPDATE {schema}.permits p SET granted_at = NULL, settles_at = NULL, until = NULL, reserved = 0
            WHERE p.id = one.id AND p.key = one.key;
            CONTINUE;
        END IF;
        IF one.new_until <> one.until THEN
            UPDATE {schema}.limit_uses u SET calls = u.calls - 1, tokens = u.tokens - one.reserved
            WHERE u.key = one.key AND u.until = one.until;
            DELETE FROM {schema}.limit_uses u
            WHERE u.key = one.key AND u.until = one.until AND u.calls = 0 AND u.tokens = 0;
            INSERT INTO {schema}.limit_uses AS u (key, until, calls, tokens)
            VALUES (one.key, one.new_until, 1, one.reserved)
            ON CONFLICT (key, until) DO UPDATE SET calls = u.calls + 1, tokens = u.tokens + excluded.tokens;
        END IF;
        UPDATE {schema}.permits p
        SET granted_at = moment, settles_at = {schema}.end_of_call(p.id, moment, valid_for),
            until = CASE WHEN one.until IS NOT NULL THEN one.new_until END
        WHERE p.id = one.id AND p.key = one.key;
    END LOOP;
END
$$;

-- Answer requests. The first time a request gets its places in the lines of its keys; it is granted once it has room in all
-- of them. What was granted before is answered as granted again. A step of a dead worker gets nothing.
CREATE FUNCTION {schema}.take_permits(requests json, at timestamptz DEFAULT NULL) RETURNS SETOF {schema}.permit_answer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    wanted {schema}.permit_request[] := ARRAY(
        SELECT r FROM json_populate_recordset(NULL::{schema}.permit_request, requests) AS r);
    ids text[] := ARRAY(SELECT DISTINCT w.id FROM unnest(wanted) AS w);
    -- The same id is the same request, whatever else it names now.
    keys text[] := ARRAY(
        SELECT k.key FROM unnest(wanted) AS w, unnest(w.keys) AS k (key)
        UNION SELECT p.key FROM {schema}.permits p WHERE p.id = ANY (ids));
    valid_for bigint := coalesce((SELECT max(w.valid_for) FROM unnest(wanted) AS w), 0) * 1000000;
    one text;
    moment timestamptz;
    fitting_keys text[] := '{}';
    fitting_ids text[] := '{}';
    fits text[];
    granted text[];
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    PERFORM {schema}.require_limits(keys);
    PERFORM {schema}.lock_keys(keys);
    -- A time read before a wait for a lock would be in the past, and with it the end of the permits.
    moment := coalesce(at, clock_timestamp());
    PERFORM {schema}.settle_keys(keys, moment);
    PERFORM {schema}.renew_permits(ids, moment, valid_for);

    INSERT INTO {schema}.permits (id, key, task_id, worker_id, tokens, lasts)
    SELECT w.id, k.key, w.task_id, w.worker_id, w.tokens, w.lasts
    FROM unnest(wanted) AS w, unnest(w.keys) AS k (key)
    WHERE EXISTS (SELECT FROM {schema}.workers v WHERE v.id = w.worker_id AND v.state <> 'dead')
      AND NOT EXISTS (SELECT FROM {schema}.permits p WHERE p.id = w.id)
      AND NOT EXISTS (SELECT FROM unnest(wanted) AS before WHERE before.id = w.id AND before.n < w.n)
    ORDER BY w.n, k.key COLLATE "C"
    ON CONFLICT DO NOTHING;

    FOREACH one IN ARRAY keys LOOP
        fits := {schema}.fitting(one, ids, moment);
        fitting_ids := fitting_ids || fits;
        fitting_keys := fitting_keys || array_fill(one, ARRAY[cardinality(fits)]);
    END LOOP;
    granted := ARRAY(
        SELECT p.id FROM {schema}.permits p
        WHERE p.id = ANY (ids) AND p.granted_at IS NULL
        GROUP BY p.id
        HAVING bool_and((p.id, p.key) IN (SELECT f.id, f.key FROM unnest(fitting_ids, fitting_keys) AS f (id, key))));

    IF cardinality(granted) > 0 THEN
        UPDATE {schema}.permits p
        SET granted_at = moment, settles_at = {schema}.end_of_call(p.id, moment, valid_for),
            until = {schema}.end_of_use(moment, l.per, greatest(l.validity, valid_for), l.grain),
            reserved = CASE WHEN l.tokens IS NULL THEN 0 ELSE least(p.tokens, l.tokens) END
        FROM {schema}.limits l
        WHERE p.id = ANY (granted) AND p.granted_at IS NULL AND l.name = split_part(p.key, ':', 1);
        PERFORM {schema}.charge(array_agg(c.key), array_agg(c.number), array_agg(c.reserved), moment, valid_for)
        FROM (
            SELECT p.key, count(*) AS number, sum(p.reserved)::bigint AS reserved
            FROM {schema}.permits p WHERE p.id = ANY (granted) GROUP BY p.key
        ) AS c;
        PERFORM {schema}.look_later(keys, moment);
    END IF;

    -- What keeps the others back, and when time alone makes room for this one.
    RETURN QUERY
    SELECT w.n, coalesce(h.is_granted, false),
           CASE WHEN NOT coalesce(h.is_granted, false) THEN coalesce(b.key, (SELECT min(k COLLATE "C") FROM unnest(w.keys) AS k)) END,
           coalesce(b.is_paused AND b.lives, false),
           CASE WHEN b.lives AND NOT b.is_paused THEN coalesce(b.closed_until, b.has_room_at) END
    FROM unnest(wanted) AS w
    LEFT JOIN LATERAL (
        SELECT bool_and(p.granted_at IS NOT NULL) AS is_granted FROM {schema}.permits p WHERE p.id = w.id
    ) AS h ON true
    LEFT JOIN LATERAL (
        SELECT s.key, s.is_paused, s.closed_until,
               EXISTS (SELECT FROM {schema}.workers v WHERE v.id = p.worker_id AND v.state <> 'dead') AS lives, (
            SELECT u.until FROM (
                SELECT o.until, sum(o.calls) OVER (ORDER BY o.until) AS calls, sum(o.tokens) OVER (ORDER BY o.until) AS tokens
                FROM {schema}.limit_uses o WHERE o.key = s.key AND o.until > moment
            ) AS u
            WHERE (s.calls < 1 OR s.tokens < least(p.tokens, (s.settings).tokens))
              AND (s.calls IS NULL OR u.calls >= 1 - s.calls)
              AND (s.tokens IS NULL OR u.tokens >= least(p.tokens, (s.settings).tokens) - s.tokens)
            ORDER BY u.until LIMIT 1) AS has_room_at
        FROM {schema}.permits p, {schema}.standings(ARRAY[p.key], moment) AS s
        WHERE p.id = w.id AND p.granted_at IS NULL
          AND NOT (p.id, p.key) IN (SELECT f.id, f.key FROM unnest(fitting_ids, fitting_keys) AS f (id, key))
        ORDER BY p.key LIMIT 1
    ) AS b ON true;
END
$$;

-- Give permits, or places in line, back. No key is locked: what changes is noted, and added up by the next that locks it. So
-- steps that end do not wait for steps that begin. Returns the topics of the keys, and of the queues whose tasks wait for one.
CREATE FUNCTION {schema}.return_permits(ids text[], used bigint[]) RETURNS text[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    freed text[];
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    PERFORM FROM {schema}.permits p WHERE p.id = ANY (ids) ORDER BY p.id, p.key FOR UPDATE;
    WITH gone AS (
        DELETE FROM {schema}.permits p WHERE p.id = ANY (ids) RETURNING p.id, p.key, p.granted_at, p.until, p.reserved
    ), noted AS (
        INSERT INTO {schema}.limit_changes (key, change, until, tokens)
        SELECT g.key, -1,
               CASE WHEN r.used IS NOT NULL AND l.tokens IS NOT NULL THEN g.until END,
               CASE WHEN r.used IS NOT NULL AND l.tokens IS NOT NULL AND g.until IS NOT NULL THEN r.used - g.reserved
                    ELSE 0 END
        FROM gone g
        JOIN {schema}.limits l ON l.name = split_part(g.key, ':', 1)
        LEFT JOIN LATERAL (
            SELECT max(u.used) AS used FROM unnest(ids, used) AS u (id, used) WHERE u.id = g.id
        ) AS r ON true
        WHERE g.granted_at IS NOT NULL
    )
    SELECT coalesce(array_agg(DISTINCT 'limit:' || g.key), '{}') INTO freed FROM gone g;
    RETURN freed || ARRAY(
        SELECT DISTINCT 'queue:' || l.queue
        FROM unnest(freed) AS f (topic), {schema}.lines_of(substr(f.topic, length('limit:') + 1)) AS l);
END
$$;

-- The workers that have, or wait for, permits and are dead or were never entered. From one worker to the next by index.
CREATE FUNCTION {schema}.dead_permit_holders() RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE holders (id) AS (
            (SELECT p.worker_id FROM {schema}.permits p ORDER BY p.worker_id LIMIT 1)
            UNION ALL
            SELECT n.worker_id FROM holders h, LATERAL (
                SELECT p.worker_id FROM {schema}.permits p WHERE p.worker_id > h.id ORDER BY p.worker_id LIMIT 1) AS n
        )
        SELECT h.id FROM holders h
        WHERE NOT EXISTS (SELECT FROM {schema}.workers w WHERE w.id = h.id AND w.state <> 'dead'));
END
$$;

-- Of workers that are dead, delete what waits, and free what has settled: their calls are over. Returns the topics of the keys.
CREATE FUNCTION {schema}.sweep_permits(most integer, at timestamptz DEFAULT NULL) RETURNS text[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    moment timestamptz := coalesce(at, clock_timestamp());
    dead text[] := {schema}.dead_permit_holders();
    freed text[];
BEGIN
    WITH over AS MATERIALIZED (
        SELECT p.id, p.key FROM {schema}.permits p
        WHERE p.worker_id = ANY (dead) AND (p.settles_at IS NULL OR p.settles_at <= moment)
        LIMIT most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM {schema}.permits p USING over o WHERE p.id = o.id AND p.key = o.key RETURNING p.key, p.granted_at
    ), noted AS (
        INSERT INTO {schema}.limit_changes (key, change)
        SELECT g.key, -1 FROM gone g WHERE g.granted_at IS NOT NULL
    )
    SELECT coalesce(array_agg(DISTINCT 'limit:' || g.key), '{}') INTO freed FROM gone g;
    RETURN freed;
END
$$;

-- Where the sweep has come to on its way through the keys, to delete those that are idle, and when it goes on.
CREATE TABLE {schema}.key_sweeps (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    after_key text COLLATE "C" NOT NULL DEFAULT '',
    goes_on_at timestamptz NOT NULL DEFAULT 'epoch'
);

-- Those of these keys whose rows say nothing that a missing row would not say: nothing has a permit, nothing that counts still
-- counts, and nothing waits. What looks at the key next makes the row again.
CREATE FUNCTION {schema}.idle_keys(keys text[], moment timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT k.key FROM {schema}.limit_keys k JOIN {schema}.limits l ON l.name = split_part(k.key, ':', 1)
        WHERE k.key = ANY (keys) AND l.each AND k.taken = 0 AND k.look_at IS NULL AND (k.closed_until > moment) IS NOT TRUE
          AND NOT EXISTS (SELECT FROM {schema}.limit_uses u WHERE u.key = k.key AND u.until > moment OFFSET 0)
          AND NOT EXISTS (SELECT FROM {schema}.limit_changes c WHERE c.key = k.key OFFSET 0)
          AND NOT EXISTS (SELECT FROM {schema}.permits p WHERE p.key = k.key AND p.granted_at IS NULL OFFSET 0)
          AND NOT EXISTS (SELECT FROM {schema}.tasks t WHERE t.waits_for = k.key AND t.ready >= 1 AND t.held = 2 OFFSET 0)
          AND NOT EXISTS (
              SELECT FROM {schema}.tasks t
              WHERE t.waits_for = k.key AND t.ready >= 1 AND t.held = 0 AND t.waits_for IS NOT NULL OFFSET 0));
END
$$;

-- Delete the rows of idle keys, among the next `most` keys; return how many. First a look, then the locks, then a second look.
-- It waits for no lock. A claim or a step that waits for the row of a key meanwhile makes it again (lock_keys).
CREATE FUNCTION {schema}.sweep_keys(most integer, at timestamptz DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    moment timestamptz := coalesce(at, clock_timestamp());
    looked_at text[];
    idle text[];
    deleted integer;
BEGIN
    INSERT INTO {schema}.key_sweeps DEFAULT VALUES ON CONFLICT DO NOTHING;
    looked_at := ARRAY(
        SELECT k.key FROM {schema}.limit_keys k
        WHERE k.key > (SELECT s.after_key FROM {schema}.key_sweeps s WHERE s.goes_on_at <= moment FOR NO KEY UPDATE SKIP LOCKED)
        ORDER BY k.key LIMIT most);
    idle := {schema}.idle_keys(looked_at, moment);
    idle := ARRAY(SELECT k.key FROM {schema}.limit_keys k WHERE k.key = ANY (idle) ORDER BY k.key FOR UPDATE SKIP LOCKED);
    PERFORM {schema}.settle_keys(idle, moment);
    idle := {schema}.idle_keys(idle, moment);
    DELETE FROM {schema}.limit_keys k WHERE k.key = ANY (idle);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    -- A second for each thousand keys, and a minute between two walks.
    UPDATE {schema}.key_sweeps s
    SET after_key = CASE WHEN cardinality(looked_at) < most THEN '' ELSE looked_at[most] END,
        goes_on_at = moment + CASE WHEN cardinality(looked_at) < most THEN interval '1 minute' ELSE interval '1 second' END
    WHERE s.goes_on_at <= moment;
    RETURN deleted;
END
$$;

-- What a sweep has to do for limits: whether there is anything now, and when there will be. Nothing is looked at where no
-- limit was ever set.
CREATE FUNCTION {schema}.limit_work(moment timestamptz, OUT is_due boolean, OUT next_due timestamptz)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    dead text[];
BEGIN
    is_due := false;
    IF NOT EXISTS (SELECT FROM {schema}.limits) THEN
        RETURN;
    END IF;
    dead := {schema}.dead_permit_holders();
    next_due := least(
        (SELECT k.look_at FROM {schema}.limit_keys k WHERE k.look_at IS NOT NULL ORDER BY k.look_at LIMIT 1),
        (SELECT min(coalesce(p.settles_at, moment)) FROM {schema}.permits p WHERE p.worker_id = ANY (dead)));
    is_due := coalesce(next_due <= moment, false) OR EXISTS (SELECT FROM {schema}.limit_changes)
        OR NOT EXISTS (SELECT FROM {schema}.key_sweeps s WHERE s.goes_on_at > moment);
END
$$;
