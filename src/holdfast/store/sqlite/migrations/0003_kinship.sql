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
