-- The feed: everything that happens, in a log that is only appended to. See decision 0036.
--
-- Triggers write it, in the transaction of what happens: no statement has to know of it, and none can forget it. Writers
-- take turns, so that the numbers are in the order of the commits, and a reader of what is committed skips nothing.
-- (PostgreSQL has to do more: its writers overlap.)
--
-- The triggers are in the file, so that a process of the version before writes the feed as well; but it records the end of a
-- task in front of the task's last steps. The last statements here make it fail at its next write.

CREATE TABLE feed (
    -- '' where no task is concerned. The first column, because the JSON store keeps a task's rows in the task's document.
    task_id TEXT    NOT NULL,
    -- The newest row is never deleted, so that no number is given out twice.
    number  INTEGER PRIMARY KEY,
    kind    TEXT    NOT NULL,
    round   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    -- What belongs to the kind: model/feed.py has the names.
    data    TEXT    NOT NULL
) STRICT;

-- How long the feed is kept, if that was ever set. One row, whose name is empty: the JSON store keeps it beside what is about no
-- task.
CREATE TABLE feed_settings (
    name      TEXT    PRIMARY KEY NOT NULL,
    kept_for  INTEGER NOT NULL,
    kept_rows INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TRIGGER feed_transition AFTER INSERT ON transitions BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    VALUES (new.task_id, 'task.' || new.to_state, (SELECT round FROM tasks WHERE id = new.task_id), new.at,
            json_array(new.from_state, substr(new.reason, 1, 200), new.actor));
END;

CREATE TRIGGER feed_new_step AFTER INSERT ON steps BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    VALUES (new.task_id, 'step.' || new.state, new.round,
            coalesce(new.finished_at, new.started_at, (SELECT updated_at FROM tasks WHERE id = new.task_id)),
            json_array(new.key, new.kind, new.attempts));
END;

CREATE TRIGGER feed_changed_step AFTER UPDATE ON steps BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    VALUES (new.task_id, 'step.' || new.state, new.round,
            coalesce(new.finished_at, new.started_at, (SELECT updated_at FROM tasks WHERE id = new.task_id)),
            json_array(new.key, new.kind, new.attempts));
END;

CREATE TRIGGER feed_new_approval AFTER INSERT ON approvals WHEN new.state = 'open' BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    VALUES (new.task_id, 'approval.opened', (SELECT round FROM tasks WHERE id = new.task_id), new.created_at,
            json_array(new.id, new.step_key, new.kind, new.risk, new.state, new.requested_by));
END;

CREATE TRIGGER feed_decided_approval AFTER UPDATE OF state ON approvals
WHEN old.state = 'open' AND new.state <> 'open' BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    VALUES (new.task_id, iif(new.state = 'expired', 'approval.expired', 'approval.decided'),
            (SELECT round FROM tasks WHERE id = new.task_id), new.decided_at,
            json_array(new.id, new.step_key, new.kind, new.risk, new.state, new.decided_by));
END;

-- Before, because an effect is written with INSERT OR REPLACE: afterwards the state before is gone.
CREATE TRIGGER feed_effect BEFORE INSERT ON effects BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    SELECT new.task_id, iif(now.doubt, 'doubt.opened', 'doubt.resolved'), new.round, new.updated_at,
           json_array(new.effect_id, new.step_key, new.state)
    FROM (SELECT new.state IN ('in_doubt', 'needs_human') AS doubt) AS now
    LEFT JOIN effects e ON e.task_id = new.task_id AND e.effect_id = new.effect_id
    WHERE iif(now.doubt, e.state IS NOT new.state, e.state IN ('in_doubt', 'needs_human'));
END;

-- 80 % of a limit are used, or all of it. An account has the id of the task whose budget it is.
CREATE TRIGGER feed_account AFTER UPDATE OF spent, ceiling ON accounts
WHEN new.ceiling IS NOT NULL AND new.spent * 5 >= new.ceiling * 4 BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    SELECT t.id, k.kind, t.round, t.updated_at, json_array(new.meter, new.ceiling, new.spent)
    FROM (SELECT 'budget.pressure' AS kind, 4 AS share UNION ALL SELECT 'budget.exhausted', 5) AS k
    JOIN tasks t ON t.id = new.account
    WHERE new.spent * 5 >= new.ceiling * k.share
      AND (old.ceiling IS NULL OR old.spent * 5 < old.ceiling * k.share)
    ORDER BY k.share;
END;

-- Events of a task's own channel, and messages. The text of a model that is still answering is not among them.
CREATE TRIGGER feed_event AFTER INSERT ON events
WHEN (substr(new.channel, 1, 5) = 'task:'
      AND CAST(new.payload AS TEXT) NOT LIKE '{"attempt":%,"index":%,"kind":"text","step":%')
    OR substr(new.channel, 1, 6) = 'inbox:' BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    SELECT t.id, iif(substr(new.channel, 1, 5) = 'task:', 'progress', 'message'), t.round, new.at,
           json_array(new.number, new.actor)
    FROM tasks t
    WHERE t.id = substr(new.channel, instr(new.channel, ':') + 1);
END;

CREATE TRIGGER feed_new_worker AFTER INSERT ON workers BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    VALUES ('', 'worker.' || new.state, 0, new.started_at, json_array(new.id, new.label));
END;

-- A worker that has died was last seen before: when that was noticed, no column says.
CREATE TRIGGER feed_changed_worker AFTER UPDATE OF state ON workers WHEN old.state <> new.state BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    VALUES ('', 'worker.' || new.state, 0, new.seen_at, json_array(new.id, new.label));
END;

CREATE TRIGGER feed_new_schedule AFTER INSERT ON schedules WHEN new.fired_at IS NOT NULL BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    VALUES (coalesce(new.last_task_id, ''), 'schedule.fired', 1, new.fired_at, json_array(new.name, new.last_tick_at));
END;

CREATE TRIGGER feed_fired_schedule AFTER UPDATE OF fired_at ON schedules
WHEN new.fired_at IS NOT NULL AND (old.fired_at IS NULL OR old.fired_at < new.fired_at) BEGIN
    INSERT INTO feed (task_id, kind, round, at, data)
    VALUES (coalesce(new.last_task_id, ''), 'schedule.fired', 1, new.fired_at, json_array(new.name, new.last_tick_at));
END;

DROP TRIGGER tasks_schema_insert;
DROP TRIGGER tasks_schema_update;
DROP TRIGGER tasks_schema_delete;
DROP TRIGGER workers_schema_insert;
DROP TRIGGER workers_schema_update;
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_13_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_13_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_13_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_13_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_13_restart_this_process() BEGIN SELECT 1; END;
