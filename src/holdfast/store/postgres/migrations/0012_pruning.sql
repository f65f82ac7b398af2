-- How old things go: one bounded batch of each kind.

-- Delete what ended, happened or was stored before `cutoff`. A task whose parent is still open stays, because the
-- parent may read its result; one whose children are open, or on whose account something is reserved, because they
-- spend under its limits.
CREATE FUNCTION {schema}.prune(
    cutoff timestamptz, most integer,
    OUT tasks integer, OUT events integer, OUT artifacts integer, OUT uploads integer
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    gone text[] := ARRAY(
        SELECT t.id FROM {schema}.tasks t
        WHERE t.finished_at IS NOT NULL AND t.finished_at < cutoff AND NOT EXISTS (
            SELECT FROM {schema}.tasks p WHERE p.id = t.parent_id AND p.finished_at IS NULL)
          AND NOT EXISTS (SELECT FROM {schema}.tasks c WHERE c.parent_id = t.id AND c.finished_at IS NULL)
          AND NOT EXISTS (SELECT FROM {schema}.reservations r WHERE r.account = t.id)
        ORDER BY t.finished_at, t.id LIMIT most FOR UPDATE SKIP LOCKED);
    contents text[];
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
    tasks := cardinality(gone);

    -- The channel's counter stays, so that no number is ever used twice.
    DELETE FROM {schema}.events e USING (
        SELECT old.channel, old.number FROM {schema}.events old WHERE old.at < cutoff ORDER BY old.at LIMIT most
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
