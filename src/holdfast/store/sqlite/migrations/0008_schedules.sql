-- Schedules: what is submitted again and again. A caller that changes a row names the revision that it has seen, so that
-- of all workers that fire a tick one does. The rules of the times live in holdfast.model.due_schedule.

CREATE TABLE schedules (
    name           TEXT    PRIMARY KEY NOT NULL,
    spec           BLOB    NOT NULL,
    anchored_at    INTEGER NOT NULL,
    tick_at        INTEGER NOT NULL,
    -- NULL: it fires nothing.
    due_at         INTEGER,
    waits_for_last INTEGER NOT NULL,
    declared       INTEGER NOT NULL,
    declared_by    TEXT,
    paused_at      INTEGER,
    paused_by      TEXT,
    pause_reason   TEXT,
    last_tick_at   INTEGER,
    last_task_id   TEXT,
    fired_at       INTEGER,
    skipped_at     INTEGER,
    created_at     INTEGER NOT NULL,
    revision       INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE INDEX schedules_due ON schedules (due_at, name) WHERE due_at IS NOT NULL;
CREATE INDEX schedules_declared ON schedules (declared_by, name) WHERE declared_by IS NOT NULL;

-- A schedule as the model shows it: the row, how its last task stands, and whether the worker that declares it lives.
CREATE VIEW shown_schedules AS
SELECT s.*, t.state AS last_state, t.finished_at AS last_ended_at,
       EXISTS (SELECT 1 FROM workers w WHERE w.id = s.declared_by AND w.state <> 'dead') AS declarer_lives
FROM schedules s LEFT JOIN tasks t ON t.id = s.last_task_id;

-- A process of the version before would fire nothing, and its workers would declare nothing. These make it fail at its next
-- write, so that it is restarted; 0002 says how.
DROP TRIGGER tasks_schema_insert;
DROP TRIGGER tasks_schema_update;
DROP TRIGGER tasks_schema_delete;
DROP TRIGGER workers_schema_insert;
DROP TRIGGER workers_schema_update;
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_8_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_8_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_8_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_8_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_8_restart_this_process() BEGIN SELECT 1; END;
