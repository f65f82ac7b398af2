-- Which events a task sees is decided by numbers, never by time: a clock may step back.
--
-- Every event gets a position, one number for all channels, and a task keeps the last one that was given out when it was
-- submitted. Writers take turns, so that is exact. (PostgreSQL has to keep more: its writers overlap.)
--
-- Events from before this migration have position 0, and tasks from before it have none. Such a task keeps the rule by
-- time for such events; every event since is later than it.

-- The position of the channel's last event. Channels outlive their events, so the highest one here is the last that was
-- given out, whatever was pruned. A column of the channel and no counter of its own: the JSON store keeps no other row.
ALTER TABLE channels ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
CREATE INDEX channels_by_position ON channels (position);

ALTER TABLE events ADD COLUMN position INTEGER NOT NULL DEFAULT 0;

ALTER TABLE inputs ADD COLUMN event_position INTEGER;

-- A process of an older version that has the file open knows nothing of all this, and its statements live in its own
-- code. These triggers make it fail at its next write: it has no function of this name. A process of this version has one
-- (connection.py makes one for each schema it knows), and no trigger ever runs. For SQLite, the name is looked up when a
-- statement is prepared, but a condition that begins with FALSE is never evaluated.
--
-- How a later migration does it again: drop these triggers, and create them with its own number in the function's name.
CREATE TRIGGER tasks_schema_insert AFTER INSERT ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_update AFTER UPDATE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER tasks_schema_delete AFTER DELETE ON tasks
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_insert AFTER INSERT ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER workers_schema_update AFTER UPDATE ON workers
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER events_schema_insert AFTER INSERT ON events
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER events_schema_delete AFTER DELETE ON events
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER evidence_schema_insert AFTER INSERT ON evidence
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER artifacts_schema_insert AFTER INSERT ON artifacts
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER artifacts_schema_update AFTER UPDATE ON artifacts
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER uploads_schema_insert AFTER INSERT ON uploads
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER uploads_schema_update AFTER UPDATE ON uploads
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER facts_schema_insert AFTER INSERT ON facts
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER facts_schema_update AFTER UPDATE ON facts
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
CREATE TRIGGER facts_schema_delete AFTER DELETE ON facts
WHEN FALSE AND holdfast_was_upgraded_to_schema_2_restart_this_process() BEGIN SELECT 1; END;
