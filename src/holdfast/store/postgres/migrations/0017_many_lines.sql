-- A claim over many queues and names costs what is ready, and not what is asked for.
--
-- A line is a pair of queue and name. For a few lines, LATERAL per line reads the first few tasks of each: `= ANY` would
-- sort the whole queue. For many, that is a probe for every line, most of them empty, and `most` tasks of every other one.
-- So those that have something ready are found first, from name to name through the index; of these only the ones whose
-- first task ranks among the first `most` can have anything to give. A first look at a share of each gives a task behind
-- which no other need be read.

-- The lines among these queues and names that may have a task of this readiness. Where they are many, only those that do:
-- one row of the index is read for each.
CREATE FUNCTION {schema}.ready_lines(
    queues text[], names text[], wanted_ready smallint, OUT line_queues text[], OUT line_names text[]
)
LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(queues) * cardinality(names) <= 256 THEN  -- fewer than that are looked for sooner than found out
        SELECT array_agg(q.queue), array_agg(n.name) INTO line_queues, line_names
        FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name);
        RETURN;
    END IF;
    IF wanted_ready = 2 THEN
        WITH RECURSIVE lines (queue, name) AS (
            SELECT q.queue, f.name FROM (SELECT DISTINCT unnest(queues)) AS q (queue), LATERAL (
                SELECT t.name FROM {schema}.tasks t
                WHERE t.ready = 2 AND t.queue = q.queue ORDER BY t.name LIMIT 1) AS f
            UNION ALL
            SELECT l.queue, f.name FROM lines l, LATERAL (
                SELECT t.name FROM {schema}.tasks t
                WHERE t.ready = 2 AND t.queue = l.queue AND t.name > l.name ORDER BY t.name LIMIT 1) AS f
        )
        SELECT array_agg(l.queue), array_agg(l.name) INTO line_queues, line_names
        FROM lines l WHERE l.name = ANY (names);
        RETURN;
    END IF;
    WITH RECURSIVE lines (queue, name) AS (
        SELECT q.queue, f.name FROM (SELECT DISTINCT unnest(queues)) AS q (queue), LATERAL (
            SELECT t.name FROM {schema}.tasks t
            WHERE t.ready = 1 AND t.queue = q.queue ORDER BY t.name LIMIT 1) AS f
        UNION ALL
        SELECT l.queue, f.name FROM lines l, LATERAL (
            SELECT t.name FROM {schema}.tasks t
            WHERE t.ready = 1 AND t.queue = l.queue AND t.name > l.name ORDER BY t.name LIMIT 1) AS f
    )
    SELECT array_agg(l.queue), array_agg(l.name) INTO line_queues, line_names
    FROM lines l WHERE l.name = ANY (names);
END
$$;

-- The first tasks that a claim may take, by rank, from several queues and names. Nothing is locked yet.
-- Written out for both kinds: a partial index is used only where its condition stands as a constant.
CREATE OR REPLACE FUNCTION {schema}.claimable(
    most integer, queues text[], names text[], wanted_ready smallint, speaks integer, moment timestamptz
) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    line_queues text[];
    line_names text[];
BEGIN
    IF cardinality(queues) * cardinality(names) <= 16 THEN
        IF wanted_ready = 2 THEN
            RETURN ARRAY(
                SELECT c.id
                FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name),
                LATERAL (
                    SELECT t.id, t.rank FROM {schema}.tasks t
                    WHERE t.ready = 2 AND t.queue = q.queue AND t.name = n.name
                      AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                    ORDER BY t.rank, t.id LIMIT most
                ) AS c
                ORDER BY c.rank, c.id LIMIT most);
        END IF;
        RETURN ARRAY(
            SELECT c.id
            FROM (SELECT DISTINCT unnest(queues)) AS q (queue), (SELECT DISTINCT unnest(names)) AS n (name),
            LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 1 AND t.queue = q.queue AND t.name = n.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                ORDER BY t.rank, t.id LIMIT most
            ) AS c
            ORDER BY c.rank, c.id LIMIT most);
    END IF;

    SELECT f.line_queues, f.line_names INTO line_queues, line_names
    FROM {schema}.ready_lines(queues, names, wanted_ready) AS f;
    IF line_queues IS NULL THEN
        RETURN '{}';
    END IF;
    IF wanted_ready = 2 THEN
        RETURN ARRAY(
            SELECT c.id FROM unnest(line_queues, line_names) AS l (queue, name), LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 2 AND t.queue = l.queue AND t.name = l.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                ORDER BY t.rank, t.id LIMIT most
            ) AS c
            ORDER BY c.rank, c.id LIMIT most);
    END IF;
    RETURN ARRAY(
        WITH firsts AS MATERIALIZED (
            SELECT l.queue, l.name FROM unnest(line_queues, line_names) AS l (queue, name), LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 1 AND t.queue = l.queue AND t.name = l.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                ORDER BY t.rank, t.id LIMIT 1
            ) AS c
            ORDER BY c.rank, c.id LIMIT most
        ), last_needed AS MATERIALIZED (
            SELECT c.rank, c.id FROM firsts l, LATERAL (
                SELECT t.id, t.rank FROM {schema}.tasks t
                WHERE t.ready = 1 AND t.queue = l.queue AND t.name = l.name
                  AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
                ORDER BY t.rank, t.id LIMIT 2 * most / cardinality(line_queues) + 1
            ) AS c
            ORDER BY c.rank, c.id OFFSET most - 1 LIMIT 1
        ), bound AS MATERIALIZED (
            -- With fewer than `most` in all shares, all has to be read.
            SELECT coalesce(max(b.rank), 'infinity') AS rank, coalesce(max(b.id), '') AS id FROM last_needed b
        )
        SELECT c.id FROM bound b, firsts l, LATERAL (
            SELECT t.id, t.rank FROM {schema}.tasks t
            WHERE t.ready = 1 AND t.queue = l.queue AND t.name = l.name AND (t.rank, t.id) <= (b.rank, b.id)
              AND (t.deadline IS NULL OR t.deadline > moment OR t.must_undo) AND t.key_form <= speaks
            ORDER BY t.rank, t.id LIMIT most
        ) AS c
        ORDER BY c.rank, c.id LIMIT most);
END
$$;
