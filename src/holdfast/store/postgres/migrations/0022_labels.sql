-- Labels: names with values, by which people find tasks again.
--
-- They stand in the row of their task, where a task without labels has a NULL. A claim, and whoever looks at a task, has
-- them without another look.
ALTER TABLE {schema}.tasks ADD COLUMN labels jsonb;

-- An index of them, with one row a label: tasks of a label by age, and those of them that are open. Triggers keep it: it
-- costs a task without labels no statement, and no function that ends or deletes tasks has to know of it.
CREATE TABLE {schema}.task_labels (
    task_id text COLLATE "C",
    name text COLLATE "C",
    value text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    is_open boolean NOT NULL,
    PRIMARY KEY (task_id, name)
);
CREATE INDEX task_labels_by_age ON {schema}.task_labels (name, value, created_at, task_id);
CREATE INDEX task_labels_open ON {schema}.task_labels (name, value, created_at, task_id) WHERE is_open;

-- Write the rows of a task's labels, also anew. A task that is just submitted has no row in inputs yet; its time of
-- creation is that of its last change.
CREATE FUNCTION {schema}.index_labels() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM {schema}.task_labels WHERE task_id = new.id;
    END IF;
    INSERT INTO {schema}.task_labels (task_id, name, value, created_at, is_open)
    SELECT new.id, l.key, l.value,
           coalesce((SELECT i.created_at FROM {schema}.inputs i WHERE i.task_id = new.id), new.updated_at),
           new.finished_at IS NULL
    FROM jsonb_each_text(new.labels) AS l;
    RETURN NULL;
END
$$;

CREATE FUNCTION {schema}.index_labelled_end() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.task_labels SET is_open = new.finished_at IS NULL WHERE task_id = new.id;
    RETURN NULL;
END
$$;

CREATE FUNCTION {schema}.unindex_labels() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.task_labels WHERE task_id = old.id;
    RETURN NULL;
END
$$;

CREATE TRIGGER task_is_labelled AFTER INSERT ON {schema}.tasks
FOR EACH ROW WHEN (new.labels IS NOT NULL) EXECUTE FUNCTION {schema}.index_labels();
CREATE TRIGGER task_is_labelled_anew AFTER UPDATE OF labels ON {schema}.tasks
FOR EACH ROW WHEN (old.labels IS DISTINCT FROM new.labels) EXECUTE FUNCTION {schema}.index_labels();
CREATE TRIGGER labelled_task_ends AFTER UPDATE OF finished_at ON {schema}.tasks
FOR EACH ROW WHEN (new.labels IS NOT NULL AND (old.finished_at IS NULL) <> (new.finished_at IS NULL))
EXECUTE FUNCTION {schema}.index_labelled_end();
CREATE TRIGGER labelled_task_is_pruned AFTER DELETE ON {schema}.tasks
FOR EACH ROW WHEN (old.labels IS NOT NULL) EXECUTE FUNCTION {schema}.unindex_labels();

-- A task as the model shows it, with one column more at its end.
CREATE OR REPLACE VIEW {schema}.shown_tasks AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       i.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form,
       t.owner IS NOT NULL AND t.resting = t.fence AS resting, t.labels
FROM {schema}.tasks t
JOIN {schema}.inputs i ON i.task_id = t.id
LEFT JOIN {schema}.outcomes o ON o.task_id = t.id;

ALTER TYPE {schema}.new_task ADD ATTRIBUTE labels jsonb;

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
        -- Whoever inserts a key first has it. A loser waits here until the winner has committed, and reads who that is
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
            schedule, parent_id, ready, rank, round, labels
        )
        SELECT w.id, w.name, w.agent_id, w.state, moment,
               CASE WHEN {schema}.is_terminal(w.state) THEN moment END,
               w.queue, w.priority, w.key, coalesce(w.available_at, moment), w.deadline, w.schedule, w.parent_id,
               {schema}.readiness(w.state, NULL, coalesce(w.available_at, moment), 0, moment),
               {schema}.rank_of(coalesce(w.available_at, moment), w.priority), w.round, w.labels
        FROM unnest(wanted) AS w
        WHERE w.key IS NULL
           OR w.id = (SELECT k.task_id FROM {schema}.task_keys k WHERE k.name = w.name AND k.key = w.key)
        ORDER BY w.id
        ON CONFLICT DO NOTHING
        RETURNING id
    )
    SELECT coalesce(array_agg(id), '{}') INTO created FROM stored;
    -- Where all are new, nobody has to be looked for among them.
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

    -- A prune that was under way may have taken a task or a key that an earlier statement of ours still saw. Whoever
    -- sent this sends it again.
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
