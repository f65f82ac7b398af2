-- The schema of a Holdfast store in SQLite.
--
-- Times are whole microseconds since 1970 in UTC; lease expiry alone counts on the machine's boot clock, so that a
-- jump of the wall clock expires nothing. Payloads are canonical JSON bytes in BLOB columns. Every table leads with
-- the id of the document it belongs to (task, channel, worker, entity ...): the JSON store relies on it, and it keeps
-- what is read together on neighbouring pages.
--
-- In the tables every Commit writes, a CHECK compares with one value after the other: for IN (...), SQLite would build a
-- little table of the list anew for each statement, which costs as much as the write itself.

CREATE TABLE tasks (
    id               TEXT    PRIMARY KEY NOT NULL,
    name             TEXT    NOT NULL,
    agent_id         TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    priority         INTEGER NOT NULL,
    key              TEXT,
    schedule         TEXT,
    parent_id        TEXT,
    input_digest     TEXT    NOT NULL,
    search           TEXT    NOT NULL,
    state            TEXT    NOT NULL
        CHECK (state = 'pending' OR state = 'running' OR state = 'waiting' OR state = 'review' OR state = 'completed'
               OR state = 'failed' OR state = 'cancelled'),
    round            INTEGER NOT NULL DEFAULT 1,
    attempts         INTEGER NOT NULL DEFAULT 0,
    deaths           INTEGER NOT NULL DEFAULT 0,
    lone_deaths      INTEGER NOT NULL DEFAULT 0,
    feedback         TEXT,
    cancel_requested TEXT,
    must_undo        INTEGER NOT NULL DEFAULT 0,
    undoing          INTEGER NOT NULL DEFAULT 0,
    owner            TEXT,
    fence            INTEGER NOT NULL DEFAULT 0,
    sequence         INTEGER NOT NULL DEFAULT 0,
    claim            INTEGER NOT NULL DEFAULT 0,
    alone            INTEGER NOT NULL DEFAULT 0,
    revision         INTEGER NOT NULL DEFAULT 1,
    version          INTEGER NOT NULL DEFAULT 0,
    moves            INTEGER NOT NULL DEFAULT 1,
    -- 1: any worker may claim it now; 2: only one that runs nothing else. Kept as a column so that the claim reads
    -- nothing but claimable rows, in order.
    ready            INTEGER NOT NULL DEFAULT 0 CHECK (ready BETWEEN 0 AND 2),
    rank             INTEGER NOT NULL,
    available_at     INTEGER NOT NULL,
    wake_at          INTEGER,
    deadline         INTEGER,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    started_at       INTEGER,
    finished_at      INTEGER,
    CHECK ((finished_at IS NOT NULL) = (state = 'completed' OR state = 'failed' OR state = 'cancelled')),
    CHECK (owner IS NULL OR finished_at IS NULL),
    CHECK (ready = 0 OR (owner IS NULL AND (state = 'pending' OR state = 'review'))),
    CHECK (wake_at IS NULL OR state = 'waiting')
) WITHOUT ROWID, STRICT;

CREATE UNIQUE INDEX tasks_by_key ON tasks (name, key) WHERE key IS NOT NULL;
CREATE INDEX tasks_ready ON tasks (queue, name, rank, id) WHERE ready = 1;
CREATE INDEX tasks_suspect ON tasks (queue, name, rank, id) WHERE ready = 2;
CREATE INDEX tasks_delayed ON tasks (available_at, id) WHERE state = 'pending' AND ready = 0 AND owner IS NULL;
CREATE INDEX tasks_timers ON tasks (wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX tasks_deadlines ON tasks (deadline, id)
    WHERE deadline IS NOT NULL AND owner IS NULL AND undoing = 0
      AND (state = 'waiting' OR (state IN ('pending', 'review') AND must_undo = 0));
CREATE INDEX tasks_owned ON tasks (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX tasks_children ON tasks (parent_id, created_at, id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_open ON tasks (state, created_at, id) WHERE finished_at IS NULL;
CREATE INDEX tasks_listed ON tasks (created_at, id);
CREATE INDEX tasks_finished ON tasks (finished_at, id) WHERE finished_at IS NOT NULL;

CREATE TABLE inputs (
    task_id    TEXT PRIMARY KEY NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    user_input BLOB NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE outcomes (
    task_id TEXT PRIMARY KEY NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    result  BLOB,
    error   BLOB
) WITHOUT ROWID, STRICT;

CREATE TABLE transitions (
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
    -- The same table as model/transitions.py; a test compares them.
    CHECK (from_state IS NULL OR CASE from_state
        WHEN 'pending' THEN to_state = 'running' OR to_state = 'failed' OR to_state = 'cancelled'
        WHEN 'running' THEN to_state = 'completed' OR to_state = 'waiting' OR to_state = 'pending'
                         OR to_state = 'review' OR to_state = 'failed' OR to_state = 'cancelled'
        WHEN 'waiting' THEN to_state = 'pending' OR to_state = 'failed' OR to_state = 'cancelled'
        WHEN 'review' THEN to_state = 'completed' OR to_state = 'pending' OR to_state = 'waiting'
                        OR to_state = 'failed' OR to_state = 'cancelled'
        WHEN 'failed' THEN to_state = 'pending'
        ELSE FALSE END)
) WITHOUT ROWID, STRICT;

CREATE TABLE steps (
    task_id     TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    round       INTEGER NOT NULL,
    key         TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    position    INTEGER NOT NULL,
    state       TEXT    NOT NULL
        CHECK (state = 'completed' OR state = 'running' OR state = 'pending' OR state = 'failed'),
    attempts    INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    digest      TEXT    NOT NULL,
    output      BLOB,
    error       BLOB,
    effect_id   TEXT,
    started_at  INTEGER,
    finished_at INTEGER,
    retry_at    INTEGER,
    undone_at   INTEGER,
    PRIMARY KEY (task_id, round, key)
) WITHOUT ROWID, STRICT;

CREATE TABLE effects (
    task_id        TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    effect_id      TEXT    NOT NULL,
    step_key       TEXT    NOT NULL,
    effect_class   TEXT    NOT NULL
        CHECK (effect_class = 'once' OR effect_class = 'idempotent' OR effect_class = 'pure'),
    state          TEXT    NOT NULL
        CHECK (state = 'armed' OR state = 'done' OR state = 'intended' OR state = 'failed' OR state = 'in_doubt'
               OR state = 'needs_human' OR state = 'compensating' OR state = 'compensated' OR state = 'abandoned'),
    round          INTEGER NOT NULL,
    fence          INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    arguments      BLOB    NOT NULL,
    arguments_hash TEXT    NOT NULL,
    approval_id    TEXT,
    dispatch_by    INTEGER,
    settle_at      INTEGER,
    result         BLOB,
    note           TEXT,
    compensable    INTEGER NOT NULL,
    thread_of      TEXT,
    updated_at     INTEGER NOT NULL,
    PRIMARY KEY (task_id, effect_id)
) WITHOUT ROWID, STRICT;

CREATE INDEX effects_in_doubt ON effects (state, task_id, effect_id)
    WHERE state IN ('armed', 'in_doubt', 'needs_human');
CREATE INDEX effects_by_id ON effects (effect_id, task_id);

CREATE TABLE evidence (
    task_id   TEXT    NOT NULL,
    effect_id TEXT    NOT NULL,
    number    INTEGER NOT NULL,
    fence     INTEGER NOT NULL,
    body      BLOB    NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (task_id, effect_id, number)
) WITHOUT ROWID, STRICT;

CREATE TABLE patches (
    task_id  TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    version  INTEGER NOT NULL,
    body     BLOB    NOT NULL,
    author   TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    step_key TEXT,
    round    INTEGER NOT NULL,
    PRIMARY KEY (task_id, version)
) WITHOUT ROWID, STRICT;

CREATE TABLE checkpoints (
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    body       BLOB    NOT NULL,
    checksum   TEXT    NOT NULL,
    schema     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    damaged    TEXT,
    PRIMARY KEY (task_id, number)
) WITHOUT ROWID, STRICT;

CREATE TABLE approvals (
    task_id        TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    id             TEXT NOT NULL UNIQUE,
    kind           TEXT NOT NULL,
    step_key       TEXT NOT NULL,
    question       TEXT NOT NULL,
    risk           TEXT,
    arguments      BLOB NOT NULL,
    arguments_hash TEXT NOT NULL,
    policy         TEXT,
    requested_by   TEXT NOT NULL,
    deciders       BLOB NOT NULL,
    expires_at     INTEGER,
    fallback       TEXT NOT NULL CHECK (fallback IN ('approved', 'rejected')),
    state          TEXT NOT NULL
        CHECK (state IN ('open', 'approved', 'rejected', 'answered', 'expired', 'void', 'closed')),
    answer         BLOB,
    decided_by     TEXT,
    note           TEXT,
    consumed_by    TEXT,
    created_at     INTEGER NOT NULL,
    decided_at     INTEGER,
    PRIMARY KEY (task_id, id),
    CHECK ((state = 'open') = (decided_at IS NULL))
) WITHOUT ROWID, STRICT;

CREATE INDEX approvals_open ON approvals (id) WHERE state = 'open';
CREATE INDEX approvals_expiring ON approvals (expires_at, id) WHERE state = 'open' AND expires_at IS NOT NULL;

CREATE TABLE waits (
    task_id     TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    key         TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('time', 'event', 'children', 'decided', 'woken')),
    due_at      INTEGER,
    channel     TEXT,
    after       INTEGER,
    remaining   INTEGER,
    approval_id TEXT,
    PRIMARY KEY (task_id, key)
) WITHOUT ROWID, STRICT;

CREATE INDEX waits_for_channel ON waits (channel, task_id) WHERE channel IS NOT NULL;

-- One row a child that a waiting parent still counts on; the child's end removes it and lowers waits.remaining.
CREATE TABLE joins (
    task_id  TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    key      TEXT NOT NULL,
    child_id TEXT NOT NULL,
    PRIMARY KEY (task_id, key, child_id)
) WITHOUT ROWID, STRICT;

CREATE INDEX joins_by_child ON joins (child_id);

-- Commits from outside a lease that were applied, so that a re-sent one is recognised.
CREATE TABLE requests (
    task_id TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    request TEXT NOT NULL,
    PRIMARY KEY (task_id, request)
) WITHOUT ROWID, STRICT;

CREATE TABLE artifact_links (
    task_id     TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    artifact_id TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    summary     TEXT    NOT NULL,
    bytes       INTEGER NOT NULL,
    step        TEXT,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (task_id, artifact_id)
) WITHOUT ROWID, STRICT;

CREATE INDEX artifact_links_by_artifact ON artifact_links (artifact_id);

-- A limit that is NULL is unlimited.
CREATE TABLE accounts (
    account  TEXT    NOT NULL,
    meter    TEXT    NOT NULL,
    ceiling  INTEGER,
    spent    INTEGER NOT NULL DEFAULT 0,
    reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    PRIMARY KEY (account, meter)
) WITHOUT ROWID, STRICT;

CREATE TABLE reservations (
    task_id  TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    account  TEXT    NOT NULL,
    meter    TEXT    NOT NULL,
    step_key TEXT    NOT NULL,
    fence    INTEGER NOT NULL,
    amount   INTEGER NOT NULL,
    PRIMARY KEY (task_id, account, meter, step_key, fence)
) WITHOUT ROWID, STRICT;

CREATE INDEX reservations_by_account ON reservations (account);

CREATE TABLE workers (
    id         TEXT    PRIMARY KEY NOT NULL,
    label      TEXT    NOT NULL,
    lease      INTEGER NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('live', 'draining', 'dead')),
    claims     INTEGER NOT NULL DEFAULT 0,
    details    BLOB    NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    boot_id    TEXT    NOT NULL,
    expires    INTEGER NOT NULL,
    -- Dead, and every task it held was taken back.
    cleared    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID, STRICT;

CREATE INDEX workers_alive ON workers (id) WHERE state <> 'dead';
CREATE INDEX workers_to_clear ON workers (id) WHERE state = 'dead' AND cleared = 0;

CREATE TABLE channels (
    channel TEXT    PRIMARY KEY NOT NULL,
    last    INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE events (
    channel TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    key     TEXT,
    payload BLOB    NOT NULL,
    actor   TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (channel, number)
) WITHOUT ROWID, STRICT;

CREATE UNIQUE INDEX events_by_key ON events (channel, key) WHERE key IS NOT NULL;
CREATE INDEX events_by_age ON events (at);

-- `content` names the chunks: by the artifact's own id, or by that of the upload it came with.
CREATE TABLE artifacts (
    id         TEXT    PRIMARY KEY NOT NULL,
    size       INTEGER NOT NULL,
    media_type TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    content    TEXT    NOT NULL
) WITHOUT ROWID, STRICT;

CREATE INDEX artifacts_by_age ON artifacts (created_at);

-- Chunks, so that a range of a large artifact is read without the rest of it.
CREATE TABLE artifact_chunks (
    content TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (content, number)
) STRICT;

-- Streams that have not ended: their chunks are stored, but of no artifact yet.
CREATE TABLE uploads (
    id         TEXT    PRIMARY KEY NOT NULL,
    renewed_at INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- A fact is about a subject: an attribute of an entity and, for a relation, the other entity ('' for any other fact).
CREATE TABLE facts (
    entity        TEXT    NOT NULL,
    number        INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    attribute     TEXT    NOT NULL,
    other         TEXT    NOT NULL,
    value         BLOB    NOT NULL,
    confidence    REAL    NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    half_life     INTEGER CHECK (half_life > 0),
    source        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    verified_at   INTEGER,
    verified_by   TEXT,
    superseded_by TEXT,
    words         TEXT    NOT NULL
) STRICT;

CREATE INDEX facts_by_subject ON facts (entity, attribute, created_at, id);
CREATE INDEX facts_by_age ON facts (created_at, id);
CREATE INDEX facts_live ON facts (entity, attribute, other) WHERE superseded_by IS NULL;
CREATE INDEX facts_by_other ON facts (other) WHERE superseded_by IS NULL AND other <> '';

-- Changes with every change of the subject, to something it never was before: who decided on what it was finds out.
-- It goes with the last fact, so that what is forgotten leaves no name behind.
CREATE TABLE subjects (
    entity    TEXT NOT NULL,
    attribute TEXT NOT NULL,
    other     TEXT NOT NULL,
    mark      TEXT NOT NULL,
    PRIMARY KEY (entity, attribute, other)
) WITHOUT ROWID, STRICT;

-- The words of the live facts. They come split and folded (holdfast.model.words): what is ASCII in them is letters and
-- digits, and to this tokenizer all other characters are part of a word, so it splits at the spaces and nowhere else.
-- Triggers, because the JSON store writes rows of its own accord when it opens.
CREATE VIRTUAL TABLE fact_words USING fts5 (
    words, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii'
);

CREATE TRIGGER fact_is_stored AFTER INSERT ON facts WHEN new.superseded_by IS NULL BEGIN
    INSERT INTO fact_words (rowid, words) VALUES (new.number, new.words);
END;

CREATE TRIGGER fact_is_changed AFTER UPDATE ON facts
WHEN old.words <> new.words OR (old.superseded_by IS NULL) <> (new.superseded_by IS NULL) BEGIN
    DELETE FROM fact_words WHERE rowid = old.number;
    INSERT INTO fact_words (rowid, words) SELECT new.number, new.words WHERE new.superseded_by IS NULL;
END;

CREATE TRIGGER fact_is_forgotten AFTER DELETE ON facts WHEN old.superseded_by IS NULL BEGIN
    DELETE FROM fact_words WHERE rowid = old.number;
END;

-- A fact as the model shows it: its columns, in the order in which they are read.
CREATE VIEW fact_records AS
SELECT entity, id, attribute, value, confidence, source, created_at, verified_at, superseded_by, half_life,
       verified_by, other, number
FROM facts;

-- A task as people see it: the row with its payloads.
CREATE VIEW task_records AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       t.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version,
       t.rank, t.ready, t.alone, t.claim, t.search, t.moves
FROM tasks t
JOIN inputs i ON i.task_id = t.id
LEFT JOIN outcomes o ON o.task_id = t.id;
