-- What takes the permits of tasks: claims, leases by id, and tasks that have rested. And what makes tasks claimable.
-- No worker of the version before may go on; 0027_limits.sql says why.

ALTER TYPE {schema}.new_task ADD ATTRIBUTE limits text[];

-- Submit tasks of which no two share an id or a key. Usually all of them are new and have neither key nor outcome nor
-- budget; then three tables are written and nothing else is looked at.
CREATE OR REPLACE FUNCTION {schema}.submit_distinct(wanted {schema}.new_task[], payloads bytea[], moment timestamptz)
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
        -- The submission that inserts a key first has it. A loser waits here until the winner has committed, and reads who that is
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
            schedule, parent_id, ready, rank, round, labels, limits
        )
        SELECT w.id, w.name, w.agent_id, w.state, moment,
               CASE WHEN {schema}.is_terminal(w.state) THEN moment END,
               w.queue, w.priority, w.key, coalesce(w.available_at, moment), w.deadline, w.schedule, w.parent_id,
               {schema}.readiness(w.state, NULL, coalesce(w.available_at, moment), 0, moment),
               {schema}.rank_of(coalesce(w.available_at, moment), w.priority), w.round, w.labels, w.limits
        FROM unnest(wanted) AS w
        WHERE w.key IS NULL
           OR w.id = (SELECT k.task_id FROM {schema}.task_keys k WHERE k.name = w.name AND k.key = w.key)
        ORDER BY w.id
        ON CONFLICT DO NOTHING
        RETURNING id
    )
    SELECT coalesce(array_agg(id), '{}') INTO created FROM stored;
    -- Where all are new, none has to be looked for among them.
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

    -- A prune that was under way may have taken a task or a key that an earlier statement of ours still saw. The
    -- client sends this again.
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

-- Give a task whose row is locked the input, options and time of another one; false, and no change, if it was ever claimed
-- (model/task.py's is_untouched).
CREATE OR REPLACE FUNCTION {schema}.replace_waiting(
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
    PERFORM {schema}.require_limits(lone.limits);
    IF lone.debounce_max IS NOT NULL THEN
        starts_at := least(starts_at, (
            SELECT i.created_at + lone.debounce_max FROM {schema}.inputs i WHERE i.task_id = holder.id));
    END IF;
    UPDATE {schema}.tasks t
    SET agent_id = lone.agent_id, priority = lone.priority,
        ready = {schema}.readiness('pending', NULL, starts_at, t.deaths, moment),
        rank = {schema}.rank_of(starts_at, lone.priority), available_at = starts_at, deadline = lone.deadline,
        labels = lone.labels, limits = lone.limits, waits_for = lone.limits[1],
        held = (t.held & 5) | (CASE WHEN lone.limits IS NULL THEN 0 ELSE 2 END), updated_at = moment, revision = t.revision + 1
    WHERE t.id = holder.id;
    -- Its old line looks after itself (follow_limited_task).
    IF lone.limits IS NOT NULL THEN
        PERFORM {schema}.note_key(lone.limits[1]);
    END IF;
    UPDATE {schema}.inputs i
    SET user_input = payloads[lone.input], digest = lone.input_digest, search = lone.search WHERE i.task_id = holder.id;
    UPDATE {schema}.accounts a SET ceiling = NULL WHERE a.account = holder.id;
    INSERT INTO {schema}.accounts (account, meter, ceiling)
    SELECT holder.id, b.key, b.value::bigint FROM jsonb_each_text(lone.budget) AS b
    ON CONFLICT (account, meter) DO UPDATE SET ceiling = excluded.ceiling;
    RETURN true;
END
$$;

-- Whether the line of a key has to be looked at before a claim: time has come, it was noted, or a permit came back to a key that
-- has a line. Permits that came back to others are added up by what takes such a key next, by the sweep, or, where any key has
-- a line, here once there are a hundred: so that this reads no more than a hundred.
CREATE FUNCTION {schema}.has_noted_line(moment timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM {schema}.limit_keys k WHERE k.look_at <= moment)
        OR EXISTS (SELECT FROM {schema}.limit_changes c WHERE c.change = 0)
        OR EXISTS (SELECT FROM {schema}.tasks t WHERE t.waits_for > '' AND t.ready >= 1 AND t.held = 2)
        AND coalesce((
            SELECT count(*) = 100 OR bool_or(EXISTS (
                SELECT FROM {schema}.tasks t WHERE t.waits_for = c.key AND t.ready >= 1 AND t.held = 2))
            FROM (SELECT n.key FROM {schema}.limit_changes n ORDER BY n.number LIMIT 100) AS c), false);
END
$$;

-- Let tasks out of the lines of a key that a claim serves, in place of those that it has held again because of another key. The
-- claim has locked the key. The other lines of the key are noted: another transaction looks at them, and hints their queues.
CREATE FUNCTION {schema}.promote_for_claim(
    wanted_key text, queues text[], names text[], wanted_ready smallint, moment timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    room bigint := (SELECT r.room FROM {schema}.rooms(ARRAY[wanted_key], moment) AS r);
BEGIN
    IF room > 0 THEN
        PERFORM {schema}.promote_line(wanted_key, l.queue, l.name, wanted_ready, least(room, 500), 100, moment)
        FROM {schema}.lines_of(wanted_key) AS l
        WHERE l.queue = ANY (queues) AND l.name = ANY (names) AND l.ready = wanted_ready;
    END IF;
END
$$;

-- Of tasks that a claim has chosen and locked, those that get their permits, and others instead of the rest: up to `most`, by
-- rank. A task gets all of its permits or none. One that finds a key full is held again, in the line of that key; then the
-- first of the line that it came from takes its turn, and may rank before all that come behind.
--
-- The keys of the first tasks are locked in order. Those of the tasks that are looked at instead come out of order, so they
-- are not waited for: such a task stays a candidate. The last rounds look at more and more tasks, so that a claim that could be
-- filled is filled although many candidates of a limit that was lowered stand in front.
--
-- A place of its queue is one more thing that a task needs: `limited`, `places` and `fair` are those of choose_within().
CREATE FUNCTION {schema}.admit(
    chosen text[], most integer, queues text[], names text[], wanted_ready smallint, speaks integer, at timestamptz,
    limited text[], places bigint[], fair text[]
) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    strict_rounds constant integer := 6;
    moment timestamptz := coalesce(at, clock_timestamp());
    fresh text[] := chosen;
    admitted text[] := '{}';
    left_alone text[] := '{}';
    refused text[];
    refused_by text[];
    came_from text[];
    keys text[] := '{}';
    rooms bigint[] := '{}';
    numbers bigint[];
    wanted text[];
    asked bigint[];
    candidate record;
    is_displaced boolean;
    left_in_queues bigint[] := places;
    own_queue integer;
    own_keys integer[];
    one integer;
    full_key text;
BEGIN
    FOR round IN 1 .. strict_rounds + 5 LOOP
        SELECT coalesce(array_agg(k.key), '{}'), array_agg(k.asked) INTO wanted, asked FROM (
            SELECT k.key, count(*) AS asked FROM {schema}.tasks t, unnest(t.limits) AS k (key)
            WHERE t.id = ANY (fresh) AND t.limits IS NOT NULL AND NOT k.key = ANY (keys)
            GROUP BY k.key
        ) AS k;
        IF cardinality(wanted) > 0 THEN
            IF round = 1 THEN
                IF EXISTS (
                    SELECT FROM unnest(wanted) AS w (key)
                    WHERE NOT EXISTS (SELECT FROM {schema}.limit_keys k WHERE k.key = w.key OFFSET 0)) THEN
                    -- So are perhaps those of the tasks behind: a later round cannot wait for other claims to make them.
                    fresh := {schema}.claimable(1000, queues, names, wanted_ready, speaks, moment);
                    PERFORM {schema}.make_keys(wanted || ARRAY(
                        SELECT DISTINCT k.key FROM {schema}.tasks t, unnest(t.limits) AS k (key) WHERE t.id = ANY (fresh)));
                    fresh := chosen;
                END IF;
                PERFORM {schema}.lock_keys(wanted);
            ELSE
                -- A row is made by a promotion, which waits for no other.
                PERFORM {schema}.note_key(w.key) FROM unnest(wanted) AS w (key)
                WHERE NOT EXISTS (SELECT FROM {schema}.limit_keys k WHERE k.key = w.key OFFSET 0);
                wanted := ARRAY(
                    SELECT k.key FROM {schema}.limit_keys k WHERE k.key = ANY (wanted)
                    ORDER BY k.key FOR NO KEY UPDATE SKIP LOCKED);
            END IF;
            -- A time read before a wait for a lock would be in the past, and with it the end of the permits.
            moment := coalesce(at, clock_timestamp());
            SELECT keys || array_agg(r.key), rooms || array_agg(r.room) INTO keys, rooms
            FROM {schema}.rooms(wanted, moment) AS r;
        END IF;
        -- Mostly there is room for all.
        IF round = 1 AND limited IS NULL
            AND NOT EXISTS (SELECT FROM unnest(rooms, asked) AS r (room, asked) WHERE r.room < r.asked) THEN
            IF cardinality(keys) > 0 THEN
                PERFORM {schema}.charge(keys, asked, array_fill(0::bigint, ARRAY[cardinality(keys)]), moment);
                PERFORM {schema}.look_later(keys, moment);
            END IF;
            RETURN chosen;
        END IF;

        refused := '{}';
        refused_by := '{}';
        came_from := '{}';
        is_displaced := false;
        numbers := array_fill(0::bigint, ARRAY[cardinality(keys)]);
        FOR candidate IN
            SELECT t.id, t.queue, t.limits, t.waits_for FROM {schema}.tasks t WHERE t.id = ANY (fresh)
            ORDER BY CASE WHEN fair IS NOT NULL THEN array_position(fresh, t.id) END, t.rank, t.id
        LOOP
            EXIT WHEN cardinality(admitted) = most;
            own_queue := array_position(limited, candidate.queue);
            CONTINUE WHEN left_in_queues[own_queue] <= 0;
            own_keys := '{}';
            full_key := NULL;
            IF candidate.limits IS NOT NULL THEN
                FOR i IN 1 .. cardinality(candidate.limits) LOOP
                    one := array_position(keys, candidate.limits[i]);
                    EXIT WHEN one IS NULL;
                    IF rooms[one] <= 0 THEN
                        full_key := candidate.limits[i];
                        EXIT;
                    END IF;
                    own_keys := own_keys || one;
                END LOOP;
            END IF;
            IF full_key IS NOT NULL THEN
                refused := refused || candidate.id;
                refused_by := refused_by || full_key;
                came_from := came_from || candidate.waits_for;
                is_displaced := is_displaced OR full_key <> candidate.waits_for;
            ELSIF cardinality(own_keys) < cardinality(candidate.limits) THEN
                left_alone := left_alone || candidate.id;
            ELSE
                EXIT WHEN is_displaced AND round <= strict_rounds;
                admitted := admitted || candidate.id;
                IF own_queue IS NOT NULL THEN
                    left_in_queues[own_queue] := left_in_queues[own_queue] - 1;
                END IF;
                FOREACH one IN ARRAY own_keys LOOP
                    rooms[one] := rooms[one] - 1;
                    numbers[one] := numbers[one] + 1;
                END LOOP;
            END IF;
        END LOOP;

        SELECT array_agg(c.key), array_agg(c.number) INTO wanted, asked FROM unnest(keys, numbers) AS c (key, number)
        WHERE c.number > 0;
        IF wanted IS NOT NULL THEN
            PERFORM {schema}.charge(wanted, asked, array_fill(0::bigint, ARRAY[cardinality(wanted)]), moment);
        END IF;
        IF cardinality(refused) > 0 THEN
            -- Nothing of its work has happened: no revision, no updated_at.
            UPDATE {schema}.tasks t SET held = t.held | 2, waits_for = r.key
            FROM unnest(refused, refused_by) AS r (id, key) WHERE t.id = r.id;
        END IF;
        -- What is left alone belongs to claims that are under way: it is not waited for, nor is ever more of it looked at.
        EXIT WHEN cardinality(admitted) = most OR cardinality(left_alone) > 500
            OR (cardinality(refused) = 0 AND cardinality(left_alone) = 0);
        PERFORM {schema}.promote_for_claim(r.key, queues, names, wanted_ready, moment)
        FROM (SELECT DISTINCT c.key FROM unnest(came_from, refused_by) AS c (key, full_key) WHERE c.key <> c.full_key) AS r
        WHERE r.key = ANY (keys);
        -- What was admitted is among them again: it is locked by ourselves, and as claimable as before.
        fresh := ARRAY(
            SELECT c.id
            FROM unnest({schema}.choose_within(
                least((most + 10.0 + cardinality(left_alone)) * 2 ^ round, 1000000)::integer,
                queues, names, wanted_ready, speaks, moment, limited, places, fair)) WITH ORDINALITY AS c (id, n)
            WHERE NOT c.id = ANY (admitted || left_alone) ORDER BY c.n);
        EXIT WHEN cardinality(fresh) = 0;
    END LOOP;
    PERFORM {schema}.look_later(keys, moment);
    RETURN admitted;
END
$$;

-- Take the permits of a single task whose row the caller has locked; returns the first key that has no room for it, or NULL.
CREATE FUNCTION {schema}.take_keys(keys text[], at timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz;
    full_key text;
BEGIN
    PERFORM {schema}.lock_keys(keys);
    moment := coalesce(at, clock_timestamp());
    PERFORM {schema}.settle_keys(keys, moment);
    SELECT r.key INTO full_key FROM {schema}.rooms(keys, moment) AS r
    WHERE r.room <= 0 ORDER BY r.key COLLATE "C" LIMIT 1;
    IF full_key IS NULL THEN
        PERFORM {schema}.charge(
            keys, array_fill(1::bigint, ARRAY[cardinality(keys)]), array_fill(0::bigint, ARRAY[cardinality(keys)]), moment);
        PERFORM {schema}.look_later(keys, moment);
    END IF;
    RETURN full_key;
END
$$;

-- A parameter more. Dropped, not overloaded: a call of the version before must find the new one. It finds what others let
-- out of their lines.
DROP FUNCTION {schema}.claim(text, bigint, integer, text[], text[], boolean, timestamptz, integer);

-- Lease ready tasks to a worker. A number that was used before is answered with what is still held of that claim.
--
-- `speaks` is the newest form of keys that the worker knows. A process of the version before says nothing of it: it gets
-- what has flat keys or none, and what it claims first stays flat.
--
-- Unless the caller has `promoted`, it is answered with one row that names no task where tasks of a fair queue have to get
-- their turns first (`fresh`), or a line of tasks with limits has to be looked at (`lone`). These are transactions of their
-- own: they lock queues, and keys, before tasks.
--
-- The answer is short, and the tasks themselves are read by a second statement. The server sends an answer before it
-- commits: one that does not fit into the socket of a client that has stopped reading would keep its locks for as long
-- as the client sleeps.
CREATE FUNCTION {schema}.claim(
    wanted_id text, number bigint, most integer, queues text[], names text[], wants_suspect boolean,
    at timestamptz DEFAULT NULL, speaks integer DEFAULT 1,
    promoted boolean DEFAULT true
) RETURNS TABLE (id text, fresh boolean, lone boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
-- Left to itself, the server would plan claimable() anew for each claim, which takes longer than running it.
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    worker {schema}.workers;
    moment timestamptz := coalesce(at, clock_timestamp());
    wanted_ready smallint := CASE WHEN wants_suspect THEN 2 ELSE 1 END;
    chosen text[];
    limited text[];
    places bigint[];
    fair text[];
    lacks_turns boolean;
    has_line boolean;
    open_queues text[] := {schema}.open_queues(queues);
    open_names text[] := {schema}.unpaused('task', names);
BEGIN
    -- A look without locks first. Idle workers look often; a lock, like a change, would have to reach the disk.
    SELECT w.* INTO worker FROM {schema}.workers w WHERE w.id = wanted_id;
    IF worker.state = 'live' AND number > worker.claims THEN
        IF most > 0 AND NOT promoted THEN
            lacks_turns := {schema}.lacks_turns(queues) AND worker.expires_at > moment;
            has_line := EXISTS (SELECT FROM {schema}.limits) AND {schema}.has_noted_line(moment);
            IF lacks_turns OR has_line THEN
                RETURN QUERY SELECT NULL::text, lacks_turns, has_line;
                RETURN;
            END IF;
        END IF;
        IF most <= 0 OR cardinality({schema}.claimable(1, open_queues, open_names, wanted_ready, speaks, moment)) = 0 THEN
            RETURN;
        END IF;
    END IF;
    worker := {schema}.living_worker(wanted_id, true);
    IF number <= worker.claims THEN
        RETURN QUERY
        SELECT t.id, false, t.alone FROM {schema}.tasks t
        WHERE t.owner = worker.id AND t.claim = number
        ORDER BY t.rank, t.id;
        RETURN;
    END IF;
    IF worker.state = 'draining' OR worker.expires_at <= moment THEN
        RETURN;
    END IF;
    -- Again, under the lock of the worker: a pause waits for that, so that no task is leased after it.
    open_queues := {schema}.open_queues(queues);
    open_names := {schema}.unpaused('task', names);
    SELECT array_agg(p.queue), array_agg(p.free) INTO limited, places FROM {schema}.lock_places(open_queues) AS p;
    fair := {schema}.fair_among(open_queues);
    chosen := {schema}.choose_within(
        CASE WHEN wants_suspect THEN 1 ELSE most END, open_queues, open_names, wanted_ready, speaks, moment,
        limited, places, fair);
    -- Asked for only now: a task with limits that was chosen was stored after its limit.
    IF cardinality(chosen) > 0 AND EXISTS (SELECT FROM {schema}.limits) THEN
        chosen := {schema}.admit(
            chosen, CASE WHEN wants_suspect THEN 1 ELSE most END, open_queues, open_names, wanted_ready, speaks, at,
            limited, places, fair);
    END IF;
    IF cardinality(chosen) = 0 THEN
        RETURN;
    END IF;
    IF limited IS NOT NULL THEN
        PERFORM {schema}.take_places(chosen, limited);
    END IF;
    IF fair IS NOT NULL AND NOT wants_suspect THEN
        PERFORM {schema}.go_on_to_turns(chosen, fair);
    END IF;
    UPDATE {schema}.workers w SET claims = number WHERE w.id = worker.id;

    -- One pass over the chosen. A task in review stays there, so a task that is running now was pending before.
    RETURN QUERY
    WITH leased AS (
        UPDATE {schema}.tasks t
        SET moves = t.moves + (t.state = 'pending')::integer,
            state = CASE WHEN t.state = 'pending' THEN 'running' ELSE t.state END,
            owner = worker.id, fence = t.fence + 1, sequence = 0, claim = number, alone = wants_suspect, ready = 0,
            started_at = coalesce(t.started_at, moment), updated_at = moment, revision = t.revision + 1,
            key_form = CASE WHEN t.key_form = 0 THEN speaks ELSE t.key_form END
        WHERE t.id = ANY (chosen)
        RETURNING t.id, t.rank, t.state, t.moves, t.fence, t.revision
    ), moved AS (
        INSERT INTO {schema}.transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
        SELECT l.id, l.moves, 'pending', 'running', 'claimed', worker.id, l.fence, moment
        FROM leased l WHERE l.state = 'running'
    )
    SELECT l.id, l.revision = 2, wants_suspect FROM leased l ORDER BY l.rank, l.id;
END
$$;

DROP FUNCTION {schema}.take_what_it_needs({schema}.tasks);

-- Take what a task needs to begin, or to work again, and other tasks may have: a place of its queue, and one of each of its
-- limits. All of it is taken, or nothing, and then the answer says what there is too little of. The caller has locked the
-- task's row.
CREATE FUNCTION {schema}.take_what_it_needs(t {schema}.tasks, at timestamptz) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    places bigint := (SELECT p.free FROM {schema}.lock_places(ARRAY[t.queue]) AS p);
    full_key text;
BEGIN
    IF places <= 0 THEN
        RETURN (SELECT jsonb_build_object('task_id', t.id, 'queue', s.queue, 'limit', s.concurrency)
                FROM {schema}.queue_slots s WHERE s.queue = t.queue);
    END IF;
    IF t.limits IS NOT NULL THEN
        full_key := {schema}.take_keys(t.limits, at);
        IF full_key IS NOT NULL THEN
            RETURN jsonb_build_object('task_id', t.id, 'key', full_key);
        END IF;
    END IF;
    IF places > 0 THEN
        PERFORM {schema}.take_places(ARRAY[t.id], ARRAY[t.queue]);
    END IF;
    RETURN NULL;
END
$$;

-- Lease this very task without moving it. One the worker holds already is answered as it stands.
CREATE OR REPLACE FUNCTION {schema}.acquire(
    wanted_id text, wanted_task text, at timestamptz DEFAULT NULL, speaks integer DEFAULT 1
) RETURNS TABLE (id text, fresh boolean, lone boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    worker {schema}.workers := {schema}.living_worker(wanted_id, false);
    before {schema}.tasks;
    moment timestamptz;
    pause text;
    missing jsonb;
BEGIN
    SELECT t.* INTO before FROM {schema}.tasks t WHERE t.id = wanted_task FOR NO KEY UPDATE;
    moment := coalesce(at, clock_timestamp());
    pause := {schema}.pause_of(before);
    CASE
        WHEN worker.expires_at <= moment THEN
            RAISE EXCEPTION 'the lease of worker % ran out', wanted_id USING ERRCODE = 'HF002', DETAIL = wanted_id;
        WHEN before.id IS NULL THEN
            RAISE EXCEPTION 'no task %', wanted_task USING ERRCODE = 'HF003', DETAIL = wanted_task;
        WHEN before.owner = worker.id THEN
            NULL;
        WHEN before.owner IS NOT NULL THEN
            RAISE EXCEPTION 'task % is leased', wanted_task USING ERRCODE = 'HF004', DETAIL = before.owner;
        WHEN before.finished_at IS NOT NULL THEN
            RAISE EXCEPTION 'task % has ended', wanted_task USING ERRCODE = 'HF005', DETAIL = before.state;
        WHEN pause IS NOT NULL THEN
            RAISE EXCEPTION 'task % is paused', wanted_task USING ERRCODE = 'HF008', DETAIL = pause;
        WHEN before.key_form > speaks THEN
            RAISE EXCEPTION 'task % has newer keys', wanted_task USING ERRCODE = 'HF007', DETAIL = before.key_form;
        ELSE
            missing := {schema}.take_what_it_needs(before, at);
            IF missing IS NOT NULL THEN
                RAISE EXCEPTION 'task % has to wait', wanted_task USING ERRCODE = 'HF009', DETAIL = missing::text;
            END IF;
            UPDATE {schema}.tasks t
            SET owner = worker.id, fence = t.fence + 1, sequence = 0, claim = 0, alone = false, ready = 0,
                started_at = coalesce(t.started_at, moment), updated_at = moment, revision = t.revision + 1,
                key_form = CASE WHEN t.key_form = 0 THEN speaks ELSE t.key_form END, held = t.held & ~2
            WHERE t.id = wanted_task;
    END CASE;
    RETURN QUERY
    SELECT t.id, before.revision = 1 AND before.owner IS NULL, t.alone FROM {schema}.tasks t WHERE t.id = wanted_task;
END
$$;

DROP FUNCTION {schema}.rest(text, boolean);

-- Begin or end the rest of a task. It works again only if it gets what it needs for that; otherwise its Commit is refused.
-- The rows of the queues and of the keys are locked with all else that the batch locks.
CREATE FUNCTION {schema}.rest(owner_id text, begins boolean, moment timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    before {schema}.tasks;
    missing jsonb;
BEGIN
    SELECT t.* INTO before FROM {schema}.tasks t WHERE t.id = owner_id;
    IF NOT begins AND before.resting = before.fence THEN
        missing := {schema}.take_what_it_needs(before, moment);
        IF missing IS NOT NULL THEN
            PERFORM {schema}.refuse('no_place', missing);
        END IF;
    END IF;
    UPDATE {schema}.tasks t SET resting = CASE WHEN begins THEN t.fence ELSE 0 END WHERE t.id = owner_id;
    RETURN CASE WHEN begins AND (before.is_counted OR before.limits IS NOT NULL) THEN ARRAY[owner_id] ELSE '{}' END;
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
        WHEN 'inherit_keys' THEN
            UPDATE {schema}.tasks SET key_form = (op ->> 'key_form')::integer WHERE id = owner_id AND key_form = 0;
        WHEN 'rest' THEN
            touched := {schema}.rest(owner_id, (op ->> 'resting')::boolean, moment);
        WHEN 'share_worker' THEN
            UPDATE {schema}.tasks SET alone = false, deaths = CASE WHEN (op ->> 'acquitted')::boolean THEN 0 ELSE deaths END
            WHERE id = owner_id;
        WHEN 'require_quiet' THEN PERFORM {schema}.require_quiet(op);
    END CASE;
END
$$;

-- It returns a column more.
DROP FUNCTION {schema}.commit_plain(text, text, json, json, bytea[], timestamptz);

-- Apply what can be applied of these Commits, which are of one worker and on different tasks, and return how each of
-- those tasks stands now, with the topic of its queue if others may have waited for its slot, and with the limits of those
-- that have ended: their permits are free.
CREATE FUNCTION {schema}.commit_plain(
    holder text, who text, commits json, steps json, payloads bytea[], at timestamptz DEFAULT NULL
) RETURNS TABLE (
    task_id text, revision bigint, version bigint, state text, cancel_requested text, hint text, freed text[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    staying text[];
    ends {schema}.plain_end[];
    ending text[];
    moment timestamptz;
    all_of_them boolean;
    any_limited boolean;
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    -- By id, and judged in the same breath: all that the guard looks at stands in the row that is locked, and a row that
    -- had to be waited for is looked at again as it then is. A task that is waiting might have to be woken;
    -- of one that is held, commit_batch() says whether it is paused.
    SELECT coalesce(array_agg(w.task_id) FILTER (WHERE NOT w.completes), '{}'),
           array_agg(ROW(w.task_id, w.fence, held.moves, w.reason, w.result)::{schema}.plain_end)
               FILTER (WHERE w.completes),
           bool_or(held.is_limited)
    INTO staying, ends, any_limited
    FROM (
        SELECT c.* FROM json_populate_recordset(NULL::{schema}.plain_commit, commits) AS c
        ORDER BY c.task_id COLLATE "C"
    ) AS w, LATERAL (
        SELECT t.moves, t.limits IS NOT NULL AS is_limited FROM {schema}.tasks t
        WHERE t.id = w.task_id AND t.owner = holder AND t.fence = w.fence AND t.sequence = w.sequence - 1
          AND t.held = 0
          AND CASE WHEN w.completes THEN t.state = 'running' ELSE t.state <> 'waiting' END
        FOR NO KEY UPDATE
    ) AS held;
    IF ends IS NOT NULL THEN
        ends := {schema}.with_nothing_loose(ends);
    END IF;
    ending := ARRAY(SELECT e.task_id FROM unnest(ends) AS e);
    all_of_them := cardinality(staying) + cardinality(ending) = json_array_length(commits);
    -- Only now, when no other transaction can come in between: a time read before a wait for a lock would be in the past.
    moment := coalesce(at, clock_timestamp());

    IF steps IS NOT NULL THEN
        WITH written AS (
            INSERT INTO {schema}.steps
            SELECT s.task_id, s.round, s.key, s.kind, s.position, s.state, s.attempts, s.fence, s.digest,
                   payloads[s.output], payloads[s.error], s.effect_id,
                   s.started_at, s.finished_at, s.retry_at, s.undone_at
            FROM json_populate_recordset(NULL::{schema}.plain_step, steps) AS s
            WHERE all_of_them OR s.task_id = ANY (staying || ending)
            ON CONFLICT (task_id, round, key) DO UPDATE SET
                kind = excluded.kind, position = excluded.position, state = excluded.state, attempts = excluded.attempts,
                fence = excluded.fence, digest = excluded.digest, output = excluded.output, error = excluded.error,
                effect_id = excluded.effect_id, started_at = excluded.started_at, finished_at = excluded.finished_at,
                retry_at = excluded.retry_at, undone_at = excluded.undone_at
            RETURNING task_id, round, key, kind, state, attempts
        )
        -- The feed (0034): one row for all of them.
        INSERT INTO {schema}.feed (at, entries)
        SELECT moment, json_agg(json_build_array('step.' || w.state, w.task_id, w.round, w.key, w.kind, w.attempts))
        FROM written AS w
        HAVING count(*) > 0;
    END IF;

    IF cardinality(staying) > 0 THEN
        -- Nothing that is indexed changes, so this is a HOT update.
        RETURN QUERY
        UPDATE {schema}.tasks t SET sequence = t.sequence + 1, revision = t.revision + 1, updated_at = moment
        WHERE t.id = ANY (staying)
        RETURNING t.id, t.revision, t.version, t.state, t.cancel_requested, NULL, NULL::text[];
    END IF;

    IF cardinality(ending) > 0 THEN
        INSERT INTO {schema}.transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
        SELECT e.task_id, e.moves + 1, 'running', 'completed', e.reason, who, e.fence, moment FROM unnest(ends) AS e;
        INSERT INTO {schema}.outcomes (task_id, result)
        SELECT e.task_id, payloads[e.result] FROM unnest(ends) AS e WHERE e.result IS NOT NULL;
        IF any_limited THEN
            -- All at once what follow_limited_task() would note for each.
            INSERT INTO {schema}.limit_changes (key, change)
            SELECT k.key, -1 FROM {schema}.tasks t, unnest(t.limits) AS k (key)
            WHERE t.id = ANY (ending) AND t.limits IS NOT NULL AND t.resting <> t.fence;
        END IF;
        -- A running task that a worker holds is not ready and has no timer, so that nothing else has to change.
        RETURN QUERY
        UPDATE {schema}.tasks t
        SET sequence = t.sequence + 1, revision = t.revision + 1, updated_at = moment, state = 'completed',
            finished_at = moment, moves = t.moves + 1, owner = NULL, claim = 0, alone = false, waits_for = NULL
        WHERE t.id = ANY (ending)
        RETURNING t.id, t.revision, t.version, t.state, t.cancel_requested,
            CASE WHEN t.is_counted THEN {schema}.hint_of_place(t) END, t.limits;
    END IF;
END
$$;

-- The topics to hint at when these tasks changed: each task, each queue where one of them can now be claimed, or where others
-- may have waited for its slot, and each limit of which one has no permit any more.
CREATE OR REPLACE FUNCTION {schema}.hints_of(ids text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT topic
        FROM {schema}.tasks t,
             LATERAL (VALUES ('task:' || t.id), (CASE WHEN t.ready > 0 THEN 'queue:' || t.queue END),
                             ({schema}.hint_of_place(t))) AS v (topic)
        WHERE t.id = ANY (ids) AND topic IS NOT NULL
        UNION
        SELECT 'limit:' || k.key FROM {schema}.tasks t, unnest(t.limits) AS k (key)
        WHERE t.id = ANY (ids) AND t.limits IS NOT NULL AND t.fence > 0 AND (t.owner IS NULL OR t.resting = t.fence)
    );
END
$$;

-- Lock everything, then apply one run after the other. A run is {"parts": [...], "commits": [...]}; the parts say what
-- kinds of things its Commits write, so that no statement is run for nothing.
CREATE OR REPLACE FUNCTION {schema}.apply_batch(batch jsonb, payloads bytea[], one_by_one boolean, at timestamptz) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    locks {schema}.lock_list := jsonb_populate_record(NULL::{schema}.lock_list, batch -> 'locks');
    moment timestamptz;
    planned record;
    applied record;
    answers jsonb := '[]';
    hints text[] := '{}';
BEGIN
    PERFORM {schema}.lock_tasks(locks.tasks, locks.ending, locks.emits, locks.listens, locks.accounts);
    IF cardinality(locks.wakes) > 0 THEN
        PERFORM {schema}.lock_slots(ARRAY(SELECT t.queue FROM {schema}.tasks t WHERE t.id = ANY (locks.wakes)));
    END IF;
    IF jsonb_array_length(locks.keys) > 0 THEN
        PERFORM {schema}.lock_names('key', locks.keys);
    END IF;
    IF cardinality(locks.wakes) > 0 AND EXISTS (SELECT FROM {schema}.limits) THEN
        PERFORM {schema}.lock_keys(ARRAY(
            SELECT DISTINCT k.key FROM {schema}.tasks t, unnest(t.limits) AS k (key)
            WHERE t.id = ANY (locks.wakes) AND t.limits IS NOT NULL));
    END IF;
    -- Only now, when no other transaction can come in between: a time read before a wait for a lock would be in the past.
    moment := coalesce(at, clock_timestamp());

    FOR planned IN
        SELECT r.parts, ARRAY(SELECT c FROM jsonb_populate_recordset(NULL::{schema}.commit_record, r.commits) AS c) AS run
        FROM jsonb_to_recordset(batch -> 'runs') AS r (parts text[], commits jsonb)
    LOOP
        IF one_by_one OR {schema}.ends_an_awaited_task(planned.run) THEN
            FOR i IN 1 .. cardinality(planned.run) LOOP
                applied := {schema}.apply_alone(planned.run[i], planned.parts, payloads, moment);
                answers := answers || applied.answers;
                hints := hints || applied.hints;
            END LOOP;
        ELSE
            applied := {schema}.apply_run(planned.run, planned.parts, payloads, moment);
            answers := answers || applied.answers;
            hints := hints || applied.hints;
        END IF;
    END LOOP;
    RETURN jsonb_build_object('answers', answers, 'hints', to_jsonb(hints));
END
$$;

-- The lines of a key, one for each queue, name and kind of claim. From one to the next through the index: it reads one row a
-- line, however long the lines are.
CREATE FUNCTION {schema}.lines_of(wanted_key text) RETURNS TABLE (queue text, name text, ready smallint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE lines (queue, name, ready) AS (
        (SELECT t.queue, t.name, t.ready FROM {schema}.tasks t
         WHERE t.waits_for = wanted_key AND t.ready >= 1 AND t.held = 2
         ORDER BY t.queue, t.name, t.ready LIMIT 1)
        UNION ALL
        SELECT n.queue, n.name, n.ready FROM lines l, LATERAL (
            SELECT t.queue, t.name, t.ready FROM {schema}.tasks t
            WHERE t.waits_for = wanted_key AND t.ready >= 1 AND t.held = 2
              AND (t.queue, t.name, t.ready) > (l.queue, l.name, l.ready)
            ORDER BY t.queue, t.name, t.ready LIMIT 1) AS n
    )
    SELECT l.queue, l.name, l.ready FROM lines l;
END
$$;

-- A line whose key has room; `firsts` are its first tasks, up to ten of them. `is_simple`: the key has room for no more, these
-- tasks have no other key, and none of the line is claimable yet. So they can be let out.
CREATE TYPE {schema}.open_line AS (
    key text, queue text, name text, ready smallint, room bigint, firsts text[], is_simple boolean
);

-- Make the first tasks of lines claimable: for each queue and name as many as the key has room for, less those that are
-- claimable already. It never decides: the claim does, and a candidate in a queue without workers keeps no place from others.
-- Only for keys for which something was noted, or whose time has come, and for at most `most` tasks; what is left is noted
-- again. Returns the topics to hint at.
--
-- Most keys have no line, or room for a task or two: what those need is done for all together, since a statement for each takes
-- longer than all the rest.
--
-- Keys are locked before tasks here, so neither is waited for. Nothing has to be durable: after a crash, what was noted is
-- noted still.
CREATE FUNCTION {schema}.promote(most integer, at timestamptz DEFAULT NULL) RETURNS text[]
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    moment timestamptz := coalesce(at, clock_timestamp());
    -- Claimable tasks of one line, if its key has room for so many: enough for the claims of a moment.
    enough constant bigint := 500;
    keys text[];
    with_line text[];
    lines {schema}.open_line[];
    line {schema}.open_line;
    let_out text[];
    left_over bigint;
    done record;
    short_keys text[] := '{}';
    long_keys text[] := '{}';
    hints text[];
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    PERFORM set_config('synchronous_commit', 'off', true);
    keys := ARRAY(
        (SELECT n.key FROM (
            (SELECT c.key, c.number FROM {schema}.limit_changes c WHERE c.change = 0 ORDER BY c.number LIMIT 1000)
            UNION ALL
            (SELECT c.key, c.number FROM {schema}.limit_changes c ORDER BY c.number LIMIT 1000)) AS n
         GROUP BY n.key ORDER BY min(n.number) LIMIT 500)
        UNION
        (SELECT k.key FROM {schema}.limit_keys k WHERE k.look_at <= moment ORDER BY k.look_at LIMIT 100));
    PERFORM {schema}.make_keys(keys);
    keys := ARRAY(
        SELECT k.key FROM {schema}.limit_keys k WHERE k.key = ANY (keys) ORDER BY k.key FOR NO KEY UPDATE SKIP LOCKED);
    PERFORM {schema}.settle_keys(keys, moment, true);
    hints := ARRAY(
        SELECT 'limit:' || w.key FROM unnest(keys) AS w (key)
        WHERE EXISTS (SELECT FROM {schema}.permits p WHERE p.key = w.key AND p.granted_at IS NULL OFFSET 0));
    with_line := ARRAY(
        SELECT w.key FROM unnest(keys) AS w (key)
        WHERE EXISTS (SELECT FROM {schema}.tasks t WHERE t.waits_for = w.key AND t.ready >= 1 AND t.held = 2 OFFSET 0));

    lines := ARRAY(
        SELECT ROW(r.key, l.queue, l.name, l.ready, r.room, f.firsts, f.is_simple)::{schema}.open_line
        FROM {schema}.rooms(with_line, moment) AS r, LATERAL {schema}.lines_of(r.key) AS l, LATERAL (
            SELECT coalesce(array_agg(o.id), '{}') AS firsts,
                   r.room <= 10 AND bool_and(o.has_one_key) IS NOT FALSE AND NOT EXISTS (
                       SELECT FROM {schema}.tasks t
                       WHERE t.waits_for = r.key AND t.queue = l.queue AND t.name = l.name AND t.ready = l.ready
                         AND t.ready >= 1 AND t.held = 0 AND t.waits_for IS NOT NULL OFFSET 0) AS is_simple
            FROM (
                SELECT t.id, cardinality(t.limits) = 1 AS has_one_key FROM {schema}.tasks t
                WHERE t.waits_for = r.key AND t.queue = l.queue AND t.name = l.name AND t.ready = l.ready
                  AND t.ready >= 1 AND t.held = 2 AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo)
                ORDER BY t.rank, t.id LIMIT least(r.room, 10) FOR NO KEY UPDATE SKIP LOCKED
            ) AS o
        ) AS f
        WHERE r.room > 0);
    let_out := ARRAY(SELECT f.id FROM unnest(lines) AS l, unnest(l.firsts) AS f (id) WHERE l.is_simple);
    UPDATE {schema}.tasks t SET held = t.held & ~2 WHERE t.id = ANY (let_out);
    left_over := most - cardinality(let_out);

    FOREACH line IN ARRAY lines LOOP
        IF line.is_simple THEN
            IF cardinality(line.firsts) > 0 THEN
                hints := hints || ('queue:' || line.queue);
            END IF;
            -- The others may be locked.
            IF cardinality(line.firsts) < line.room THEN
                short_keys := short_keys || line.key;
            END IF;
            CONTINUE;
        END IF;
        SELECT p.* INTO done FROM {schema}.promote_line(
            line.key, line.queue, line.name, line.ready, least(line.room, enough), left_over, moment) AS p;
        left_over := left_over - done.promoted - done.moved;
        IF done.is_short THEN
            short_keys := short_keys || line.key;
        END IF;
        IF done.is_long AND line.room > enough THEN
            long_keys := long_keys || line.key;
        END IF;
        IF done.promoted > 0 THEN
            hints := hints || ('queue:' || line.queue);
        END IF;
    END LOOP;

    -- Tasks were locked, or more than `most`: the next promotion takes them.
    PERFORM {schema}.note_key(s.key) FROM (SELECT DISTINCT unnest(short_keys)) AS s (key)
    WHERE EXISTS (
        SELECT FROM {schema}.tasks t
        WHERE t.waits_for = s.key AND t.ready >= 1 AND t.held = 2
          AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) OFFSET 0);
    UPDATE {schema}.limit_keys k SET look_at = NULL, ahead = NULL
    WHERE k.key = ANY (keys) AND (k.look_at IS NOT NULL OR k.ahead IS NOT NULL);
    UPDATE {schema}.limit_keys k SET look_at = r.look_at, ahead = CASE WHEN k.key = ANY (long_keys) THEN enough / 2 END
    FROM {schema}.rooms(with_line, moment) AS r
    WHERE k.key = r.key AND (r.look_at IS NOT NULL OR k.key = ANY (long_keys))
      AND EXISTS (SELECT FROM {schema}.tasks t WHERE t.waits_for = k.key AND t.ready >= 1 AND t.held = 2 OFFSET 0);
    RETURN ARRAY(SELECT DISTINCT h.topic FROM unnest(hints) AS h (topic));
END
$$;

-- Let tasks out of one line until the first `wanted` of those that are in it and those that are claimable already are the
-- claimable ones. A task of which another key is full moves to the line of that key, which is noted: it may have got room just
-- now. It moves only to a key that is full, so it cannot go round.
CREATE FUNCTION {schema}.promote_line(
    wanted_key text, wanted_queue text, wanted_name text, wanted_ready smallint, wanted bigint, most bigint,
    moment timestamptz, OUT promoted bigint, OUT moved bigint, OUT is_short boolean, OUT is_long boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    missing bigint;
    -- Only what ranks before this is let out: everything, until enough are claimable.
    last_rank timestamptz := 'infinity';
    last_id text := '';
    batch text[];
    others text[];
    rooms bigint[];
    candidate record;
    full_key text;
    let_out text[];
    moving text[];
    moving_to text[];
BEGIN
    promoted := 0;
    moved := 0;
    is_short := false;
    missing := wanted - (
        SELECT count(*) FROM (
            SELECT FROM {schema}.tasks t
            WHERE t.waits_for = wanted_key AND t.queue = wanted_queue AND t.name = wanted_name AND t.ready = wanted_ready
              AND t.ready >= 1 AND t.held = 0 AND t.waits_for IS NOT NULL
            LIMIT wanted) AS candidates);
    LOOP
        IF missing <= 0 AND last_rank = 'infinity' THEN
            -- Enough are claimable. What has come since and ranks before one of them takes its turn.
            SELECT t.rank, t.id INTO last_rank, last_id FROM {schema}.tasks t
            WHERE t.waits_for = wanted_key AND t.queue = wanted_queue AND t.name = wanted_name AND t.ready = wanted_ready
              AND t.ready >= 1 AND t.held = 0 AND t.waits_for IS NOT NULL
            ORDER BY t.rank DESC, t.id DESC LIMIT 1;
            EXIT WHEN NOT FOUND;
            missing := wanted;
        END IF;
        EXIT WHEN missing <= 0 OR promoted + moved >= most;
        batch := ARRAY(
            SELECT t.id FROM {schema}.tasks t
            WHERE t.waits_for = wanted_key AND t.queue = wanted_queue AND t.name = wanted_name AND t.ready = wanted_ready
              AND t.ready >= 1 AND t.held = 2 AND (t.rank, t.id) < (last_rank, last_id)
              AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo)
            ORDER BY t.rank, t.id LIMIT least(missing, most - promoted - moved) FOR NO KEY UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(batch) = 0;
        let_out := '{}';
        moving := '{}';
        moving_to := '{}';
        FOR candidate IN
            SELECT t.id, t.limits FROM {schema}.tasks t WHERE t.id = ANY (batch) ORDER BY t.rank, t.id
        LOOP
            full_key := NULL;
            IF cardinality(candidate.limits) > 1 THEN
                IF NOT candidate.limits <@ (others || wanted_key) THEN
                    SELECT array_agg(r.key), array_agg(r.room) INTO others, rooms FROM (
                        SELECT o.key, o.room FROM unnest(others, rooms) AS o (key, room)
                        UNION ALL
                        SELECT n.key, n.room FROM {schema}.rooms(ARRAY(
                            SELECT k.key FROM unnest(candidate.limits) AS k (key)
                            WHERE k.key <> wanted_key AND NOT k.key = ANY (coalesce(others, '{}'))), moment) AS n
                    ) AS r;
                END IF;
                SELECT o.key INTO full_key FROM unnest(others, rooms) AS o (key, room)
                WHERE o.room <= 0 AND o.key = ANY (candidate.limits) ORDER BY o.key COLLATE "C" LIMIT 1;
            END IF;
            IF full_key IS NULL THEN
                let_out := let_out || candidate.id;
                IF cardinality(candidate.limits) > 1 THEN
                    SELECT array_agg(o.room - (o.key = ANY (candidate.limits))::integer ORDER BY o.n) INTO rooms
                    FROM unnest(others, rooms) WITH ORDINALITY AS o (key, room, n);
                END IF;
            ELSE
                moving := moving || candidate.id;
                moving_to := moving_to || full_key;
            END IF;
        END LOOP;
        UPDATE {schema}.tasks t SET held = t.held & ~2 WHERE t.id = ANY (let_out);
        IF cardinality(moving) > 0 THEN
            UPDATE {schema}.tasks t SET waits_for = m.key FROM unnest(moving, moving_to) AS m (id, key) WHERE t.id = m.id;
            PERFORM {schema}.note_key(m.key) FROM (SELECT DISTINCT unnest(moving_to)) AS m (key);
        END IF;
        promoted := promoted + cardinality(let_out);
        missing := missing - cardinality(let_out);
        moved := moved + cardinality(moving);
        IF last_rank < 'infinity' AND cardinality(let_out) > 0 THEN
            UPDATE {schema}.tasks t SET held = t.held | 2
            WHERE t.id IN (
                SELECT l.id FROM {schema}.tasks l
                WHERE l.waits_for = wanted_key AND l.queue = wanted_queue AND l.name = wanted_name
                  AND l.ready = wanted_ready AND l.ready >= 1 AND l.held = 0 AND l.waits_for IS NOT NULL
                ORDER BY l.rank, l.id OFFSET wanted FOR NO KEY UPDATE SKIP LOCKED);
        END IF;
    END LOOP;
    is_long := EXISTS (
        SELECT FROM {schema}.tasks t
        WHERE t.waits_for = wanted_key AND t.queue = wanted_queue AND t.name = wanted_name AND t.ready = wanted_ready
          AND t.ready >= 1 AND t.held = 2 AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo));
    is_short := is_long AND missing > 0 AND last_rank = 'infinity';
END
$$;
