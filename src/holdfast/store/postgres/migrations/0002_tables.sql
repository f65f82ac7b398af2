-- Everything that is kept, and the indexes that find it.
--
-- * Every table that belongs to tasks leads with the task's id, so that a sharded PostgreSQL can keep a task together.
-- * COLLATE "C" sorts text by code point, as Python does, whatever the database's locale.
-- * Payloads are bytea: jsonb refuses NUL, lone surrogates and duplicate keys, and would not give the same bytes back.
-- * No foreign keys: a row of a task is only written by a function that holds the task's row lock, and deleted
--   together with it by prune(). A foreign key would add a lookup and a lock to every step.

CREATE TABLE {schema}.tasks (
    id text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    key text COLLATE "C",
    available_at timestamptz NOT NULL,
    deadline timestamptz,
    schedule text COLLATE "C",
    parent_id text COLLATE "C",
    round integer NOT NULL DEFAULT 1,
    attempts integer NOT NULL DEFAULT 0,
    deaths integer NOT NULL DEFAULT 0,
    lone_deaths integer NOT NULL DEFAULT 0,
    feedback text,
    cancel_requested text,
    must_undo boolean NOT NULL DEFAULT false,
    owner text COLLATE "C",
    fence bigint NOT NULL DEFAULT 0,
    sequence bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 1,
    version bigint NOT NULL DEFAULT 0,
    -- From here on: what the store needs and no Task shows.
    ready smallint NOT NULL,
    rank timestamptz NOT NULL,
    alone boolean NOT NULL DEFAULT false,
    claim bigint NOT NULL DEFAULT 0,
    wake_at timestamptz,
    moves integer NOT NULL DEFAULT 1,
    undoing boolean NOT NULL DEFAULT false,
    CONSTRAINT sound CHECK ({schema}.is_sound(state, owner, finished_at, ready, wake_at, alone))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
-- The free 30 % of each page take the new version of a row when a step is committed (a HOT update: no index is
-- touched). That holds as long as no index names sequence, revision, updated_at or version.

-- What a claim looks through: LATERAL per queue and name, in order of rank.
CREATE INDEX tasks_ready ON {schema}.tasks (queue, name, rank, id) WHERE ready = 1;
-- The same for suspects, which are handed out alone.
CREATE INDEX tasks_suspect ON {schema}.tasks (queue, name, rank, id) WHERE ready = 2;
-- What a worker holds: for heartbeats, take-overs and lost claim answers.
CREATE INDEX tasks_owned ON {schema}.tasks (owner, id) WHERE owner IS NOT NULL;
-- Delayed tasks, by the moment at which a sweep makes them ready.
CREATE INDEX tasks_delayed ON {schema}.tasks (available_at, id)
    WHERE ready = 0 AND state = 'pending' AND owner IS NULL;
-- Waiting tasks with a timer.
CREATE INDEX tasks_timers ON {schema}.tasks (wake_at, id) WHERE wake_at IS NOT NULL;
-- Deadlines that a sweep acts on: nobody holds the task, and it is neither queued to undo its steps nor undoing them.
CREATE INDEX tasks_deadlines ON {schema}.tasks (deadline, id)
    WHERE deadline IS NOT NULL AND owner IS NULL AND NOT undoing
    AND (state = 'waiting' OR (state IN ('pending', 'review') AND NOT must_undo));
-- Listings of open tasks; it stays small, because most tasks of an old store have ended.
CREATE INDEX tasks_open ON {schema}.tasks (state, id) WHERE finished_at IS NULL;
CREATE INDEX tasks_children ON {schema}.tasks (parent_id, id) WHERE parent_id IS NOT NULL;
-- What prune looks through.
CREATE INDEX tasks_finished ON {schema}.tasks (finished_at, id) WHERE finished_at IS NOT NULL;

-- What never changes of a task. Kept apart, it is not copied with every update of the task's row, and neither is the
-- entry in the index for listings, by age.
CREATE TABLE {schema}.inputs (
    task_id text COLLATE "C" PRIMARY KEY,
    created_at timestamptz NOT NULL,
    user_input bytea NOT NULL,
    digest text COLLATE "C" NOT NULL,
    search text NOT NULL
);
CREATE INDEX inputs_created ON {schema}.inputs (created_at, task_id);

-- Result and error, where there is one.
CREATE TABLE {schema}.outcomes (
    task_id text COLLATE "C" PRIMARY KEY,
    result bytea,
    error bytea
);

-- Idempotency keys. A table of their own, so that an insert can lose the race for a key without an error.
CREATE TABLE {schema}.task_keys (
    name text COLLATE "C",
    key text COLLATE "C",
    task_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, key)
);

CREATE TABLE {schema}.transitions (
    task_id text COLLATE "C",
    number integer,
    from_state text COLLATE "C",
    to_state text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    actor text NOT NULL,
    fence bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (task_id, number),
    CONSTRAINT legal_move CHECK (
        CASE WHEN number = 1 THEN from_state IS NULL ELSE {schema}.is_legal_move(from_state, to_state) END
    )
);

-- The requests of outsiders that were applied: how a re-sent one is recognised.
CREATE TABLE {schema}.requests (
    task_id text COLLATE "C",
    request text COLLATE "C",
    PRIMARY KEY (task_id, request)
);

CREATE TABLE {schema}.steps (
    task_id text COLLATE "C",
    round integer,
    key text COLLATE "C",
    kind text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('pending', 'running', 'completed', 'failed')),
    attempts integer NOT NULL,
    fence bigint NOT NULL,
    digest text COLLATE "C" NOT NULL,
    output bytea,
    error bytea,
    effect_id text COLLATE "C",
    started_at timestamptz,
    finished_at timestamptz,
    retry_at timestamptz,
    undone_at timestamptz,
    PRIMARY KEY (task_id, round, key)
) WITH (fillfactor = 90);

CREATE TABLE {schema}.effects (
    task_id text COLLATE "C",
    effect_id text COLLATE "C",
    step_key text COLLATE "C" NOT NULL,
    effect_class text COLLATE "C" NOT NULL CHECK (effect_class IN ('pure', 'idempotent', 'once')),
    state text COLLATE "C" NOT NULL CHECK (
        state IN ('intended', 'armed', 'done', 'failed', 'in_doubt', 'needs_human',
                  'compensating', 'compensated', 'abandoned')
    ),
    round integer NOT NULL,
    fence bigint NOT NULL,
    attempt integer NOT NULL,
    arguments bytea NOT NULL,
    arguments_hash text COLLATE "C" NOT NULL,
    approval_id text COLLATE "C",
    dispatch_by timestamptz,
    settle_at timestamptz,
    result bytea,
    note text,
    compensable boolean NOT NULL,
    thread_of text COLLATE "C",
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (task_id, effect_id)
);
-- Doubts, across all tasks; an armed effect is one, too, once the fence it was armed under is over.
CREATE INDEX effects_in_doubt ON {schema}.effects (state, task_id, effect_id)
    WHERE state IN ('armed', 'in_doubt', 'needs_human');
-- People know an effect by its id alone.
CREATE INDEX effects_by_id ON {schema}.effects (effect_id, task_id);

-- What fenced workers learned too late. Insert-only.
CREATE TABLE {schema}.evidence (
    task_id text COLLATE "C",
    effect_id text COLLATE "C",
    number bigint GENERATED ALWAYS AS IDENTITY,
    fence bigint NOT NULL,
    body bytea NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (task_id, effect_id, number)
);

CREATE TABLE {schema}.patches (
    task_id text COLLATE "C",
    version bigint,
    body bytea NOT NULL,
    author text NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL,
    step_key text COLLATE "C",
    round integer NOT NULL,
    PRIMARY KEY (task_id, version)
);

CREATE TABLE {schema}.checkpoints (
    task_id text COLLATE "C",
    number bigint,
    position bigint NOT NULL,
    version bigint NOT NULL,
    body bytea NOT NULL,
    checksum text COLLATE "C" NOT NULL,
    schema integer NOT NULL,
    created_at timestamptz NOT NULL,
    damaged text,
    PRIMARY KEY (task_id, number)
);

CREATE TABLE {schema}.approvals (
    task_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" PRIMARY KEY,
    kind text COLLATE "C" NOT NULL,
    step_key text COLLATE "C" NOT NULL,
    question text NOT NULL,
    risk text,
    arguments bytea NOT NULL,
    arguments_hash text COLLATE "C" NOT NULL,
    policy text,
    requested_by text NOT NULL,
    deciders text[] NOT NULL,
    expires_at timestamptz,
    fallback text COLLATE "C" NOT NULL CHECK (fallback IN ('approved', 'rejected')),
    state text COLLATE "C" NOT NULL CHECK (
        state IN ('open', 'approved', 'rejected', 'answered', 'expired', 'void', 'closed')
    ),
    answer bytea,
    decided_by text,
    note text,
    consumed_by text COLLATE "C",
    created_at timestamptz NOT NULL,
    decided_at timestamptz
);
CREATE INDEX approvals_of_task ON {schema}.approvals (task_id, id);
CREATE INDEX approvals_open ON {schema}.approvals (task_id, id) WHERE state = 'open';
CREATE INDEX approvals_expiring ON {schema}.approvals (expires_at, id) WHERE state = 'open' AND expires_at IS NOT NULL;

-- Budget: what each meter of an account stands at. A counter row, never a sum over steps.
CREATE TABLE {schema}.accounts (
    account text COLLATE "C",
    meter text COLLATE "C",
    ceiling bigint,
    spent bigint NOT NULL DEFAULT 0,
    reserved bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (account, meter)
) WITH (fillfactor = 80);

CREATE TABLE {schema}.reservations (
    task_id text COLLATE "C",
    account text COLLATE "C",
    meter text COLLATE "C",
    step_key text COLLATE "C",
    fence bigint,
    amount bigint NOT NULL,
    PRIMARY KEY (task_id, account, meter, step_key, fence)
);
CREATE INDEX reservations_by_account ON {schema}.reservations (account);

-- What a waiting task waits for. All of a task's waits go when it leaves that state.
CREATE TABLE {schema}.waits (
    task_id text COLLATE "C",
    key text COLLATE "C",
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('time', 'event', 'children', 'decided', 'woken')),
    at timestamptz,
    channel text COLLATE "C",
    after bigint,
    approval_id text COLLATE "C",
    remaining integer,
    PRIMARY KEY (task_id, key)
);
CREATE INDEX waits_for_events ON {schema}.waits (channel, after, task_id) WHERE kind = 'event';

-- Which open children the join of a waiting task still counts; waits.remaining is their number.
CREATE TABLE {schema}.joins (
    child_id text COLLATE "C",
    task_id text COLLATE "C",
    key text COLLATE "C",
    PRIMARY KEY (child_id, task_id, key)
);
CREATE INDEX joins_of_task ON {schema}.joins (task_id);

-- One row for each channel: the counter of its events, and the lock on which those who wait and those who emit meet.
CREATE TABLE {schema}.channels (
    channel text COLLATE "C" PRIMARY KEY,
    last_number bigint NOT NULL DEFAULT 0
);

CREATE TABLE {schema}.events (
    channel text COLLATE "C",
    number bigint,
    payload bytea NOT NULL,
    actor text NOT NULL,
    key text COLLATE "C",
    at timestamptz NOT NULL,
    PRIMARY KEY (channel, number)
);
CREATE UNIQUE INDEX events_by_key ON {schema}.events (channel, key) WHERE key IS NOT NULL;
CREATE INDEX events_by_age ON {schema}.events (at, channel, number);

-- `content` names the chunks: by the artifact's own id, or by that of the upload it came with.
CREATE TABLE {schema}.artifacts (
    id text COLLATE "C" PRIMARY KEY,
    size bigint NOT NULL,
    media_type text NOT NULL,
    created_at timestamptz NOT NULL,
    content text COLLATE "C" NOT NULL
);
CREATE INDEX artifacts_by_age ON {schema}.artifacts (created_at, id);

-- Chunks, so that a range of a large artifact is read without the rest of it, and a stream stored as it comes.
CREATE TABLE {schema}.artifact_chunks (
    content text COLLATE "C",
    number bigint,
    body bytea NOT NULL,
    PRIMARY KEY (content, number)
);
-- Uncompressed: much of it is compressed already, and the rest is not worth the time at every read.
ALTER TABLE {schema}.artifact_chunks ALTER COLUMN body SET STORAGE EXTERNAL;

-- Streams that have not ended: their chunks are stored, but of no artifact yet.
CREATE TABLE {schema}.uploads (
    id text COLLATE "C" PRIMARY KEY,
    renewed_at timestamptz NOT NULL
);

CREATE TABLE {schema}.artifact_links (
    task_id text COLLATE "C",
    artifact_id text COLLATE "C",
    name text NOT NULL,
    type text NOT NULL,
    summary text NOT NULL,
    bytes bigint NOT NULL,
    step text,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (task_id, artifact_id)
);
CREATE INDEX artifact_links_by_artifact ON {schema}.artifact_links (artifact_id);

-- A fact is about a subject: an attribute of an entity and, for a relation, the other entity ('' for any other fact).
CREATE TABLE {schema}.facts (
    id text COLLATE "C" PRIMARY KEY,
    entity text COLLATE "C" NOT NULL,
    attribute text COLLATE "C" NOT NULL,
    other text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    confidence double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    half_life bigint CHECK (half_life > 0),
    source text NOT NULL,
    created_at timestamptz NOT NULL,
    verified_at timestamptz,
    verified_by text,
    superseded_by text COLLATE "C",
    words tsvector NOT NULL
);
CREATE INDEX facts_by_subject ON {schema}.facts (entity, attribute, created_at, id);
CREATE INDEX facts_by_age ON {schema}.facts (created_at, id);
CREATE INDEX facts_live ON {schema}.facts (entity, attribute, other) WHERE superseded_by IS NULL;
CREATE INDEX facts_by_other ON {schema}.facts (other) WHERE superseded_by IS NULL AND other <> '';
CREATE INDEX facts_by_word ON {schema}.facts USING gin (words) WHERE superseded_by IS NULL;

-- Changes with every change of the subject, to something it never was before: who decided on what it was finds out.
-- It goes with the last fact, so that what is forgotten leaves no name behind.
CREATE TABLE {schema}.subjects (
    entity text COLLATE "C",
    attribute text COLLATE "C",
    other text COLLATE "C",
    mark text COLLATE "C" NOT NULL,
    PRIMARY KEY (entity, attribute, other)
);

-- A fact as the model shows it: its columns, in the order in which they are read. half_life is in microseconds.
CREATE VIEW {schema}.fact_records AS
SELECT entity, id, attribute, value, confidence, source, created_at, verified_at, superseded_by, half_life,
       verified_by, other, words
FROM {schema}.facts;

CREATE TABLE {schema}.workers (
    id text COLLATE "C" PRIMARY KEY,
    label text NOT NULL,
    lease double precision NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('live', 'draining', 'dead')),
    claims bigint NOT NULL DEFAULT 0,
    details bytea NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    emptied boolean NOT NULL DEFAULT false,
    CONSTRAINT only_the_dead_are_emptied CHECK (state = 'dead' OR NOT emptied)
) WITH (fillfactor = 50);
-- The few workers a sweep has to look at: the living, and the dead that still hold tasks.
CREATE INDEX workers_of_interest ON {schema}.workers (state, id) WHERE NOT emptied;

-- A task as the model shows it: the columns of Task, in its order.
CREATE VIEW {schema}.task_records AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       i.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version
FROM {schema}.tasks t
JOIN {schema}.inputs i ON i.task_id = t.id
LEFT JOIN {schema}.outcomes o ON o.task_id = t.id;
