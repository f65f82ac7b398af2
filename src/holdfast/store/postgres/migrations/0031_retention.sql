-- How long queues keep tasks after their end. Workers of the versions before delete nothing of it; what is too old waits for a
-- newer worker, or for prune.
-- Workers from version 29 on may go on.

-- For those queues that limit it. Apart from the row with the other settings: that one is locked by submissions, and a sweep
-- must not wait for a transaction of a user's own that submits.
CREATE TABLE {schema}.retentions (
    queue text COLLATE "C" PRIMARY KEY,
    -- {"completed": microseconds, "failed": ..., "cancelled": ...}
    kept_for jsonb NOT NULL,
    -- When the next sweep looks what is kept no longer.
    prunes_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX retentions_by_turn ON {schema}.retentions (prunes_at, queue);

-- The ended tasks of a queue and a state in the order in which they are deleted. Children are deleted with their parents.
CREATE INDEX tasks_kept ON {schema}.tasks (queue, state, finished_at, id)
    WHERE finished_at IS NOT NULL AND parent_id IS NULL;

-- Change how long a queue keeps its tasks, if that is among the settings. The next sweep looks, whatever was set before.
CREATE FUNCTION {schema}.set_retention(wanted text, settings jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF settings -> 'retention' = 'null' THEN
        DELETE FROM {schema}.retentions r WHERE r.queue = wanted;
    ELSIF settings ? 'retention' THEN
        INSERT INTO {schema}.retentions AS r VALUES (wanted, settings -> 'retention', '-infinity')
        ON CONFLICT (queue) DO UPDATE SET kept_for = excluded.kept_for, prunes_at = excluded.prunes_at
        WHERE r.kept_for <> excluded.kept_for;
    END IF;
END
$$;

-- Delete these tasks, which have ended and which the caller has locked, with all their rows.
CREATE FUNCTION {schema}.delete_tasks(gone text[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    DELETE FROM {schema}.inputs WHERE task_id = ANY (gone);
    DELETE FROM {schema}.outcomes WHERE task_id = ANY (gone);
    DELETE FROM {schema}.task_keys k USING {schema}.tasks t
    WHERE t.id = ANY (gone) AND k.name = t.name AND k.key = t.key;
    DELETE FROM {schema}.transitions WHERE task_id = ANY (gone);
    DELETE FROM {schema}.requests WHERE task_id = ANY (gone);
    DELETE FROM {schema}.steps WHERE task_id = ANY (gone);
    DELETE FROM {schema}.effects WHERE task_id = ANY (gone);
    DELETE FROM {schema}.evidence WHERE task_id = ANY (gone);
    DELETE FROM {schema}.patches WHERE task_id = ANY (gone);
    DELETE FROM {schema}.checkpoints WHERE task_id = ANY (gone);
    DELETE FROM {schema}.approvals WHERE task_id = ANY (gone);
    DELETE FROM {schema}.reservations WHERE task_id = ANY (gone);
    DELETE FROM {schema}.accounts WHERE account = ANY (gone);
    DELETE FROM {schema}.artifact_links WHERE task_id = ANY (gone);
    PERFORM {schema}.stop_waiting(gone);
    DELETE FROM {schema}.tasks t WHERE t.id = ANY (gone);
END
$$;

-- Delete what ended, happened or was stored before `cutoff`; tasks only as whole trees. First a look, then the locks, then
-- a second look in a later statement: somebody may have revived one of them in between. A tree of which anybody has
-- locked a task stays.
CREATE OR REPLACE FUNCTION {schema}.prune(
    cutoff timestamptz, most integer,
    OUT tasks integer, OUT events integer, OUT artifacts integer, OUT uploads integer
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wanted text[] := ARRAY(SELECT p.id FROM {schema}.prunable(cutoff, most) AS p);
    locked text[] := ARRAY(
        SELECT t.id FROM {schema}.tasks t WHERE t.id = ANY (wanted) ORDER BY t.id FOR UPDATE SKIP LOCKED);
    gone text[];
    contents text[];
BEGIN
    WITH ended AS MATERIALIZED (SELECT p.id, p.root FROM {schema}.prunable(cutoff, most) AS p)
    SELECT coalesce(array_agg(e.id), '{}') INTO gone FROM ended e
    WHERE NOT e.root IN (SELECT other.root FROM ended other WHERE NOT other.id = ANY (locked));
    PERFORM {schema}.delete_tasks(gone);
    tasks := cardinality(gone);

    -- The channel's counter stays, so that no number is ever used twice.
    -- A channel <word>:<id> belongs to the task or the effect with that id. Its events stay while that task is open: the
    -- counter does not forget an event, so a message that is deleted unread would be waited for without end. They stay
    -- while that effect is stored: the first event decides which call took the effect over. Oldest first, by the index of
    -- ages alone, with one look each into the primary key of the tasks and the index of effects by id. What stays is
    -- passed over again by the next batch. One statement: a task that is revived with a message is seen with it, or
    -- neither is.
    DELETE FROM {schema}.events e USING (
        SELECT old.channel, old.number FROM {schema}.events old
        WHERE old.at < cutoff
          AND (strpos(old.channel, ':') = 0 OR NOT (
              EXISTS (
                  SELECT FROM {schema}.tasks t
                  WHERE t.id = substr(old.channel, strpos(old.channel, ':') + 1) AND t.finished_at IS NULL OFFSET 0)
              OR EXISTS (
                  SELECT FROM {schema}.effects f
                  WHERE f.effect_id = substr(old.channel, strpos(old.channel, ':') + 1) OFFSET 0)))
        ORDER BY old.at LIMIT most
    ) AS o
    WHERE e.channel = o.channel AND e.number = o.number;
    GET DIAGNOSTICS events = ROW_COUNT;

    -- Uploads before artifacts, as whoever finishes one locks them; and none that somebody is just adding to.
    WITH ended AS (
        DELETE FROM {schema}.uploads u USING (
            SELECT old.id FROM {schema}.uploads old
            WHERE old.renewed_at < cutoff ORDER BY old.renewed_at LIMIT most FOR UPDATE SKIP LOCKED
        ) AS o
        WHERE u.id = o.id RETURNING u.id
    )
    SELECT coalesce(array_agg(id), '{}') INTO contents FROM ended;
    uploads := cardinality(contents);
    DELETE FROM {schema}.artifact_chunks WHERE content = ANY (contents);

    WITH ended AS (
        DELETE FROM {schema}.artifacts a USING (
            SELECT old.id FROM {schema}.artifacts old
            WHERE old.created_at < cutoff
              AND NOT EXISTS (SELECT FROM {schema}.artifact_links l WHERE l.artifact_id = old.id)
            ORDER BY old.created_at LIMIT most
        ) AS o
        WHERE a.id = o.id RETURNING a.content
    )
    SELECT coalesce(array_agg(content), '{}') INTO contents FROM ended;
    artifacts := cardinality(contents);
    DELETE FROM {schema}.artifact_chunks WHERE content = ANY (contents);

    DELETE FROM {schema}.workers w
    WHERE w.state = 'dead' AND w.seen_at < cutoff AND NOT EXISTS (
        SELECT FROM {schema}.tasks t WHERE t.owner = w.id);
END
$$;

-- What prunable() finds, of one queue and one state, of roots that never had a parent. A tree goes by the setting of its root:
-- its other tasks may lie in queues that keep theirs. So where `most` cuts a tree, the children go first. Were the root to go
-- first, no setting would reach what is left. Returned are all tasks of the trees that are begun, those beyond `most` with
-- `goes` = false: they are locked all the same, so that no task is revived of whose tree a part goes.
CREATE FUNCTION {schema}.kept_no_longer(wanted_queue text, wanted_state text, cutoff timestamptz, most integer)
RETURNS TABLE (id text, root text, goes boolean)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE roots AS MATERIALIZED (
        SELECT t.id, t.finished_at FROM {schema}.tasks t
        WHERE t.queue = wanted_queue AND t.state = wanted_state AND t.finished_at IS NOT NULL AND t.finished_at < cutoff
          AND t.parent_id IS NULL
          AND NOT EXISTS (
              WITH RECURSIVE tree AS (
                  SELECT t.id AS id
                  UNION ALL
                  SELECT c.id FROM tree, LATERAL (
                      SELECT k.id FROM {schema}.tasks k WHERE k.parent_id = tree.id OFFSET 0) AS c
              )
              SELECT FROM tree, LATERAL (
                  SELECT k.finished_at FROM {schema}.tasks k WHERE k.id = tree.id OFFSET 0) AS m
              WHERE m.finished_at IS NULL OR m.finished_at >= cutoff
                 OR EXISTS (SELECT FROM {schema}.reservations r WHERE r.account = tree.id OFFSET 0)
                 OR EXISTS (
                     SELECT FROM {schema}.effects e
                     WHERE e.task_id = tree.id AND e.state IN ('armed', 'in_doubt', 'needs_human') OFFSET 0)
              OFFSET 0)
        ORDER BY t.finished_at, t.id LIMIT most
    ), trees AS (
        SELECT roots.id, 0 AS depth, roots.id AS root, roots.finished_at AS ended FROM roots
        UNION ALL
        SELECT c.id, trees.depth + 1, trees.root, trees.ended FROM trees, LATERAL (
            SELECT k.id FROM {schema}.tasks k WHERE k.parent_id = trees.id OFFSET 0) AS c
    ), placed AS (
        SELECT trees.id, trees.root,
            row_number() OVER (ORDER BY trees.ended, trees.root, trees.depth DESC, trees.id) AS place
        FROM trees
    )
    SELECT p.id, p.root, p.place <= most
    FROM (SELECT placed.*, min(placed.place) OVER (PARTITION BY placed.root) AS first FROM placed) AS p
    WHERE p.first <= most;
END
$$;

-- Delete ended tasks that their queues keep no longer, of the queues whose turn it is, up to `most`; return how many. It waits
-- for no lock: a queue that another sweep prunes is left to that one, and a tree of which a task is locked to the next look.
CREATE FUNCTION {schema}.prune_kept(most integer, moment timestamptz) RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    due {schema}.retentions;
    setting record;
    deleted integer := 0;
BEGIN
    -- Put off for longer than is ever done: the clock has been set back since.
    UPDATE {schema}.retentions r SET prunes_at = moment
    FROM (
        SELECT ahead.queue FROM {schema}.retentions ahead WHERE ahead.prunes_at > moment + interval '1 minute'
        LIMIT most FOR NO KEY UPDATE SKIP LOCKED
    ) AS a
    WHERE r.queue = a.queue;
    FOR due IN
        SELECT r.* FROM {schema}.retentions r WHERE r.prunes_at <= moment
        ORDER BY r.prunes_at, r.queue LIMIT most FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        EXIT WHEN deleted >= most;
        FOR setting IN SELECT k.key AS state, k.value::bigint AS kept_for FROM jsonb_each_text(due.kept_for) AS k LOOP
            EXIT WHEN deleted >= most;
            deleted := deleted + {schema}.prune_queue(
                due.queue, setting.state, moment - setting.kept_for * interval '1 microsecond', most - deleted);
        END LOOP;
        UPDATE {schema}.retentions r
        SET prunes_at = moment + CASE WHEN deleted < most THEN interval '1 minute' ELSE interval '1 second' END
        WHERE r.queue = due.queue;
    END LOOP;
    RETURN deleted;
END
$$;

-- Delete tasks of one queue and one state that ended before `cutoff`, with what belongs to them alone: events on their
-- channels and those of their effects, and artifacts as old that no other task uses. First a look, then the locks, then a
-- second look, as prune() does it.
CREATE FUNCTION {schema}.prune_queue(wanted_queue text, wanted_state text, cutoff timestamptz, most integer)
RETURNS integer
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wanted text[] := ARRAY(
        SELECT k.id FROM {schema}.kept_no_longer(wanted_queue, wanted_state, cutoff, most) AS k);
    locked text[];
    gone text[];
    used text[];
    used_effects text[];
    contents text[];
BEGIN
    IF cardinality(wanted) = 0 THEN
        RETURN 0;
    END IF;
    locked := ARRAY(
        SELECT t.id FROM {schema}.tasks t WHERE t.id = ANY (wanted) ORDER BY t.id FOR UPDATE SKIP LOCKED);
    WITH ended AS MATERIALIZED (
        SELECT k.* FROM {schema}.kept_no_longer(wanted_queue, wanted_state, cutoff, most) AS k
    )
    SELECT coalesce(array_agg(e.id) FILTER (WHERE e.goes), '{}') INTO gone FROM ended e
    WHERE NOT e.root IN (SELECT other.root FROM ended other WHERE NOT other.id = ANY (locked));
    used := ARRAY(SELECT DISTINCT l.artifact_id FROM {schema}.artifact_links l WHERE l.task_id = ANY (gone));
    used_effects := ARRAY(SELECT DISTINCT e.effect_id FROM {schema}.effects e WHERE e.task_id = ANY (gone));
    PERFORM {schema}.delete_tasks(gone);
    DELETE FROM {schema}.events e WHERE e.channel = ANY (
        ARRAY(SELECT word || g FROM unnest(ARRAY['task:', 'inbox:']) AS word, unnest(gone) AS g)
        || ARRAY(SELECT 'taken:' || g FROM unnest(used_effects) AS g
                 WHERE NOT EXISTS (SELECT FROM {schema}.effects f WHERE f.effect_id = g)));
    WITH unused AS (
        DELETE FROM {schema}.artifacts a
        WHERE a.id = ANY (used) AND a.created_at < cutoff
          AND NOT EXISTS (SELECT FROM {schema}.artifact_links l WHERE l.artifact_id = a.id)
        RETURNING a.content
    )
    SELECT coalesce(array_agg(u.content), '{}') INTO contents FROM unused u;
    DELETE FROM {schema}.artifact_chunks WHERE content = ANY (contents);
    RETURN cardinality(gone);
END
$$;

-- The settings of queues as they are shown.
CREATE OR REPLACE VIEW {schema}.shown_queues AS
SELECT q.name, q.max_pending, q.pending + coalesce(
    (SELECT sum(c.change) FROM {schema}.queue_changes c WHERE c.queue = q.name), 0)::bigint AS pending,
    s.concurrency, s.taken + coalesce(
    (SELECT sum(c.change) FROM {schema}.slot_changes c WHERE c.queue = q.name), 0)::bigint AS working,
    r.kept_for::text AS retention
FROM {schema}.queues q LEFT JOIN {schema}.queue_slots s ON s.queue = q.name
LEFT JOIN {schema}.retentions r ON r.queue = q.name;
