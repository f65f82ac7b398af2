-- How many tasks of a queue may have a slot at the same time, over all workers together. A task has one while a worker holds
-- it and it does not rest (decision 0023).
ALTER TABLE queues ADD COLUMN concurrency INTEGER CHECK (concurrency >= 1);
-- How many have one: counted once for the queues that are there, and when the row of another is made; then kept up below.
ALTER TABLE queues ADD COLUMN working INTEGER NOT NULL DEFAULT 0;
UPDATE queues SET working = (
    SELECT count(*) FROM tasks t
    WHERE t.finished_at IS NULL AND t.owner IS NOT NULL AND t.resting <> t.fence AND t.queue = queues.name);
-- What a claim looks for: in most stores there is none.
CREATE INDEX queues_with_places ON queues (name) WHERE concurrency IS NOT NULL;

-- Whatever gives a task a slot or takes it away: a claim, an end, a wait, a rest, a death.
CREATE TRIGGER task_takes_or_leaves_a_slot AFTER UPDATE OF owner, resting ON tasks
WHEN (old.owner IS NOT NULL AND old.resting <> old.fence) <> (new.owner IS NOT NULL AND new.resting <> new.fence)
    AND EXISTS (SELECT 1 FROM queues WHERE name = new.queue) BEGIN
    UPDATE queues SET working = working + iif(new.owner IS NOT NULL AND new.resting <> new.fence, 1, -1)
    WHERE name = new.queue;
END;

-- A process of the version before would claim from queues that are full. These make it fail at its next write; 0002 says how.
DROP TRIGGER tasks_schema_insert;
DROP TRIGGER tasks_schema_update;
DROP TRIGGER tasks_schema_delete;
DROP TRIGGER workers_schema_insert;
DROP TRIGGER workers_schema_update;
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_9_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_9_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_9_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_9_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_9_restart_this_process() BEGIN SELECT 1; END;
