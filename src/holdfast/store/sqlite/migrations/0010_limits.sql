-- Limits: how much all workers together may do at the same time, or in a time. See decision 0032.

-- A number that is NULL limits nothing.
CREATE TABLE limits (
    name        TEXT    PRIMARY KEY NOT NULL,
    concurrency INTEGER CHECK (concurrency >= 1),
    rate        INTEGER CHECK (rate >= 1),
    tokens      INTEGER CHECK (tokens >= 1),
    per         INTEGER CHECK (per > 0),
    burst       INTEGER NOT NULL,
    each        INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- What counts against a limit: its name, or 'name:key' where it holds for each key.
CREATE TABLE limit_keys (
    key          TEXT    PRIMARY KEY NOT NULL,
    name         TEXT    NOT NULL,
    -- How many tasks and steps have a permit: the triggers below keep it up. The rows of tasks and permits say who has one.
    taken        INTEGER NOT NULL DEFAULT 0,
    -- The sums of its rows of limit_uses, those that are over and were not deleted yet among them.
    calls        INTEGER NOT NULL DEFAULT 0,
    tokens       INTEGER NOT NULL DEFAULT 0,
    closed_until INTEGER,
    -- When somebody should look whether tasks in its line can be let out. 0: at once, for something has happened.
    look_at      INTEGER
) WITHOUT ROWID, STRICT;

-- Where the sweep has come to on its way through the keys, to delete those that are idle, and when it goes on.
CREATE TABLE key_sweeps (
    after_key  TEXT    NOT NULL,
    goes_on_at INTEGER NOT NULL
) STRICT;
INSERT INTO key_sweeps VALUES ('', 0);

CREATE INDEX limit_keys_by_name ON limit_keys (name, key);
CREATE INDEX limit_keys_to_look_at ON limit_keys (look_at, key) WHERE look_at IS NOT NULL;

-- What began, by the moment from which on it counts no more.
CREATE TABLE limit_uses (
    key    TEXT    NOT NULL,
    until  INTEGER NOT NULL,
    calls  INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    -- When the last of them began. In the future: the clock was set back, and with it `until` has to come earlier.
    counted_at INTEGER NOT NULL,
    PRIMARY KEY (key, until)
) WITHOUT ROWID, STRICT;

-- Requests of steps, a row for each key of each. `place` is the same in the lines of all its keys.
CREATE TABLE permits (
    id         TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    place      INTEGER NOT NULL,
    task_id    TEXT    NOT NULL,
    worker_id  TEXT    NOT NULL,
    -- As many as it asked for; `reserved` is what was counted of them when it was granted.
    tokens     INTEGER NOT NULL,
    lasts      INTEGER NOT NULL,
    granted_at INTEGER,
    until      INTEGER,
    reserved   INTEGER NOT NULL DEFAULT 0,
    -- From then on its call is over, even if its worker died.
    settles_at INTEGER,
    PRIMARY KEY (id, key),
    CHECK ((granted_at IS NULL) = (settles_at IS NULL))
) WITHOUT ROWID, STRICT;

CREATE INDEX permits_in_line ON permits (key, place) WHERE granted_at IS NULL;
CREATE INDEX permits_by_place ON permits (place);

-- The sorted keys of a task's limits, for the few tasks that have any; and the key in whose line it waits.
ALTER TABLE tasks ADD COLUMN limits BLOB;
ALTER TABLE tasks ADD COLUMN waits_for TEXT;

-- A task with limits that is not at work is held: bit 2 of `held`. The lines (held = 2), in the order in which tasks are let
-- out; and those that were let out and not claimed yet (held = 0): candidates. Ordinary tasks and suspects have lines of
-- their own.
CREATE INDEX tasks_in_line ON tasks (waits_for, held, queue, name, ready, rank, id)
    WHERE ready >= 1 AND waits_for IS NOT NULL;
-- All lines of a queue together, for the list of what is in the queue.
CREATE INDEX tasks_in_lines_of_queue ON tasks (queue, name, rank, id) WHERE ready >= 1 AND held = 2;

-- What happens to the row of a task with limits. One small trigger, which hands over what the others below need: SQLite
-- makes room for all of a trigger before it looks at its WHEN, and most tasks have no limits. (No trigger fires anew for
-- what it does itself: each of those below marks the lines that it changes.)
CREATE VIEW changes_of_limited_tasks AS
SELECT '' AS id, x'' AS limits, 0 AS had_slot, 0 AS has_slot, 0 AS comes_back, 0 AS was_candidate, 0 AS is_candidate,
       0 AS is_ready, 0 AS held, '' AS waited_for, '' AS waits_for;

CREATE TRIGGER limited_task_changes
AFTER UPDATE OF owner, resting, fence, finished_at, ready, held, rank, waits_for, deadline, must_undo ON tasks
WHEN (new.limits IS NOT NULL OR old.limits IS NOT NULL)
    -- A claim, and a Commit that only ends its task, count the places of all their tasks themselves (`lease_task`, `end_limited`).
    AND NOT (old.owner IS NULL AND new.claim > 0 AND old.held = 0)
    AND NOT (new.finished_at IS NOT NULL AND new.waits_for IS NULL AND old.waits_for IS NOT NULL) BEGIN
    INSERT INTO changes_of_limited_tasks VALUES (
        new.id, new.limits,
        old.owner IS NOT NULL AND old.resting <> old.fence, new.owner IS NOT NULL AND new.resting <> new.fence,
        new.owner IS NULL AND new.finished_at IS NULL AND (old.owner IS NOT NULL OR old.finished_at IS NOT NULL),
        old.ready >= 1 AND old.held = 0 AND old.owner IS NULL, new.ready >= 1 AND new.held = 0,
        new.ready >= 1, new.held, old.waits_for, new.waits_for);
END;

-- Whatever gives it a slot, or takes it away: a claim, an end, a wait, a rest, a death. The slot takes the permits.
CREATE TRIGGER limited_task_takes_or_leaves_a_slot INSTEAD OF INSERT ON changes_of_limited_tasks
WHEN new.had_slot <> new.has_slot BEGIN
    UPDATE limit_keys SET
        taken = taken + iif(new.has_slot, 1, -1),
        look_at = iif(new.had_slot
                      AND EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = limit_keys.key AND t.ready >= 1 AND t.held = 2),
                      0, look_at)
    WHERE key IN (SELECT value FROM json_each(CAST(new.limits AS TEXT)));
    UPDATE tasks SET held = held & 1 WHERE id = new.id AND held & 2 AND new.has_slot;
END;

-- Whatever brings it back: into the line of its first key. A retry, a resume and a new round of a task that had ended, too.
CREATE TRIGGER limited_task_comes_back INSTEAD OF INSERT ON changes_of_limited_tasks
WHEN new.comes_back BEGIN
    UPDATE tasks SET held = held | 2, waits_for = CAST(new.limits AS TEXT) ->> 0 WHERE id = new.id;
    -- The sweep has deleted the row of a key that was idle.
    INSERT INTO limit_keys (key, name, look_at)
    SELECT CAST(new.limits AS TEXT) ->> 0, substr(CAST(new.limits AS TEXT) ->> 0, 1, instr((CAST(new.limits AS TEXT) ->> 0) || ':', ':') - 1), 0 WHERE new.is_ready
    ON CONFLICT (key) DO UPDATE SET look_at = 0;
END;

-- It could be let out: it is due, it is paused no more, its deadline matters no more, or it has another place in the line.
CREATE TRIGGER limited_task_is_ready INSTEAD OF INSERT ON changes_of_limited_tasks
WHEN new.is_ready AND new.held = 2 BEGIN
    INSERT INTO limit_keys (key, name, look_at)
    SELECT new.waits_for, substr(new.waits_for, 1, instr(new.waits_for || ':', ':') - 1), 0 WHERE true
    ON CONFLICT (key) DO UPDATE SET look_at = 0;
END;

-- A candidate is there no more, and none of it has begun: another one can be let out instead.
CREATE TRIGGER candidate_leaves INSTEAD OF INSERT ON changes_of_limited_tasks
WHEN new.was_candidate AND NOT new.has_slot AND NOT (new.is_candidate AND new.waits_for IS new.waited_for) BEGIN
    UPDATE limit_keys SET look_at = 0
    WHERE key = new.waited_for
      AND EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = new.waited_for AND t.ready >= 1 AND t.held = 2);
END;

-- It is new in the line.
CREATE TRIGGER limited_task_comes AFTER INSERT ON tasks
WHEN new.limits IS NOT NULL AND new.ready >= 1 AND new.held = 2 BEGIN
    UPDATE limit_keys SET look_at = 0 WHERE key = new.waits_for;
END;

-- The permits of steps count in the same number.
CREATE TRIGGER permit_is_granted AFTER UPDATE OF granted_at ON permits
WHEN (old.granted_at IS NULL) <> (new.granted_at IS NULL) BEGIN
    UPDATE limit_keys SET
        taken = taken + iif(new.granted_at IS NULL, -1, 1),
        look_at = iif(new.granted_at IS NULL
                      AND EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = new.key AND t.ready >= 1 AND t.held = 2),
                      0, look_at)
    WHERE key = new.key;
END;

CREATE TRIGGER permit_is_returned AFTER DELETE ON permits WHEN old.granted_at IS NOT NULL BEGIN
    UPDATE limit_keys SET
        taken = taken - 1,
        look_at = iif(EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = old.key AND t.ready >= 1 AND t.held = 2), 0, look_at)
    WHERE key = old.key;
END;

-- A task as people see it, with two columns more.
DROP VIEW shown_tasks;
CREATE VIEW shown_tasks AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       t.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form,
       t.owner IS NOT NULL AND t.resting = t.fence AS resting, t.labels, t.limits,
       iif(t.finished_at IS NULL, t.waits_for, NULL) AS waits_for,
       t.rank, t.ready, t.alone, t.claim, t.search, t.moves
FROM tasks t
JOIN inputs i ON i.task_id = t.id
LEFT JOIN outcomes o ON o.task_id = t.id;

-- A process of the version before would claim what has no place. These make it fail at its next write; 0002 says how.
DROP TRIGGER tasks_schema_insert;
DROP TRIGGER tasks_schema_update;
DROP TRIGGER tasks_schema_delete;
DROP TRIGGER workers_schema_insert;
DROP TRIGGER workers_schema_update;
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_10_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_10_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_10_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_10_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_10_restart_this_process() BEGIN SELECT 1; END;
