-- Workers and their leases. A worker's row is locked before any task, by everybody.
--
-- Errors that the client knows by their code: HF002 the worker is not alive, HF003 no such task, HF004 somebody else
-- holds it (DETAIL names the owner), HF005 it has ended (DETAIL names the state).

-- Enter a worker, or answer the one that is there under this id.
CREATE FUNCTION {schema}.register(
    wanted_id text, label text, lease double precision, details bytea, at timestamptz DEFAULT NULL
) RETURNS SETOF {schema}.workers
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := coalesce(at, clock_timestamp());
BEGIN
    INSERT INTO {schema}.workers (id, label, lease, state, details, started_at, seen_at, expires_at)
    VALUES (wanted_id, label, lease, 'live', details, moment, moment, moment + lease * interval '1 second')
    ON CONFLICT (id) DO NOTHING;
    RETURN QUERY SELECT w.* FROM {schema}.workers w WHERE w.id = wanted_id;
END
$$;

-- Lock the worker's row so that it cannot be declared dead before this transaction ends, and return it; HF002 where
-- it is dead already. A claim writes the row too and locks it for that at once.
CREATE FUNCTION {schema}.living_worker(wanted_id text, to_write boolean) RETURNS {schema}.workers
LANGUAGE plpgsql AS $$
DECLARE
    worker {schema}.workers;
BEGIN
    IF to_write THEN
        SELECT w.* INTO worker FROM {schema}.workers w WHERE w.id = wanted_id FOR NO KEY UPDATE;
    ELSE
        SELECT w.* INTO worker FROM {schema}.workers w WHERE w.id = wanted_id FOR KEY SHARE;
    END IF;
    IF worker.id IS NULL OR worker.state = 'dead' THEN
        RAISE EXCEPTION 'worker % is not alive', wanted_id USING ERRCODE = 'HF002', DETAIL = wanted_id;
    END IF;
    RETURN worker;
END
$$;

-- Renew a lease. Also of a worker that is late, as long as nobody has declared it dead: dead is final.
CREATE FUNCTION {schema}.heartbeat(
    wanted_id text, at timestamptz DEFAULT NULL, OUT cancel_requested text[], OUT suspects boolean
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    worker {schema}.workers := {schema}.living_worker(wanted_id, true);
    moment timestamptz := coalesce(at, clock_timestamp());
BEGIN
    UPDATE {schema}.workers w SET seen_at = moment, expires_at = moment + w.lease * interval '1 second'
    WHERE w.id = worker.id;
    cancel_requested := ARRAY(
        SELECT t.id FROM {schema}.tasks t WHERE t.owner = worker.id AND t.cancel_requested IS NOT NULL);
    suspects := EXISTS (SELECT FROM {schema}.tasks t WHERE t.ready = 2);
END
$$;

CREATE FUNCTION {schema}.drain(wanted_id text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    worker {schema}.workers := {schema}.living_worker(wanted_id, true);
BEGIN
    UPDATE {schema}.workers w SET state = 'draining' WHERE w.id = worker.id;
END
$$;

-- The first tasks that a claim may take, by rank, from several queues and names. LATERAL per queue and name: each reads
-- the first few of its own index range; `= ANY` would sort the whole queue. Nothing is locked yet.
-- Written out for both kinds: a partial index is used only where its condition stands as a constant.
CREATE FUNCTION {schema}.claimable(
    most integer, queues text[], names text[], wanted_ready smallint, moment timestamptz
) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    IF wanted_ready = 2 THEN
        RETURN ARRAY(
            SELECT c.id FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name),
            LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 2 AND t.queue = q.queue AND t.name = n.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo)
                ORDER BY t.rank, t.id LIMIT most
            ) AS c
            ORDER BY c.rank, c.id LIMIT most);
    END IF;
    RETURN ARRAY(
        SELECT c.id FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name),
        LATERAL (
            SELECT t.id, t.rank FROM {schema}.tasks t
            WHERE t.ready = 1 AND t.queue = q.queue AND t.name = n.name
              AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo)
            ORDER BY t.rank, t.id LIMIT most
        ) AS c
        ORDER BY c.rank, c.id LIMIT most);
END
$$;

-- Lock up to `most` of the first claimable tasks, and no more than those: whoever claims beside us takes the next ones.
-- What others have locked is skipped, so the candidates are more than wanted, and more again while too few are free.
CREATE FUNCTION {schema}.choose(
    most integer, queues text[], names text[], wanted_ready smallint, moment timestamptz
) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    looked_at integer := most + 10;
    candidates text[];
    chosen text[];
BEGIN
    LOOP
        candidates := {schema}.claimable(looked_at, queues, names, wanted_ready, moment);
        chosen := ARRAY(
            SELECT t.id FROM {schema}.tasks t
            WHERE t.id = ANY (candidates) AND t.ready = wanted_ready
            ORDER BY t.rank, t.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(chosen) = most OR cardinality(candidates) < looked_at OR looked_at > 20 * (most + 10);
        looked_at := looked_at * 4;
    END LOOP;
    RETURN chosen;
END
$$;

-- Lease ready tasks to a worker. A number that was used before is answered with what is still held of that claim.
--
-- The answer is short, and the tasks themselves are read by a second statement. The server sends an answer before it
-- commits: one that does not fit into the socket of a client that has stopped reading would keep its locks for as long
-- as the client sleeps.
CREATE FUNCTION {schema}.claim(
    wanted_id text, number bigint, most integer, queues text[], names text[], wants_suspect boolean,
    at timestamptz DEFAULT NULL
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
BEGIN
    -- A look without locks first. Idle workers look often; a lock, like a change, would have to reach the disk.
    SELECT w.* INTO worker FROM {schema}.workers w WHERE w.id = wanted_id;
    IF worker.state = 'live' AND number > worker.claims
        AND (most <= 0 OR cardinality({schema}.claimable(1, queues, names, wanted_ready, moment)) = 0) THEN
        RETURN;
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
    chosen := {schema}.choose(CASE WHEN wants_suspect THEN 1 ELSE most END, queues, names, wanted_ready, moment);
    IF cardinality(chosen) = 0 THEN
        RETURN;
    END IF;
    UPDATE {schema}.workers w SET claims = number WHERE w.id = worker.id;

    -- One pass over the chosen. A task in review stays there, so whoever is running now was pending before.
    RETURN QUERY
    WITH leased AS (
        UPDATE {schema}.tasks t
        SET moves = t.moves + (t.state = 'pending')::integer,
            state = CASE WHEN t.state = 'pending' THEN 'running' ELSE t.state END,
            owner = worker.id, fence = t.fence + 1, sequence = 0, claim = number, alone = wants_suspect, ready = 0,
            started_at = coalesce(t.started_at, moment), updated_at = moment, revision = t.revision + 1
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

-- Lease this very task without moving it. One the worker holds already is answered as it stands.
CREATE FUNCTION {schema}.acquire(
    wanted_id text, wanted_task text, at timestamptz DEFAULT NULL
) RETURNS TABLE (id text, fresh boolean, lone boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    worker {schema}.workers := {schema}.living_worker(wanted_id, false);
    before {schema}.tasks;
    moment timestamptz;
BEGIN
    SELECT t.* INTO before FROM {schema}.tasks t WHERE t.id = wanted_task FOR NO KEY UPDATE;
    moment := coalesce(at, clock_timestamp());
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
        ELSE
            UPDATE {schema}.tasks t
            SET owner = worker.id, fence = t.fence + 1, sequence = 0, claim = 0, alone = false, ready = 0,
                started_at = coalesce(t.started_at, moment), updated_at = moment, revision = t.revision + 1
            WHERE t.id = wanted_task;
    END CASE;
    RETURN QUERY
    SELECT t.id, before.revision = 1 AND before.owner IS NULL, t.alone FROM {schema}.tasks t WHERE t.id = wanted_task;
END
$$;

-- End a worker in good order: its tasks go back to the queue at once, and no death is counted.
CREATE FUNCTION {schema}.retire(
    wanted_id text, at timestamptz DEFAULT NULL, OUT handed_back text[], OUT hints text[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    moment timestamptz;
BEGIN
    -- FOR UPDATE, as in a sweep: no claim of this worker can be under way.
    PERFORM FROM {schema}.workers w WHERE w.id = wanted_id AND w.state <> 'dead' FOR UPDATE;
    IF NOT FOUND THEN
        handed_back := '{}';
        hints := '{}';
        RETURN;
    END IF;
    PERFORM FROM {schema}.tasks t WHERE t.owner = wanted_id ORDER BY t.id FOR NO KEY UPDATE;
    moment := coalesce(at, clock_timestamp());
    handed_back := ARRAY(SELECT t.id FROM {schema}.tasks t WHERE t.owner = wanted_id ORDER BY t.id);
    PERFORM {schema}.take_back(handed_back, 'handed back', wanted_id, moment);
    UPDATE {schema}.workers w SET state = 'dead', emptied = true WHERE w.id = wanted_id;
    hints := {schema}.hints_of(handed_back);
END
$$;

-- Take tasks, which the caller has locked, from their owner: running ones go back to the queue, others stay in their
-- state. A new fence, so that nothing the owner still sends is written.
CREATE FUNCTION {schema}.take_back(ids text[], why text, who text, moment timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
    SELECT t.id, t.moves + 1, t.state, 'pending', why, who, t.fence + 1, moment
    FROM {schema}.tasks t WHERE t.id = ANY (ids) AND t.state = 'running';
    UPDATE {schema}.tasks t
    SET owner = NULL, alone = false, claim = 0, fence = t.fence + 1, sequence = 0,
        state = n.state, moves = b.moves + n.moved::integer,
        available_at = n.available_at, rank = {schema}.rank_of(n.available_at, b.priority),
        ready = {schema}.readiness(n.state, NULL, n.available_at, b.deaths, moment),
        updated_at = moment, revision = b.revision + 1
    FROM {schema}.tasks b, LATERAL (
        SELECT b.state = 'running' AS moved,
               CASE WHEN b.state = 'running' THEN 'pending' ELSE b.state END AS state,
               CASE WHEN b.state = 'running' THEN moment ELSE b.available_at END AS available_at
    ) AS n
    WHERE t.id = ANY (ids) AND b.id = t.id;
END
$$;
