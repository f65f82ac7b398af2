-- What is paused: 'queue:<name>', 'task:<name>' for all tasks of a name, or the id of a single task.
CREATE TABLE pauses (
    subject TEXT    PRIMARY KEY NOT NULL,
    at      INTEGER NOT NULL,
    by      TEXT    NOT NULL,
    reason  TEXT
) WITHOUT ROWID, STRICT;

-- What keeps a task from being claimed although it is ready, a bit for each: 1, it is paused itself. A column apart, so
-- that `ready` stays what the task's state and the time make it, and is right at once when it is held no more. A task
-- that is held is in neither index: however many there are, a claim passes over none.
ALTER TABLE tasks ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
DROP INDEX tasks_ready;
DROP INDEX tasks_suspect;
CREATE INDEX tasks_ready ON tasks (queue, name, rank, id) WHERE ready = 1 AND held = 0;
CREATE INDEX tasks_suspect ON tasks (queue, name, rank, id) WHERE ready = 2 AND held = 0;

-- The pause of a single task goes with the task.
CREATE TRIGGER task_is_deleted AFTER DELETE ON tasks WHEN old.held <> 0 BEGIN
    DELETE FROM pauses WHERE subject = old.id;
END;

-- A process of the version before would claim what is paused. These make it fail at its next write; 0002 says how.
DROP TRIGGER tasks_schema_insert;
DROP TRIGGER tasks_schema_update;
DROP TRIGGER tasks_schema_delete;
DROP TRIGGER workers_schema_insert;
DROP TRIGGER workers_schema_update;
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_5_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_5_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_5_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_5_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_5_restart_this_process() BEGIN SELECT 1; END;
