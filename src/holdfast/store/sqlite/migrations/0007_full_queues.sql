-- The settings of queues, for those that have any.
CREATE TABLE queues (
    name        TEXT    PRIMARY KEY NOT NULL,
    max_pending INTEGER CHECK (max_pending >= 0),
    -- How many of its tasks are pending: counted once, when the row is made, and kept up by the triggers below.
    pending     INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- Triggers and no statements of the store: a queue without settings, and so every queue of most stores, costs one look into
-- a table that is empty.
CREATE TRIGGER task_is_queued AFTER INSERT ON tasks
WHEN new.state = 'pending' AND EXISTS (SELECT 1 FROM queues WHERE name = new.queue) BEGIN
    SELECT RAISE(ABORT, 'holdfast: the queue is full') FROM queues
    WHERE name = new.queue AND pending >= max_pending AND new.schedule IS NULL;
    UPDATE queues SET pending = pending + 1 WHERE name = new.queue;
END;

CREATE TRIGGER task_is_moved AFTER UPDATE OF state ON tasks
WHEN (old.state = 'pending') <> (new.state = 'pending') AND EXISTS (SELECT 1 FROM queues WHERE name = new.queue) BEGIN
    UPDATE queues SET pending = pending + iif(new.state = 'pending', 1, -1) WHERE name = new.queue;
END;

-- A process of the version before would not know why it is refused. These make it fail at its next write; 0002 says how.
DROP TRIGGER tasks_schema_insert;
DROP TRIGGER tasks_schema_update;
DROP TRIGGER tasks_schema_delete;
DROP TRIGGER workers_schema_insert;
DROP TRIGGER workers_schema_update;
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_7_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_7_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_7_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_7_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_7_restart_this_process() BEGIN SELECT 1; END;
