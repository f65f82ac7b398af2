-- The feed: everything that happens, in a log that is only appended to. See decision 0036.
--
-- It is written in the transaction of what happens, without a round trip or a flush of its own: one row for a statement,
-- however many steps or moves the statement writes. Nothing updates a row, and no writer waits for a reader.
--
-- The statements that write steps append to it themselves, because they are the hot path (write_step in queries.sql,
-- commit_plain in 0028, write_journal and reopen_child below; a test finds them). For everything else triggers do, so that no
-- function can forget it.
--
-- Workers of the version before would write lone steps without it, so they claim nothing more.

CREATE TABLE {schema}.feed (
    -- Drawn under the lock of the task whose row is written: per task it grows in the order in which things happen.
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The transaction, by which a pass knows whether it has ended.
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL,
    -- [[kind, task or null, round, what belongs to the kind ...], ...]: model/feed.py has the names.
    entries json NOT NULL
);
CREATE INDEX feed_by_transaction ON {schema}.feed (xid, seq);
-- To compress the events of a batch would cost as much as to make them.
ALTER TABLE {schema}.feed ALTER COLUMN entries SET STORAGE EXTERNAL;

-- A pass: a snapshot of which transactions had ended. Passes are numbered, and take turns under a lock. What one of them
-- sees and the one before did not see, is what the pass has added to the feed. So a transaction that is still open delays
-- what itself has written and nothing else; and it is not skipped, because the first pass after its end adds it.
CREATE TABLE {schema}.feed_passes (
    number bigint PRIMARY KEY,
    -- Tells this pass from another one with the same number, on a server that took over without it.
    mark text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    -- Every transaction below `ended_below` has ended, except those that are `open`.
    ended_below xid8 NOT NULL,
    open xid8[] NOT NULL,
    -- Transactions from here on began after the snapshot. Those in between were open, too, but no snapshot lists them.
    begun_from xid8 NOT NULL,
    -- The last number that the sequence of the feed had given out before the snapshot, and after it.
    drawn_before bigint NOT NULL,
    drawn_after bigint NOT NULL
);

-- One row: how long the feed is kept. The first look makes it.
CREATE TABLE {schema}.feed_settings (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    -- The first pass of which everything is kept. The newest pass always is.
    oldest bigint NOT NULL DEFAULT 1,
    kept_for interval NOT NULL DEFAULT interval '7 days',
    kept_rows bigint NOT NULL DEFAULT 1000000,
    prunes_at timestamptz NOT NULL DEFAULT 'epoch'
) WITH (fillfactor = 50);

-- Writing

CREATE FUNCTION {schema}.feed_transitions() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.feed (at, entries)
    SELECT max(m.at), json_agg(json_build_array(
        'task.' || m.to_state, m.task_id, (SELECT t.round FROM {schema}.tasks t WHERE t.id = m.task_id),
        m.from_state, left(m.reason, 200), m.actor))
    FROM changed AS m
    HAVING count(*) > 0;
    RETURN NULL;
END
$$;
CREATE TRIGGER feed_transitions AFTER INSERT ON {schema}.transitions
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION {schema}.feed_transitions();

-- What the triggers below append; they are of rows that are written seldom. `about` is the task.
CREATE FUNCTION {schema}.append_feed(kind text, about text, of_round integer, moment timestamptz, VARIADIC rest text[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.feed (at, entries)
    SELECT moment, json_build_array((
        SELECT json_agg(part ORDER BY place) FROM (
            SELECT 1 AS place, to_json(kind) AS part
            UNION ALL SELECT 2, to_json(about)
            UNION ALL SELECT 3, to_json(coalesce(
                of_round, (SELECT t.round FROM {schema}.tasks t WHERE t.id = about), 0))
            UNION ALL SELECT 3 + r.place, to_json(r.value) FROM unnest(rest) WITH ORDINALITY AS r (value, place)
        ) AS parts));
END
$$;

CREATE FUNCTION {schema}.feed_approval() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.append_feed(
        CASE new.state WHEN 'open' THEN 'approval.opened' WHEN 'expired' THEN 'approval.expired'
             ELSE 'approval.decided' END,
        new.task_id, NULL, coalesce(new.decided_at, new.created_at),
        new.id, new.step_key, new.kind, new.risk, new.state,
        CASE WHEN new.state = 'open' THEN new.requested_by ELSE new.decided_by END);
    RETURN NULL;
END
$$;
CREATE TRIGGER feed_new_approval AFTER INSERT ON {schema}.approvals
FOR EACH ROW WHEN (new.state = 'open') EXECUTE FUNCTION {schema}.feed_approval();
CREATE TRIGGER feed_decided_approval AFTER UPDATE OF state ON {schema}.approvals
FOR EACH ROW WHEN (old.state = 'open' AND new.state <> 'open') EXECUTE FUNCTION {schema}.feed_approval();

CREATE FUNCTION {schema}.feed_effect() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.append_feed(
        CASE WHEN new.state IN ('in_doubt', 'needs_human') THEN 'doubt.opened' ELSE 'doubt.resolved' END,
        new.task_id, new.round, new.updated_at, new.effect_id, new.step_key, new.state);
    RETURN NULL;
END
$$;
CREATE TRIGGER feed_new_effect AFTER INSERT ON {schema}.effects
FOR EACH ROW WHEN (new.state IN ('in_doubt', 'needs_human')) EXECUTE FUNCTION {schema}.feed_effect();
CREATE TRIGGER feed_changed_effect AFTER UPDATE ON {schema}.effects
FOR EACH ROW WHEN (
    old.state <> new.state
    AND (old.state IN ('in_doubt', 'needs_human') OR new.state IN ('in_doubt', 'needs_human')))
EXECUTE FUNCTION {schema}.feed_effect();

-- 80 % of a limit are used, or all of it. An account has the id of the task whose budget it is.
CREATE FUNCTION {schema}.feed_account() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.append_feed(
        k.kind, t.id, t.round, clock_timestamp(), new.meter, new.ceiling::text, new.spent::text)
    FROM (VALUES ('budget.pressure', 4), ('budget.exhausted', 5)) AS k (kind, share)
    JOIN {schema}.tasks t ON t.id = new.account
    WHERE new.spent * 5 >= new.ceiling * k.share
      AND (old.ceiling IS NULL OR old.spent * 5 < old.ceiling * k.share);
    RETURN NULL;
END
$$;
CREATE TRIGGER feed_account AFTER UPDATE OF spent, ceiling ON {schema}.accounts
FOR EACH ROW WHEN (new.ceiling IS NOT NULL AND new.spent * 5 >= new.ceiling * 4)
EXECUTE FUNCTION {schema}.feed_account();

-- Events of a task's own channel, and messages. The text of a model that is still answering is not among them.
CREATE FUNCTION {schema}.feed_event() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    about text := substr(new.channel, strpos(new.channel, ':') + 1);
BEGIN
    IF EXISTS (SELECT FROM {schema}.tasks t WHERE t.id = about) THEN
        PERFORM {schema}.append_feed(
            CASE WHEN new.channel LIKE 'task:%' THEN 'progress' ELSE 'message' END,
            about, NULL, new.at, new.number::text, new.actor);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER feed_event AFTER INSERT ON {schema}.events
FOR EACH ROW WHEN (
    new.channel LIKE 'inbox:%'
    OR (new.channel LIKE 'task:%' AND new.payload NOT LIKE '{"attempt":%,"index":%,"kind":"text","step":%'::bytea))
EXECUTE FUNCTION {schema}.feed_event();

CREATE FUNCTION {schema}.feed_worker() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.append_feed('worker.' || new.state, NULL, NULL, new.seen_at, new.id, new.label);
    RETURN NULL;
END
$$;
CREATE TRIGGER feed_new_worker AFTER INSERT ON {schema}.workers
FOR EACH ROW EXECUTE FUNCTION {schema}.feed_worker();
-- A worker that has died was last seen before: when that was noticed, no column says.
CREATE TRIGGER feed_changed_worker AFTER UPDATE OF state ON {schema}.workers
FOR EACH ROW WHEN (old.state <> new.state) EXECUTE FUNCTION {schema}.feed_worker();

CREATE FUNCTION {schema}.feed_schedule() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.append_feed(
        'schedule.fired', new.last_task_id, 1, new.fired_at, new.name, {schema}.iso(new.last_tick_at));
    RETURN NULL;
END
$$;
CREATE TRIGGER feed_new_schedule AFTER INSERT ON {schema}.schedules
FOR EACH ROW WHEN (new.fired_at IS NOT NULL) EXECUTE FUNCTION {schema}.feed_schedule();
CREATE TRIGGER feed_fired_schedule AFTER UPDATE OF fired_at ON {schema}.schedules
FOR EACH ROW WHEN (new.fired_at > coalesce(old.fired_at, '-infinity')) EXECUTE FUNCTION {schema}.feed_schedule();

-- Write what the accepted Commits add to the journals of their tasks, and the steps among it to the feed.
CREATE OR REPLACE FUNCTION {schema}.write_journal(
    accepted {schema}.commit_record[], parts text[], payloads bytea[], moment timestamptz
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF 'steps' = ANY (parts) THEN
        WITH written AS (
            INSERT INTO {schema}.steps
            SELECT c.task_id, s.round, s.key, s.kind, s.position, s.state, s.attempts, s.fence, s.digest,
                   payloads[s.output], payloads[s.error], s.effect_id,
                   s.started_at, s.finished_at, s.retry_at, s.undone_at
            FROM unnest(accepted) AS c, jsonb_populate_recordset(NULL::{schema}.step_record, c.steps) AS s
            ON CONFLICT (task_id, round, key) DO UPDATE SET
                kind = excluded.kind, position = excluded.position, state = excluded.state,
                attempts = excluded.attempts, fence = excluded.fence, digest = excluded.digest,
                output = excluded.output, error = excluded.error, effect_id = excluded.effect_id,
                started_at = excluded.started_at, finished_at = excluded.finished_at, retry_at = excluded.retry_at,
                undone_at = excluded.undone_at
            RETURNING task_id, round, key, kind, state, attempts
        )
        INSERT INTO {schema}.feed (at, entries)
        SELECT moment, json_agg(json_build_array('step.' || w.state, w.task_id, w.round, w.key, w.kind, w.attempts))
        FROM written AS w
        HAVING count(*) > 0;
    END IF;

    IF 'patches' = ANY (parts) THEN
        INSERT INTO {schema}.patches (task_id, version, body, author, reason, at, step_key, round)
        SELECT t.id, t.version + p.n, payloads[(p.patch ->> 'body_at')::integer], p.patch ->> 'author',
               p.patch ->> 'reason', moment, p.patch ->> 'step_key', coalesce((p.patch ->> 'round')::integer, t.round)
        FROM unnest(accepted) AS c JOIN {schema}.tasks t ON t.id = c.task_id,
             jsonb_array_elements(c.patches) WITH ORDINALITY AS p (patch, n);
    END IF;

    IF 'links' = ANY (parts) THEN
        INSERT INTO {schema}.artifact_links
        SELECT c.task_id, l.artifact_id, l.name, l.type, l.summary, l.bytes, l.step, coalesce(l.created_at, moment)
        FROM unnest(accepted) AS c, jsonb_populate_recordset(NULL::{schema}.artifact_links, c.links) AS l
        ON CONFLICT (task_id, artifact_id) DO UPDATE SET
            name = excluded.name, type = excluded.type, summary = excluded.summary, bytes = excluded.bytes,
            step = excluded.step, created_at = excluded.created_at;
    END IF;

    IF 'requests' = ANY (parts) THEN
        INSERT INTO {schema}.requests (task_id, request)
        SELECT c.task_id, c.request FROM unnest(accepted) AS c WHERE c.request IS NOT NULL;
    END IF;
END
$$;

-- Begin an ended child again, or refuse where it is no child of this task, has not ended, or has changed since its parent
-- read it. Lines of its journal that are written for it are in the feed, too. The child's row is locked with the tasks of the batch.
CREATE OR REPLACE FUNCTION {schema}.reopen_child(owner_id text, who text, op jsonb, payloads bytea[], moment timestamptz)
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
    WITH written AS (
        INSERT INTO {schema}.steps
        SELECT child.id, s.round, s.key, s.kind, s.position, s.state, s.attempts, s.fence, s.digest,
               payloads[s.output], payloads[s.error], s.effect_id,
               s.started_at, s.finished_at, s.retry_at, s.undone_at
        FROM jsonb_populate_recordset(NULL::{schema}.step_record, op -> 'lines') AS s
        ON CONFLICT (task_id, round, key) DO UPDATE SET
            kind = excluded.kind, position = excluded.position, state = excluded.state, attempts = excluded.attempts,
            fence = excluded.fence, digest = excluded.digest, output = excluded.output, error = excluded.error,
            effect_id = excluded.effect_id, started_at = excluded.started_at, finished_at = excluded.finished_at,
            retry_at = excluded.retry_at, undone_at = excluded.undone_at
        RETURNING task_id, round, key, kind, state, attempts
    )
    INSERT INTO {schema}.feed (at, entries)
    SELECT moment, json_agg(json_build_array('step.' || w.state, w.task_id, w.round, w.key, w.kind, w.attempts))
    FROM written AS w
    HAVING count(*) > 0;
END
$$;

-- Reading

-- A row of the feed in its place: the pass that added it, and the mark of the pass. Without entries it is only a place.
CREATE TYPE {schema}.placed_row AS (pass bigint, mark text, seq bigint, at timestamptz, entries json);

-- The rows that a pass has added, from a place on: those of transactions that began after the pass before, found by their
-- numbers, which are above what had been drawn by then; and those of transactions that were open at that time and have
-- ended since, found by the transactions.
CREATE FUNCTION {schema}.rows_of_pass(
    before {schema}.feed_passes, pass {schema}.feed_passes, behind bigint, most integer
) RETURNS SETOF {schema}.feed
LANGUAGE plpgsql AS $$
BEGIN
    -- OFFSET 0 keeps each group to its index: for the two last ones the planner would otherwise walk along the numbers, past
    -- everything that is kept. The callers forbid bitmaps: with one, the first group would be read and sorted as a whole for each
    -- page.
    RETURN QUERY
    SELECT * FROM (
        (SELECT * FROM (
            SELECT f.* FROM {schema}.feed f
            WHERE f.seq > greatest(behind, before.drawn_before) AND f.seq <= pass.drawn_after
            ORDER BY f.seq OFFSET 0) AS later
         WHERE later.xid >= before.begun_from AND later.xid < pass.ended_below AND NOT later.xid = ANY (pass.open)
         ORDER BY later.seq LIMIT most)
        UNION ALL
        (SELECT * FROM (
            SELECT f.* FROM {schema}.feed f WHERE f.xid >= before.ended_below AND f.xid < before.begun_from
            OFFSET 0) AS unlisted
         WHERE unlisted.xid < pass.ended_below AND NOT unlisted.xid = ANY (pass.open) AND unlisted.seq > behind
         ORDER BY unlisted.seq LIMIT most)
        UNION ALL
        (SELECT * FROM (
            SELECT f.* FROM {schema}.feed f
            WHERE f.xid = ANY (ARRAY(SELECT unnest(before.open) EXCEPT SELECT unnest(pass.open)))
            OFFSET 0) AS listed
         WHERE listed.xid < pass.ended_below AND listed.seq > behind
         ORDER BY listed.seq LIMIT most)
    ) AS found
    ORDER BY found.seq LIMIT most;
END
$$;

-- Make the row of the settings, and the pass before the first row of the feed.
CREATE FUNCTION {schema}.begin_feed() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.feed_settings DEFAULT VALUES ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.feed_passes
    VALUES (0, left(gen_random_uuid()::text, 8), clock_timestamp(), '0', '{}', '0', 0, 0) ON CONFLICT DO NOTHING;
END
$$;

-- Say what a pass would be now, without making it.
CREATE FUNCTION {schema}.next_pass(newest {schema}.feed_passes, moment timestamptz) RETURNS {schema}.feed_passes
LANGUAGE plpgsql AS $$
DECLARE
    sequence regclass := '{schema}.feed_seq_seq';
    drawn bigint := coalesce(pg_sequence_last_value(sequence), 0);
    seen pg_snapshot;
BEGIN
    -- Each of these is a statement of its own, and in this order: what was drawn before the snapshot, and what after it.
    seen := pg_current_snapshot();
    RETURN ROW(newest.number + 1, left(gen_random_uuid()::text, 8), moment, pg_snapshot_xmax(seen),
               ARRAY(SELECT pg_snapshot_xip(seen)), pg_snapshot_xmax(seen), drawn,
               coalesce(pg_sequence_last_value(sequence), 0))::{schema}.feed_passes;
END
$$;

-- Make a pass if there is anything to add, and return the newest one. A transaction makes one at most, and writes nothing
-- before it.
CREATE FUNCTION {schema}.pass_on(moment timestamptz) RETURNS {schema}.feed_passes
LANGUAGE plpgsql AS $$
DECLARE
    newest {schema}.feed_passes;
    pass {schema}.feed_passes;
BEGIN
    -- A look without the lock: most of the time there is nothing new.
    SELECT p.* INTO newest FROM {schema}.feed_passes p ORDER BY p.number DESC LIMIT 1;
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        RETURN newest;
    END IF;
    pass := {schema}.next_pass(newest, moment);
    IF pass.ended_below >= newest.ended_below
        AND NOT EXISTS (SELECT FROM {schema}.rows_of_pass(newest, pass, 0, 1)) THEN
        RETURN newest;
    END IF;

    -- Then the lock, which is held to the COMMIT, and everything again in later statements. It is no lock on a row, because
    -- that would give this transaction its number before the snapshot.
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema}feed', 0));
    SELECT p.* INTO newest FROM {schema}.feed_passes p ORDER BY p.number DESC LIMIT 1;
    pass := {schema}.next_pass(newest, moment);
    -- Drawn after the snapshot: whatever has a higher number began later.
    pass.begun_from := pg_current_xact_id();
    IF pass.ended_below < newest.ended_below THEN
        -- The numbers of transactions began anew: the database was restored from a dump. The rows say nothing any more.
        DELETE FROM {schema}.feed;
        DELETE FROM {schema}.feed_passes;
        UPDATE {schema}.feed_settings SET oldest = pass.number + 1 WHERE single;  -- this pass is the place before the first row
    ELSIF NOT EXISTS (SELECT FROM {schema}.rows_of_pass(newest, pass, 0, 1)) THEN
        RETURN newest;
    END IF;
    INSERT INTO {schema}.feed_passes SELECT (pass).*;
    RETURN pass;
END
$$;

-- Return rows behind a place, about as many as have `most` entries. Without a place: where the feed ends now. Place -1: where
-- it begins. Without a seq, the mark says why nothing is read: 'older' and 'lost' are places that are not there; 'begin' is
-- for a feed that nobody has looked at before, so that begin_feed() comes first, in a transaction of its own.
CREATE FUNCTION {schema}.read_feed(
    place bigint, place_mark text, behind bigint, most integer, at timestamptz DEFAULT NULL
) RETURNS SETOF {schema}.placed_row
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
DECLARE
    moment timestamptz := coalesce(at, clock_timestamp());
    before {schema}.feed_passes;
    pass {schema}.feed_passes;
    newest {schema}.feed_passes;
    first bigint;
    room integer := most;
    found integer;
    one {schema}.feed;
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    IF NOT EXISTS (SELECT FROM {schema}.feed_passes) THEN
        RETURN NEXT ROW(place, 'begin', NULL, NULL, NULL)::{schema}.placed_row;
        RETURN;
    END IF;
    first := (SELECT s.oldest FROM {schema}.feed_settings s WHERE s.single);
    IF place IS NULL OR place < 0 THEN
        IF place IS NULL THEN
            pass := {schema}.pass_on(moment);
        ELSE
            SELECT p.* INTO pass FROM {schema}.feed_passes p WHERE p.number = first - 1;
        END IF;
        RETURN NEXT ROW(pass.number, pass.mark, pass.drawn_after, NULL, NULL)::{schema}.placed_row;
        RETURN;
    END IF;

    SELECT p.* INTO pass FROM {schema}.feed_passes p WHERE p.number = place;
    IF pass.number IS NULL AND place < first OR pass.mark = place_mark AND place = first - 1 AND behind < pass.drawn_after THEN
        RETURN NEXT ROW(place, 'older', NULL, NULL, NULL)::{schema}.placed_row;
        RETURN;
    ELSIF pass.mark IS DISTINCT FROM place_mark THEN
        RETURN NEXT ROW(place, 'lost', NULL, NULL, NULL)::{schema}.placed_row;
        RETURN;
    END IF;
    SELECT p.* INTO before FROM {schema}.feed_passes p WHERE p.number = place - 1;

    LOOP
        IF before.number IS NOT NULL THEN
            found := 0;
            FOR one IN SELECT * FROM {schema}.rows_of_pass(before, pass, behind, most) LOOP
                RETURN NEXT ROW(pass.number, pass.mark, one.seq, one.at, one.entries)::{schema}.placed_row;
                found := found + 1;
                room := room - json_array_length(one.entries);
                IF room <= 0 THEN
                    RETURN;
                END IF;
            END LOOP;
            IF found = most THEN
                RETURN;
            END IF;
        END IF;
        before := pass;
        behind := 0;
        SELECT p.* INTO pass FROM {schema}.feed_passes p WHERE p.number = before.number + 1;
        IF pass.number IS NULL THEN
            newest := {schema}.pass_on(moment);
            IF newest.number = before.number THEN
                RETURN;
            END IF;
            -- Others may have made passes meanwhile. (One more than one: the feed began anew.)
            SELECT p.* INTO pass FROM {schema}.feed_passes p WHERE p.number = before.number + 1;
            IF pass.number IS NULL THEN
                RETURN;
            END IF;
        END IF;
    END LOOP;
END
$$;

-- Delete what is kept no longer: whole passes, the oldest first, at most about `most` rows. The newest pass stays. Once a
-- minute, unless there is more to do.
CREATE FUNCTION {schema}.prune_feed(most integer, at timestamptz DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
DECLARE
    moment timestamptz := coalesce(at, clock_timestamp());
    settings {schema}.feed_settings;
    newest {schema}.feed_passes;
    last {schema}.feed_passes;
    deleted bigint := 0;
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    IF EXISTS (SELECT FROM {schema}.feed_settings s WHERE s.single AND s.prunes_at > moment) THEN
        RETURN 0;
    END IF;
    IF NOT EXISTS (SELECT FROM {schema}.feed_passes) THEN
        PERFORM {schema}.begin_feed();
        RETURN 0;
    END IF;
    -- What no reader asked for has no pass yet. It gets one here, so that it grows old.
    newest := {schema}.pass_on(moment);
    SELECT s.* INTO settings FROM {schema}.feed_settings s WHERE s.single AND s.prunes_at <= moment
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- Passes in their order, until the first that is kept; and no more of them than have about `most` rows.
    SELECT p.* INTO last FROM {schema}.feed_passes p
    WHERE p.number >= settings.oldest AND p.number < newest.number
      AND (p.at < moment - settings.kept_for OR p.drawn_after <= newest.drawn_after - settings.kept_rows)
      AND (p.number = settings.oldest OR p.drawn_after <= most + (
          SELECT b.drawn_after FROM {schema}.feed_passes b WHERE b.number = settings.oldest - 1))
    ORDER BY p.number DESC LIMIT 1;
    IF last.number IS NOT NULL THEN
        DELETE FROM {schema}.feed f
        WHERE f.seq <= last.drawn_after AND f.xid < last.ended_below AND NOT f.xid = ANY (last.open);
        GET DIAGNOSTICS deleted = ROW_COUNT;
        DELETE FROM {schema}.feed_passes p WHERE p.number < last.number;
    END IF;
    UPDATE {schema}.feed_settings SET
        oldest = coalesce(last.number + 1, settings.oldest),
        prunes_at = CASE WHEN last.number IS NULL THEN moment + interval '1 minute' ELSE moment END
    WHERE single;
    RETURN deleted;
END
$$;
