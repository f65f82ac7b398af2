-- Memory: changing a subject as it was seen, and forgetting. What a change should be is decided by the client, from what
-- it read; here it is only seen to that nothing happened in between. The lock is the row of the subject, and comes
-- first.

-- Store facts of one subject and return their dates; nothing is returned where the subject is not as it was seen.
--
-- `how` is 'any' to ask nothing of the subject. `new_mark` was made for this very call: where it stands already, the
-- call has come a second time, its first answer was lost, and all is done.
CREATE FUNCTION {schema}.remember(
    of_entity text, of_attribute text, of_other text, how text, seen text, new_mark text,
    rows jsonb, payloads bytea[], moment timestamptz
) RETURNS TABLE (id text, created_at timestamptz)
LANGUAGE plpgsql
SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    written integer;
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    IF how = 'any' THEN
        INSERT INTO {schema}.subjects VALUES (of_entity, of_attribute, of_other, new_mark)
        ON CONFLICT (entity, attribute, other) DO UPDATE SET mark = excluded.mark;
    ELSIF seen IS NULL THEN
        INSERT INTO {schema}.subjects VALUES (of_entity, of_attribute, of_other, new_mark) ON CONFLICT DO NOTHING;
    ELSE
        UPDATE {schema}.subjects SET mark = new_mark
        WHERE entity = of_entity AND attribute = of_attribute AND other = of_other AND mark = seen;
    END IF;

    IF FOUND THEN
        INSERT INTO {schema}.facts
        SELECT f.id, of_entity, of_attribute, of_other, payloads[n::integer], f.confidence, f.half_life, f.source,
               coalesce(f.created_at, moment), f.verified_at, f.verified_by, f.superseded_by,
               array_to_tsvector(ARRAY(SELECT jsonb_array_elements_text(row -> 'words')))
        FROM jsonb_array_elements(rows) WITH ORDINALITY AS given (row, n),
             jsonb_to_record(row) AS f (
                 id text, confidence double precision, half_life bigint, source text, created_at timestamptz,
                 verified_at timestamptz, verified_by text, superseded_by text)
        ON CONFLICT (id) DO UPDATE SET
            value = excluded.value, confidence = excluded.confidence, half_life = excluded.half_life,
            source = excluded.source, created_at = excluded.created_at, verified_at = excluded.verified_at,
            verified_by = excluded.verified_by, superseded_by = excluded.superseded_by, words = excluded.words
        WHERE (facts.entity, facts.attribute, facts.other) = (of_entity, of_attribute, of_other);
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written < jsonb_array_length(rows) THEN
            RAISE EXCEPTION USING ERRCODE = 'HF006', MESSAGE = 'a fact of another subject has this id', DETAIL = (
                SELECT f.id FROM {schema}.facts f
                WHERE f.id IN (SELECT row ->> 'id' FROM jsonb_array_elements(rows) AS row)
                  AND (f.entity, f.attribute, f.other) <> (of_entity, of_attribute, of_other) LIMIT 1);
        END IF;
    ELSIF NOT EXISTS (
        SELECT FROM {schema}.subjects
        WHERE entity = of_entity AND attribute = of_attribute AND other = of_other AND mark = new_mark
    ) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT f.id, f.created_at FROM {schema}.facts f
                 WHERE f.id IN (SELECT row ->> 'id' FROM jsonb_array_elements(rows) AS row);
END
$$;

-- Delete a fact, and with the last one of its subject every trace of that.
CREATE FUNCTION {schema}.forget(fact_id text, new_mark text) RETURNS boolean
LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE
    f record;
    deleted boolean;
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    SELECT entity, attribute, other INTO f FROM {schema}.facts WHERE id = fact_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE {schema}.subjects SET mark = new_mark
    WHERE entity = f.entity AND attribute = f.attribute AND other = f.other;
    DELETE FROM {schema}.facts WHERE id = fact_id;
    deleted := FOUND;
    DELETE FROM {schema}.subjects s
    WHERE s.entity = f.entity AND s.attribute = f.attribute AND s.other = f.other AND NOT EXISTS (
        SELECT FROM {schema}.facts x
        WHERE x.entity = f.entity AND x.attribute = f.attribute AND x.other = f.other);
    RETURN deleted;
END
$$;
