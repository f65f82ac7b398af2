-- Fair queues: their tasks take turns by the value of a label. See decision 0035.
ALTER TABLE queues ADD COLUMN fair_by TEXT;
-- The highest turn that was claimed.
ALTER TABLE queues ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
-- What a claim looks for: in most stores there is none.
CREATE INDEX fair_queues ON queues (name) WHERE fair_by IS NOT NULL;

-- The last turn that was given in a lane: a tenant's tasks of one priority that never began, or those that did. Only while
-- claims have not gone past that turn.
CREATE TABLE lanes (
    queue TEXT    NOT NULL,
    lane  TEXT    NOT NULL,
    last  INTEGER NOT NULL,
    PRIMARY KEY (queue, lane)
) WITHOUT ROWID, STRICT;

-- A task of a fair queue that is ready is held until it has its turn: bit 4 of `held`. With it, `rank` is its turn, and it
-- stands in its lane.
ALTER TABLE tasks ADD COLUMN lane TEXT;
CREATE INDEX tasks_without_turn ON tasks (queue) WHERE ready >= 1 AND held >= 4;
CREATE INDEX tasks_in_lanes ON tasks (queue, lane, rank) WHERE lane IS NOT NULL AND ready >= 1;
-- The first turn of each name that a claim could take, apart from tasks with limits.
CREATE INDEX tasks_with_turns ON tasks (queue, name, ready, rank)
    WHERE lane IS NOT NULL AND limits IS NULL AND held = 0 AND ready >= 1;

CREATE TRIGGER fair_task_is_stored AFTER INSERT ON tasks
WHEN new.ready >= 1 AND new.lane IS NULL
    AND EXISTS (SELECT 1 FROM queues WHERE name = new.queue AND fair_by IS NOT NULL) BEGIN
    UPDATE tasks SET held = held | 4 WHERE id = new.id;
END;

-- Whatever makes it ready, or gives it another place among the ready ones. Each point of priority counts as AGEING
-- (model/task.py).
CREATE TRIGGER fair_task_is_ready AFTER UPDATE OF ready, rank ON tasks
WHEN new.ready >= 1 AND (old.ready = 0 OR new.rank <> old.rank)
    AND old.held & 4 = 0 AND new.held & 4 = 0
    AND EXISTS (SELECT 1 FROM queues WHERE name = new.queue AND fair_by IS NOT NULL) BEGIN
    UPDATE tasks SET held = held | 4, lane = NULL, rank = available_at - priority * 600000000 WHERE id = new.id;
END;

-- It leaves before it has had a turn.
CREATE TRIGGER task_leaves_without_turn AFTER UPDATE OF ready ON tasks
WHEN new.ready = 0 AND new.held & 4 BEGIN
    UPDATE tasks SET held = held & 3 WHERE id = new.id;
END;

-- A process of the version before would claim no task of a fair queue. These make it fail at its next write; 0002 says how.
DROP TRIGGER tasks_schema_insert;
DROP TRIGGER tasks_schema_update;
DROP TRIGGER tasks_schema_delete;
DROP TRIGGER workers_schema_insert;
DROP TRIGGER workers_schema_update;
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_12_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_12_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_12_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_12_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_12_restart_this_process() BEGIN SELECT 1; END;
