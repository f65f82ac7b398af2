-- Queues that refuse submissions when they are full. No worker of the version before may go on: it does not know the refusal of
-- a child. Its submissions are refused by the triggers below.

-- The settings of queues, for those that have any.
CREATE TABLE {schema}.queues (
    name text COLLATE "C" PRIMARY KEY,
    max_pending bigint CHECK (max_pending >= 0),
    -- How many of its tasks are pending, apart from what queue_changes says.
    pending bigint NOT NULL
) WITH (fillfactor = 50);

-- Tasks that became pending, or are pending no more, since the count above. Rows of their own: a claim, or an end, that
-- changed the count itself would wait for every submission to the queue, and two of them for each other. A submission, which
-- holds the row of its queue, adds them up and deletes them.
CREATE TABLE {schema}.queue_changes (
    queue text COLLATE "C" NOT NULL,
    change integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX queue_changes_by_queue ON {schema}.queue_changes (queue);

-- The task belongs to a queue with settings: its moves are counted. A column of the task, because the condition of a trigger
-- can ask nothing else, and a function called for every move would cost every claim.
ALTER TABLE {schema}.tasks ADD COLUMN is_counted boolean NOT NULL DEFAULT false;

-- Add up what changed in a queue whose row the caller has locked; return how many of its tasks are pending.
CREATE FUNCTION {schema}.count_again(wanted text) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    changed bigint;
    now_pending bigint;
BEGIN
    WITH gone AS (DELETE FROM {schema}.queue_changes c WHERE c.queue = wanted RETURNING c.change)
    SELECT sum(gone.change) INTO changed FROM gone;
    UPDATE {schema}.queues q SET pending = q.pending + coalesce(changed, 0) WHERE q.name = wanted
    RETURNING q.pending INTO now_pending;
    RETURN now_pending;
END
$$;

-- Count tasks that enter a queue with settings, or refuse all of them where it is full. Tasks of a schedule are not refused.
CREATE FUNCTION {schema}.enter_queue(wanted text, ids text[], pending_ones bigint, is_refusable boolean) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    settings {schema}.queues;
BEGIN
    SELECT q.* INTO settings FROM {schema}.queues q WHERE q.name = wanted FOR NO KEY UPDATE;
    IF {schema}.count_again(wanted) + pending_ones > settings.max_pending AND is_refusable THEN
        PERFORM {schema}.refuse('full', jsonb_build_object('queue', wanted, 'limit', settings.max_pending));
    END IF;
    UPDATE {schema}.queues q SET pending = q.pending + pending_ones WHERE q.name = wanted;
    UPDATE {schema}.tasks t SET is_counted = true WHERE t.id = ANY (ids);
END
$$;

-- Whichever statement stores tasks: one look for all of them where no queue has settings.
CREATE FUNCTION {schema}.note_submitted() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {schema}.queues) THEN
        PERFORM {schema}.enter_queue(entered.queue, entered.ids, entered.pending_ones, entered.is_refusable)
        FROM (
            SELECT n.queue, array_agg(n.id) AS ids, count(*) FILTER (WHERE n.state = 'pending') AS pending_ones,
                   bool_or(n.state = 'pending' AND n.schedule IS NULL) AS is_refusable
            FROM new_tasks n WHERE EXISTS (SELECT FROM {schema}.queues q WHERE q.name = n.queue)
            GROUP BY n.queue ORDER BY n.queue
        ) AS entered;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER task_is_queued AFTER INSERT ON {schema}.tasks
    REFERENCING NEW TABLE AS new_tasks FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note_submitted();

-- A counted task becomes pending, or is pending no more; so does one that had ended before its queue got settings. Now and
-- then the changes are added up here: a queue to which nothing is submitted must not collect them for ever.
CREATE FUNCTION {schema}.note_moved() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT OLD.is_counted THEN
        IF NOT EXISTS (SELECT FROM {schema}.queues q WHERE q.name = NEW.queue) THEN
            RETURN NULL;
        END IF;
        UPDATE {schema}.tasks t SET is_counted = true WHERE t.id = NEW.id;
    END IF;
    INSERT INTO {schema}.queue_changes (queue, change)
    VALUES (NEW.queue, CASE WHEN NEW.state = 'pending' THEN 1 ELSE -1 END);
    IF random() < 0.001 THEN
        PERFORM FROM {schema}.queues q WHERE q.name = NEW.queue FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM {schema}.count_again(NEW.queue);
        END IF;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER task_is_moved AFTER UPDATE OF state ON {schema}.tasks
    FOR EACH ROW
    WHEN ((OLD.is_counted OR OLD.finished_at IS NOT NULL) AND (OLD.state = 'pending') <> (NEW.state = 'pending'))
    EXECUTE FUNCTION {schema}.note_moved();

-- Change the settings of a queue. The first time, its tasks are counted, and no task is written meanwhile: one that is on its
-- way, and was stored without a look at the settings, has to be among them.
CREATE FUNCTION {schema}.set_queue(wanted text, changes_limit boolean, wanted_limit bigint) RETURNS void
LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.queues q WHERE q.name = wanted) THEN
        LOCK TABLE {schema}.tasks IN SHARE ROW EXCLUSIVE MODE;
        INSERT INTO {schema}.queues (name, pending) VALUES (wanted, 0) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            UPDATE {schema}.tasks t SET is_counted = true WHERE t.finished_at IS NULL AND t.queue = wanted;
            UPDATE {schema}.queues q SET pending = (
                SELECT count(*) FROM {schema}.tasks t
                WHERE t.finished_at IS NULL AND t.state = 'pending' AND t.queue = wanted)
            WHERE q.name = wanted;
        END IF;
    END IF;
    IF changes_limit THEN
        UPDATE {schema}.queues q SET max_pending = wanted_limit
        WHERE q.name = wanted AND q.max_pending IS DISTINCT FROM wanted_limit;
    END IF;
END
$$;

-- The settings of queues as they are shown.
CREATE VIEW {schema}.shown_queues AS
SELECT q.name, q.max_pending, q.pending + coalesce(
    (SELECT sum(c.change) FROM {schema}.queue_changes c WHERE c.queue = q.name), 0)::bigint AS pending
FROM {schema}.queues q;
