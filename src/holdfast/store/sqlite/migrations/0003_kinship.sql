-- A parent may begin a child again that has ended: the log of moves takes two moves that it refused before. SQLite
-- cannot change a CHECK, so the table is made anew; no other table refers to it.

CREATE TABLE transitions_of_0003 (
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    from_state TEXT,
    to_state   TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    actor      TEXT    NOT NULL,
    fence      INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (task_id, number),
    CHECK (from_state IS NOT NULL OR number = 1),
    -- The same tables as model/transitions.py, with what only a parent may do; a test compares them.
    CHECK (from_state IS NULL OR CASE from_state
        WHEN 'pending' THEN to_state = 'running' OR to_state = 'failed' OR to_state = 'cancelled'
        WHEN 'running' THEN to_state = 'completed' OR to_state = 'waiting' OR to_state = 'pending'
                         OR to_state = 'review' OR to_state = 'failed' OR to_state = 'cancelled'
        WHEN 'waiting' THEN to_state = 'pending' OR to_state = 'failed' OR to_state = 'cancelled'
        WHEN 'review' THEN to_state = 'completed' OR to_state = 'pending' OR to_state = 'waiting'
                        OR to_state = 'failed' OR to_state = 'cancelled'
        WHEN 'failed' THEN to_state = 'pending'
        WHEN 'completed' THEN to_state = 'pending'
        WHEN 'cancelled' THEN to_state = 'pending'
        ELSE FALSE END)
) WITHOUT ROWID, STRICT;

INSERT INTO transitions_of_0003 SELECT * FROM transitions;
DROP TABLE transitions;
ALTER TABLE transitions_of_0003 RENAME TO transitions;

-- Which form the keys of a task's journal have (model/task.py): what was begun before has flat ones, to its end.
ALTER TABLE tasks ADD COLUMN key_form INTEGER NOT NULL DEFAULT 0;
UPDATE tasks SET key_form = 1
WHERE fence > 0 OR EXISTS (SELECT 1 FROM steps WHERE steps.task_id = tasks.id);

-- Tasks that only wait although they keep their worker. The column holds the fence under which the task rests, so that
-- the note is void as soon as the lease is another one; 0 is none.
ALTER TABLE tasks ADD COLUMN resting INTEGER NOT NULL DEFAULT 0;

-- A task as people see it: the row with its payloads. Under another name than before: a process of the version before
-- that has this file open would claim tasks without a look at the form of their keys. Each claim of it reads the old
-- view, fails, and is rolled back.
DROP VIEW task_records;
CREATE VIEW shown_tasks AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       t.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form,
       t.owner IS NOT NULL AND t.resting = t.fence AS resting,
       t.rank, t.ready, t.alone, t.claim, t.search, t.moves
FROM tasks t
JOIN inputs i ON i.task_id = t.id
LEFT JOIN outcomes o ON o.task_id = t.id;
