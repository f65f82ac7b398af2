-- Labels: names with values, by which people find tasks again.
--
-- They stand in the row of their task, where a task without labels has a NULL. A claim, and whoever looks at a task, has
-- them without another look.
ALTER TABLE tasks ADD COLUMN labels BLOB;

-- An index of them, with one row a label: tasks of a label by age, and those of them that are open. Triggers keep it, as
-- with the words of facts: it costs a task without labels no statement, and the JSON store makes it anew when it opens.
CREATE TABLE task_labels (
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    name       TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    is_open    INTEGER NOT NULL,
    PRIMARY KEY (task_id, name)
) WITHOUT ROWID, STRICT;

CREATE INDEX task_labels_by_age ON task_labels (name, value, created_at, task_id);
CREATE INDEX task_labels_open ON task_labels (name, value, created_at, task_id) WHERE is_open = 1;

-- A BLOB is JSONB to SQLite; ours is text.
CREATE TRIGGER task_is_labelled AFTER INSERT ON tasks WHEN new.labels IS NOT NULL BEGIN
    INSERT INTO task_labels (task_id, name, value, created_at, is_open)
    SELECT new.id, l.key, l.value, new.created_at, new.finished_at IS NULL
    FROM json_each(CAST(new.labels AS TEXT)) AS l;
END;

CREATE TRIGGER task_is_labelled_anew AFTER UPDATE OF labels ON tasks BEGIN
    DELETE FROM task_labels WHERE task_id = new.id;
    INSERT INTO task_labels (task_id, name, value, created_at, is_open)
    SELECT new.id, l.key, l.value, new.created_at, new.finished_at IS NULL
    FROM json_each(CAST(new.labels AS TEXT)) AS l;
END;

CREATE TRIGGER labelled_task_ends AFTER UPDATE OF finished_at ON tasks
WHEN new.labels IS NOT NULL AND (old.finished_at IS NULL) <> (new.finished_at IS NULL) BEGIN
    UPDATE task_labels SET is_open = new.finished_at IS NULL WHERE task_id = new.id;
END;

-- A task as people see it, with one column more.
DROP VIEW shown_tasks;
CREATE VIEW shown_tasks AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       t.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form,
       t.owner IS NOT NULL AND t.resting = t.fence AS resting, t.labels,
       t.rank, t.ready, t.alone, t.claim, t.search, t.moves
FROM tasks t
JOIN inputs i ON i.task_id = t.id
LEFT JOIN outcomes o ON o.task_id = t.id;

-- A process of the version before would submit children without the labels of their parents. These make it fail at its
-- next write; 0002 says how.
DROP TRIGGER tasks_schema_insert;
DROP TRIGGER tasks_schema_update;
DROP TRIGGER tasks_schema_delete;
DROP TRIGGER workers_schema_insert;
DROP TRIGGER workers_schema_update;
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_6_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_6_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_6_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_6_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_6_restart_this_process() BEGIN SELECT 1; END;
