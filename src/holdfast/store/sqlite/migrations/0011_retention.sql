-- How long a queue keeps tasks after their end: {"completed": microseconds, "failed": ..., "cancelled": ...}.
ALTER TABLE queues ADD COLUMN retention TEXT CHECK (json_valid(retention));
-- When the next sweep looks what is kept no longer.
ALTER TABLE queues ADD COLUMN prunes_at INTEGER CHECK ((prunes_at IS NULL) = (retention IS NULL));
CREATE INDEX queues_with_retention ON queues (prunes_at, name) WHERE prunes_at IS NOT NULL;

-- The ended tasks of a queue and a state in the order in which they are deleted. Children are deleted with their parents.
CREATE INDEX tasks_kept ON tasks (queue, state, finished_at, id) WHERE finished_at IS NOT NULL AND parent_id IS NULL;

-- A process of the version before would delete nothing of it. These make it fail at its next write, so that it is restarted; 0002
-- says how.
DROP TRIGGER tasks_schema_insert;
DROP TRIGGER tasks_schema_update;
DROP TRIGGER tasks_schema_delete;
DROP TRIGGER workers_schema_insert;
DROP TRIGGER workers_schema_update;
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_11_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_11_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_11_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_11_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_11_restart_this_process() BEGIN SELECT 1; END;
