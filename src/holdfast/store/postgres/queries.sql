-- The statements that the PostgreSQL store sends. Whatever needs more than one of them at once is a function of the
-- schema (migrations/): one call is one statement and one transaction, so no lock outlives a client's pause, and it
-- works behind a pooler that gives a connection away after each transaction.
--
-- {step}, {task} and so on stand for the columns of that record: the parameters of the method of store/records.py that
-- reads the row. Times are the database's. A test's ManualClock passes its own; all other processes pass NULL.

-- name: now
SELECT coalesce($1::timestamptz, clock_timestamp())

-- name: submit
SELECT n, task_id, created, conflict FROM {schema}.submit($1::json, $2::bytea[], $3, $4)

-- name: whereabouts
-- Which server this is, and which of its databases. A copy of a database has other ones, although all its rows are equal.
SELECT extract(epoch FROM pg_postmaster_start_time())::text,
       (SELECT d.oid::text FROM pg_database d WHERE d.datname = current_database())

-- name: submit_within
-- submit, in the transaction of a caller's own connection, if that leads to the database that the first two values name
-- and is at the right isolation level; otherwise nothing is submitted, and the first columns say why. All values are text,
-- because each driver writes other types in its own way, and ASCII, because the connection may have any encoding; CAST because
-- SQLAlchemy reads $1::text as another name.
SELECT here.server, here.database, here.isolation, s.n, s.task_id, s.created, s.conflict
FROM (
    SELECT extract(epoch FROM pg_postmaster_start_time())::text AS server,
           (SELECT d.oid::text FROM pg_database d WHERE d.datname = current_database()) AS database,
           current_setting('transaction_isolation') AS isolation
) AS here
LEFT JOIN LATERAL {schema}.submit(
    CASE
        WHEN here.server = CAST($1 AS text) AND here.database = CAST($2 AS text) AND here.isolation = 'read committed'
        THEN CAST(convert_from(decode(CAST($3 AS text), 'base64'), 'UTF8') AS json) ELSE '[]'
    END,
    ARRAY(
        SELECT decode(p.payload, 'base64')
        FROM json_array_elements_text(CAST(CAST($4 AS text) AS json)) WITH ORDINALITY AS p (payload, place) ORDER BY p.place),
    CAST(CAST($5 AS text) AS boolean),
    CAST(CAST($6 AS text) AS timestamptz)
) AS s ON true

-- name: submit_one
-- The short way for a lone task: one statement, planned once. No row: its id or its key is taken, and submit finds out
-- by what. If another process stores the same id just now, the insert fails and nothing stays of the key either.
WITH begun AS MATERIALIZED (
    SELECT coalesce($1, clock_timestamp()) AS moment
    WHERE NOT EXISTS (SELECT FROM {schema}.tasks WHERE id = $2)
), keyed AS (
    INSERT INTO {schema}.task_keys (name, key, task_id) SELECT $3, $15, $2 FROM begun WHERE $15::text IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING key
), stored AS (
    INSERT INTO {schema}.tasks (
        id, name, agent_id, state, updated_at, queue, priority, key, available_at, deadline, schedule, parent_id,
        ready, rank, labels, limits)
    SELECT $2, $3, $4, 'pending', moment, $5, $6, $15, a.available_at, $8, $9, $10,
           {schema}.readiness('pending', NULL, a.available_at, 0, moment), {schema}.rank_of(a.available_at, $6),
           $16::jsonb, $17::text[]
    FROM begun, LATERAL (SELECT coalesce($7, moment) AS available_at) AS a
    WHERE $15::text IS NULL OR EXISTS (SELECT FROM keyed)
    RETURNING id
), given AS (
    INSERT INTO {schema}.inputs (task_id, created_at, user_input, digest, search)
    SELECT id, moment, $11, $12, $13 FROM stored, begun
), moved AS (
    INSERT INTO {schema}.transitions (task_id, number, to_state, reason, actor, fence, at)
    SELECT id, 1, 'pending', 'submitted', $14, 0, moment FROM stored, begun
)
SELECT id FROM stored

-- name: register
SELECT {worker} FROM {schema}.register($1, $2, $3, $4, $5)

-- name: heartbeat
-- Also, from the few rows of the migrations: the oldest version whose workers may claim, and the schema's version.
SELECT h.cancel_requested, h.suspects, h.paused, m.oldest, m.newest
FROM {schema}.heartbeat($1, $2) AS h,
     (SELECT max(coalesce(oldest, version)) AS oldest, max(version) AS newest FROM {schema}.migrations) AS m

-- name: versions
-- The same two for a worker that begins, between two heartbeats.
SELECT max(coalesce(oldest, version)) AS oldest, max(version) AS newest FROM {schema}.migrations

-- name: drain
SELECT {schema}.drain($1)

-- name: retire
SELECT handed_back, hints FROM {schema}.retire($1, $2)

-- name: claim
SELECT c.id, c.fresh, c.lone FROM {schema}.claim($1, $2, $3, $4::text[], $5::text[], $6, $7, $8, $9) AS c

-- name: has_suspect
SELECT EXISTS (
    SELECT FROM {schema}.tasks t
    WHERE t.ready = 2 AND t.held = 0 AND t.queue = ANY ($1::text[]) AND t.name = ANY ($2::text[]) AND t.key_form <= $3
      AND NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.subject IN ('queue:' || t.queue, 'task:' || t.name))
      AND NOT {schema}.is_at_work(t.queue))

-- name: acquire
SELECT c.id, c.fresh, c.lone FROM {schema}.acquire($1, $2, $3, $4) AS c

-- name: held_tasks
-- Those of these tasks that the worker still holds, in the order asked for.
SELECT {r.task} FROM unnest($1::text[]) WITH ORDINALITY AS wanted (id, n)
JOIN {schema}.shown_tasks r ON r.id = wanted.id WHERE r.owner = $2 ORDER BY wanted.n

-- name: owned
-- What a worker holds, from the partial index of owned tasks.
SELECT {lease} FROM {schema}.tasks WHERE owner = $1 ORDER BY id

-- name: pause
SELECT {pause} FROM {schema}.pause($1, $2, $3, $4, $5)

-- name: unpause
SELECT {schema}.unpause($1, $2)

-- name: set_queue
SELECT {schema}.set_retention($1, $2::jsonb), {schema}.set_queue($1, $2::jsonb)

-- name: settings_of_queue
SELECT {queue_settings} FROM {schema}.shown_queues WHERE name = $1

-- name: queue_settings
SELECT {queue_settings} FROM {schema}.shown_queues ORDER BY name

-- name: pause_limit
SELECT {pause} FROM {schema}.pause_limit($1, $2, $3, $4)

-- name: unpause_limit
SELECT {schema}.unpause_limit($1)

-- name: set_limit
SELECT {schema}.set_limit($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: limits
SELECT {limit} FROM {schema}.limits ORDER BY name

-- name: limit_uses
-- How keys stand, of the limit $1 or of all. First those with anything to show: the keys that have or had permits, those for
-- which something is noted, and those with a line, each of which is found by one step in the index of the lines. Tasks that
-- are claimable wait as well, and those that have to get their turns first: a claim may find the key full.
WITH RECURSIVE now AS MATERIALIZED (
    SELECT coalesce($3::timestamptz, clock_timestamp()) AS moment
), in_line AS (
    (SELECT t.waits_for AS key FROM {schema}.tasks t WHERE t.ready >= 1 AND t.held = 2 ORDER BY t.waits_for LIMIT 1)
    UNION ALL
    SELECT n.key FROM in_line l, LATERAL (
        SELECT t.waits_for AS key FROM {schema}.tasks t
        WHERE t.ready >= 1 AND t.held = 2 AND t.waits_for > l.key ORDER BY t.waits_for LIMIT 1) AS n
), let_out AS (
    (SELECT t.waits_for AS key FROM {schema}.tasks t
     WHERE t.ready >= 1 AND t.held = 0 AND t.waits_for IS NOT NULL ORDER BY t.waits_for LIMIT 1)
    UNION ALL
    SELECT n.key FROM let_out l, LATERAL (
        SELECT t.waits_for AS key FROM {schema}.tasks t
        WHERE t.ready >= 1 AND t.held = 0 AND t.waits_for IS NOT NULL AND t.waits_for > l.key
        ORDER BY t.waits_for LIMIT 1) AS n
), found AS MATERIALIZED (
    SELECT k.key FROM {schema}.limit_keys k
    UNION SELECT c.key FROM {schema}.limit_changes c
    UNION SELECT l.key FROM in_line l
    UNION SELECT l.key FROM let_out l
), counted AS MATERIALIZED (
    SELECT f.key, l.name,
           coalesce(k.taken, 0) + (SELECT coalesce(sum(c.change), 0) FROM {schema}.limit_changes c WHERE c.key = f.key) AS taken,
           (SELECT coalesce(sum(u.calls), 0) FROM {schema}.limit_uses u WHERE u.key = f.key AND u.until > now.moment) AS calls,
           (SELECT coalesce(sum(u.tokens), 0) FROM {schema}.limit_uses u WHERE u.key = f.key AND u.until > now.moment)
               + (SELECT coalesce(sum(c.tokens), 0) FROM {schema}.limit_changes c
                  JOIN {schema}.limit_uses u ON u.key = c.key AND u.until = c.until
                  WHERE c.key = f.key AND c.until > now.moment) AS tokens,
           CASE WHEN k.closed_until > now.moment THEN k.closed_until END AS closed_until,
           f.key IN (SELECT key FROM in_line UNION ALL SELECT key FROM let_out) OR EXISTS (
               SELECT FROM {schema}.tasks t WHERE t.waits_for = f.key AND t.ready >= 1 AND t.held IN (4, 6)
               AND t.waits_for IS NOT NULL) AS has_line,
           (SELECT count(*) FROM {schema}.permits p
            WHERE p.key = f.key AND p.granted_at IS NULL
              AND EXISTS (SELECT FROM {schema}.workers w WHERE w.id = p.worker_id AND w.state <> 'dead')) AS steps
    FROM now, found f
    JOIN {schema}.limits l ON l.name = split_part(f.key, ':', 1)
    LEFT JOIN {schema}.limit_keys k ON k.key = f.key
    WHERE $1::text IS NULL OR l.name = $1
), page AS MATERIALIZED (
    SELECT c.*, c.taken > 0 OR c.calls > 0 OR c.tokens > 0 OR c.steps > 0 OR c.has_line AS is_used FROM counted c
    ORDER BY c.taken > 0 OR c.calls > 0 OR c.tokens > 0 OR c.steps > 0 OR c.has_line DESC, c.key LIMIT $2
)
SELECT p.key, p.taken::bigint, p.steps + CASE WHEN p.has_line THEN
           (SELECT count(*) FROM {schema}.tasks t WHERE t.waits_for = p.key AND t.ready >= 1 AND t.held = 2)
           + (SELECT count(*) FROM {schema}.tasks t
              WHERE t.waits_for = p.key AND t.ready >= 1 AND t.held = 0 AND t.waits_for IS NOT NULL)
           + (SELECT count(*) FROM {schema}.tasks t
              WHERE t.waits_for = p.key AND t.ready >= 1 AND t.held IN (4, 6) AND t.waits_for IS NOT NULL)
           ELSE 0 END AS waiting,
       p.calls::bigint, p.tokens::bigint, p.closed_until, {l.limit}
FROM page p JOIN {schema}.limits l ON l.name = p.name
ORDER BY p.is_used DESC, p.key

-- name: promote
SELECT {schema}.promote($1, $2)

-- name: give_turns
SELECT {schema}.give_turns($1::text[], $2)

-- name: limit_work
SELECT is_due, next_due FROM {schema}.limit_work(coalesce($1, clock_timestamp()))

-- name: take_permits
SELECT n, granted, waits_for, paused, again_at FROM {schema}.take_permits($1::json, $2) ORDER BY n

-- name: return_permits
SELECT {schema}.return_permits($1::text[], $2::bigint[])

-- name: close_limit
SELECT {schema}.close_limit($1::text[], $2)

-- name: sweep_keys
SELECT {schema}.sweep_keys($1, $2)

-- name: sweep_permits
SELECT {schema}.sweep_permits($1, $2)

-- name: pauses
SELECT {pause} FROM {schema}.pauses ORDER BY subject

-- name: sweep
-- $3 is for how many seconds the database has answered this process since an outage, or NULL.
SELECT s.recovered, s.poisoned, s.woken, s.due, s.failed, s.expired, s.more, s.next_due, {schema}.next_tick(), s.hints,
       l.is_due, l.next_due, {schema}.prune_kept($1, coalesce($2, clock_timestamp())), {schema}.lacks_turns(NULL)
FROM {schema}.sweep($1, $2, $3) AS s, LATERAL {schema}.limit_work(coalesce($2, clock_timestamp())) AS l

-- name: put_schedule
SELECT p.changed, k.n, k.task_id, k.conflict
FROM {schema}.put_schedule($1::json, $2, $3, $4::json, $5::bytea[], $6) AS p
LEFT JOIN LATERAL unnest(p.known) AS k ON true

-- name: delete_schedule
DELETE FROM {schema}.schedules WHERE name = $1 AND revision = $2 RETURNING name

-- name: schedule
SELECT {schedule} FROM {schema}.shown_schedules WHERE name = $1

-- name: schedules
SELECT {schedule} FROM {schema}.shown_schedules ORDER BY name

-- name: due_schedules
-- What next_tick() sees, up to $2 of each kind, as of $1.
WITH found AS MATERIALIZED (
    (SELECT s.name FROM {schema}.schedules s
     WHERE s.due_at IS NOT NULL AND s.due_at <= coalesce($1, clock_timestamp())
       AND (NOT s.waits_for_last OR NOT EXISTS (
           SELECT FROM {schema}.tasks t WHERE t.id = s.last_task_id AND t.finished_at IS NULL OFFSET 0))
     ORDER BY s.due_at, s.name LIMIT $2)
    UNION
    (SELECT s.name FROM {schema}.schedules s
     WHERE s.declared_by IS NOT NULL
       AND NOT EXISTS (SELECT FROM {schema}.workers w WHERE w.id = s.declared_by AND w.state <> 'dead')
     LIMIT $2)
)
SELECT {r.schedule} FROM found JOIN {schema}.shown_schedules r ON r.name = found.name
ORDER BY r.due_at NULLS LAST, r.name LIMIT $2

-- name: commit_batch
SELECT {schema}.commit_batch($1::jsonb, $2::bytea[], $3)::text

-- name: names_of
-- The searchable fields of these tasks, besides their input. It never changes, so that no lock is needed.
SELECT id, name, agent_id, key FROM {schema}.tasks WHERE id = ANY ($1::text[])

-- name: commit_plain
SELECT task_id, revision, version, state, cancel_requested, hint, freed
FROM {schema}.commit_plain($1, $2, $3::json, $4::json, $5::bytea[], $6)

-- name: standing
-- How a task stands once the transaction that changes it has ended. Read without the lock, a Commit whose COMMIT is still on its
-- way would seem not to have happened.
SELECT fence, sequence, state, revision, version, owner, cancel_requested FROM {schema}.tasks
WHERE id = $1 FOR NO KEY UPDATE

-- name: write_step
-- The hot path: a worker's lone Commit of one step. One index lookup, one HOT update, two inserts. No row: the guard
-- did not hold, or the task is waiting and might have to be woken, or is paused: commit_batch finds out.
WITH held AS (
    UPDATE {schema}.tasks
    SET sequence = $4, revision = revision + 1, updated_at = coalesce($5, clock_timestamp())
    WHERE id = $1 AND owner = $2 AND fence = $3 AND sequence = $4 - 1 AND state <> 'waiting' AND held = 0
    RETURNING id, state, revision, version, cancel_requested, updated_at
), written AS (
    INSERT INTO {schema}.steps
    SELECT id, $6::integer, $7::text, $8::text, $9::bigint, $10::text, $11::integer, $12::bigint, $13::text,
           $14::bytea, $15::bytea, $16::text, $17::timestamptz, $18::timestamptz, $19::timestamptz, $20::timestamptz
    FROM held
    ON CONFLICT (task_id, round, key) DO UPDATE SET
        kind = excluded.kind, position = excluded.position, state = excluded.state, attempts = excluded.attempts,
        fence = excluded.fence, digest = excluded.digest, output = excluded.output, error = excluded.error,
        effect_id = excluded.effect_id, started_at = excluded.started_at, finished_at = excluded.finished_at,
        retry_at = excluded.retry_at, undone_at = excluded.undone_at
), fed AS (
    INSERT INTO {schema}.feed (at, entries)
    SELECT updated_at, json_build_array(json_build_array('step.' || $10::text, id, $6::integer, $7::text, $8::text, $11::integer))
    FROM held
)
SELECT state, revision, version, cancel_requested FROM held

-- name: emit
SELECT e.hints, (e.event).channel, (e.event).number, (e.event).payload, (e.event).actor, (e.event).key, (e.event).at
FROM {schema}.emit($1, $2, $3, $4, $5) AS e

-- name: task
SELECT {task} FROM {schema}.shown_tasks WHERE id = $1

-- name: task_standing
-- The columns of shown_tasks without the input, which may be large: a waiter reads this after every change of a task.
SELECT t.id, t.name, t.agent_id, 'null'::bytea AS user_input, t.state, o.result, o.error,
       i.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form,
       t.owner IS NOT NULL AND t.resting = t.fence AS resting, t.labels, t.limits,
       CASE WHEN t.finished_at IS NULL THEN t.waits_for END AS waits_for
FROM {schema}.tasks t
JOIN {schema}.inputs i ON i.task_id = t.id
LEFT JOIN {schema}.outcomes o ON o.task_id = t.id
WHERE t.id = $1

-- name: load
-- A task with everything a replay needs. One statement, so that all of it is of one moment; each part is an array of
-- rows. Of the steps: this round behind a position, and whatever left an effect in an earlier round. Of the patches:
-- what is folded onto the newest undamaged checkpoint.
-- Nothing is found where all of it is more than $4 bytes, each row counted as $3 bytes more than its payloads: no answer
-- may have a row of 1 GB. The length of a payload is known without reading it.
SELECT ARRAY(SELECT ROW({r.task}) FROM {schema}.shown_tasks r WHERE r.id = t.id),
       ARRAY(SELECT ROW({s.step}) FROM {schema}.steps s
             WHERE s.task_id = t.id AND ((s.round = t.round AND s.position > $2)
                                         OR (s.round < t.round AND s.effect_id IS NOT NULL))
             ORDER BY s.position, s.round, s.key),
       ARRAY(SELECT ROW({e.effect}) FROM {schema}.effects e WHERE e.task_id = t.id ORDER BY e.effect_id),
       ARRAY(SELECT ROW({p.patch}) FROM {schema}.patches p
             WHERE p.task_id = t.id AND p.version > coalesce(c.version, 0) ORDER BY p.version),
       CASE WHEN c.number IS NOT NULL THEN
             ROW({c.checkpoint}) END,
       ARRAY(SELECT ROW({a.approval}) FROM {schema}.approvals a WHERE a.task_id = t.id ORDER BY a.id),
       ARRAY(SELECT ROW({b.account}) FROM {schema}.accounts b
             WHERE b.account = t.id ORDER BY b.meter),
       ARRAY(SELECT ROW({v.reservation}) FROM {schema}.reservations v
             WHERE v.task_id = t.id ORDER BY v.account, v.meter, v.step_key, v.fence)
FROM {schema}.tasks t
LEFT JOIN LATERAL (
    SELECT * FROM {schema}.checkpoints n WHERE n.task_id = t.id AND n.damaged IS NULL ORDER BY n.number DESC LIMIT 1
) AS c ON true
WHERE t.id = $1 AND (
    SELECT coalesce(sum($3::bigint + part.bytes), 0) <= $4::bigint FROM (
        SELECT coalesce(octet_length(s.output), 0) + coalesce(octet_length(s.error), 0)
        FROM {schema}.steps s WHERE s.task_id = $1
        UNION ALL
        SELECT octet_length(e.arguments) + coalesce(octet_length(e.result), 0)
        FROM {schema}.effects e WHERE e.task_id = $1
        UNION ALL
        SELECT octet_length(p.body) FROM {schema}.patches p WHERE p.task_id = $1
        UNION ALL
        SELECT octet_length(a.arguments) + coalesce(octet_length(a.answer), 0)
        FROM {schema}.approvals a WHERE a.task_id = $1
    ) AS part (bytes))

-- name: journal
-- The parts of a load, for one that is read in pages.
SELECT {step} FROM {schema}.steps
WHERE task_id = $1 AND ((round = $2 AND position > $3) OR (round < $2 AND effect_id IS NOT NULL))
ORDER BY position, round, key

-- name: task_effects
SELECT {effect} FROM {schema}.effects WHERE task_id = $1 ORDER BY effect_id

-- name: newest_checkpoint
SELECT {checkpoint} FROM {schema}.checkpoints
WHERE task_id = $1 AND damaged IS NULL ORDER BY number DESC LIMIT 1

-- name: task_approvals
SELECT {approval} FROM {schema}.approvals WHERE task_id = $1 ORDER BY id

-- name: task_reservations
SELECT {reservation} FROM {schema}.reservations
WHERE task_id = $1 ORDER BY account, meter, step_key, fence

-- name: steps
SELECT {step} FROM {schema}.steps WHERE task_id = $1 ORDER BY position, round, key

-- name: revisions
SELECT id, revision FROM {schema}.tasks WHERE id = ANY ($1::text[])

-- name: step
SELECT {step} FROM {schema}.steps WHERE task_id = $1 AND round = $2 AND key = $3

-- name: last_steps
-- For a board: one line of each task, without its payloads.
SELECT DISTINCT ON (task_id) task_id, round, key, kind, position, state, attempts, fence, digest, NULL AS output,
       NULL AS error, effect_id, started_at, finished_at, retry_at, undone_at
FROM {schema}.steps WHERE task_id = ANY ($1::text[]) ORDER BY task_id, position DESC

-- name: accounts
SELECT {account} FROM {schema}.accounts WHERE account = $1 ORDER BY meter

-- name: history
SELECT {transition} FROM {schema}.transitions
WHERE task_id = $1 ORDER BY number

-- name: patches
SELECT {patch} FROM {schema}.patches
WHERE task_id = $1 AND version > $2 ORDER BY version

-- name: checkpoints
SELECT {checkpoint} FROM {schema}.checkpoints
WHERE task_id = $1 ORDER BY number

-- name: evidence
SELECT {evidence} FROM {schema}.evidence WHERE task_id = $1 AND effect_id = $2 ORDER BY number

-- name: add_evidence
INSERT INTO {schema}.evidence (task_id, effect_id, fence, body, at)
VALUES ($1, $2, $3, $4, coalesce($5, $6, clock_timestamp()))

-- name: approval
SELECT {approval} FROM {schema}.approvals WHERE id = $1

-- name: workers
SELECT {worker} FROM {schema}.workers ORDER BY id

-- name: events
SELECT {event} FROM {schema}.events
WHERE channel = $1 AND number > $2 ORDER BY number LIMIT $3

-- name: position
SELECT coalesce((SELECT last_number FROM {schema}.channels WHERE channel = $1), 0)

-- name: position_at_submission
-- Backwards from the newest event by the primary key, so that only those are read that came after the submission, and one
-- more. 0013_event_positions.sql has the rule. The order holds within one transaction, too: its own events are compared
-- by position alone. Tasks and events from before positions were kept are compared by time.
SELECT coalesce(
    (SELECT e.number FROM {schema}.events e
     WHERE e.channel = $1 AND CASE
         WHEN i.event_position IS NULL THEN e.position = 0 AND e.at < i.created_at
         WHEN e.position > i.event_position THEN false
         WHEN e.cluster = i.event_cluster AND e.transaction <> i.event_transaction
             THEN pg_visible_in_snapshot(e.transaction, i.event_snapshot)
         ELSE true
     END
     ORDER BY e.number DESC LIMIT 1),
    (SELECT min(number) - 1 FROM {schema}.events WHERE channel = $1),
    (SELECT last_number FROM {schema}.channels WHERE channel = $1),
    0)
FROM {schema}.inputs i WHERE i.task_id = $2

-- name: summary
-- Counts for people; none of them stands on the hot path.
SELECT (SELECT count(*) FROM {schema}.workers WHERE state <> 'dead'),
       (SELECT count(*) FROM {schema}.approvals WHERE state = 'open'),
       (SELECT count(*) FROM {schema}.effects WHERE state IN ('in_doubt', 'needs_human'))

-- name: queues
-- Goes through the open tasks, by the index that holds no others (or through all, where most are open), and looks at the
-- row of each: an index that had all that is asked here would have to be kept up by every claim.
WITH now AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS moment)
SELECT t.queue AS name,
       count(*) FILTER (WHERE t.state = 'pending' AND t.available_at <= now.moment) AS ready,
       count(*) FILTER (WHERE t.state = 'pending' AND t.available_at > now.moment) AS delayed,
       count(*) FILTER (WHERE t.state = 'running') AS running,
       count(*) FILTER (WHERE t.state = 'waiting') AS waiting,
       count(*) FILTER (WHERE t.state = 'review') AS review,
       min(t.available_at) FILTER (WHERE t.state = 'pending' AND t.available_at <= now.moment) AS oldest_ready_at
FROM {schema}.tasks t, now WHERE t.finished_at IS NULL GROUP BY t.queue ORDER BY t.queue

-- name: queued
-- What comes next, as of the moment $1, of the queue $2 or of all: behind ($3, $4) in the order of rank what is due, and
-- behind ($5, $6) in the order of time what is delayed. The moment comes along, for the cursor.
-- Due are the ready ones, which the index has in order for each queue and name: `lines` jumps from one pair to the next,
-- and of each only a page is read, as in a claim. Beside them, suspects, tasks whose time has come but that no
-- sweep has seen, and tasks of a fair queue that have no turn yet: few, as long as any worker claims, so that they may be sorted. And what waits for a limit, which is in order for
-- each queue. No name has the last of all characters in it.
-- `<> 1` and not `= 0`: the planner takes the second for something that few rows fulfil, and would sort all of them.
-- The LIMIT 1 at the end has each record looked up by its id: the planner, which cannot know how long a page is, would
-- rather read all inputs.
WITH RECURSIVE now AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS moment
), lines AS (
    (SELECT t.queue, t.name FROM {schema}.tasks t
     WHERE t.ready = 1 AND t.held = 0 AND t.queue BETWEEN coalesce($2::text, '') AND coalesce($2::text, chr(1114111))
     ORDER BY t.queue, t.name LIMIT 1)
    UNION ALL
    SELECT n.queue, n.name FROM lines l, LATERAL (
        SELECT t.queue, t.name FROM {schema}.tasks t
        WHERE t.ready = 1 AND t.held = 0 AND (t.queue, t.name) > (l.queue, l.name)
          AND t.queue <= coalesce($2::text, chr(1114111))
        ORDER BY t.queue, t.name LIMIT 1
    ) AS n
), kept_back AS (
    (SELECT t.queue FROM {schema}.tasks t
     WHERE t.ready >= 1 AND t.held = 2 AND t.state = 'pending'
       AND t.queue BETWEEN coalesce($2::text, '') AND coalesce($2::text, chr(1114111))
     ORDER BY t.queue LIMIT 1)
    UNION ALL
    SELECT n.queue FROM kept_back k, LATERAL (
        SELECT t.queue FROM {schema}.tasks t
        WHERE t.ready >= 1 AND t.held = 2 AND t.state = 'pending'
          AND t.queue > k.queue AND t.queue <= coalesce($2::text, chr(1114111))
        ORDER BY t.queue LIMIT 1
    ) AS n
), page AS MATERIALIZED (
    SELECT c.id, false AS delayed, c.rank AS place FROM lines l, LATERAL (
        SELECT t.id, t.rank FROM {schema}.tasks t
        WHERE t.ready = 1 AND t.held = 0 AND t.queue = l.queue AND t.name = l.name
          AND (t.rank, t.id) > ($3::timestamptz, $4::text) AND t.state = 'pending'
          AND (t.deadline IS NULL OR t.deadline > (SELECT moment FROM now) OR t.must_undo)
        ORDER BY t.rank, t.id LIMIT $7
    ) AS c
    UNION ALL
    (SELECT t.id, false, t.rank FROM {schema}.tasks t
     WHERE t.ready = 2 AND t.held = 0 AND t.queue BETWEEN coalesce($2::text, '') AND coalesce($2::text, chr(1114111))
       AND (t.rank, t.id) > ($3::timestamptz, $4::text)
       AND t.state = 'pending' AND (t.deadline IS NULL OR t.deadline > (SELECT moment FROM now) OR t.must_undo)
     ORDER BY t.rank, t.id LIMIT $7)
    UNION ALL
    (SELECT t.id, false, t.rank FROM {schema}.tasks t
     WHERE t.ready >= 1 AND t.held >= 4 AND t.held & 1 <> 1
       AND t.queue BETWEEN coalesce($2::text, '') AND coalesce($2::text, chr(1114111))
       AND (t.rank, t.id) > ($3::timestamptz, $4::text)
       AND t.state = 'pending' AND (t.deadline IS NULL OR t.deadline > (SELECT moment FROM now) OR t.must_undo)
     ORDER BY t.rank, t.id LIMIT $7)
    UNION ALL
    SELECT c.id, false, c.rank FROM kept_back k, LATERAL (
        SELECT t.id, t.rank FROM {schema}.tasks t
        WHERE t.ready >= 1 AND t.held = 2 AND t.queue = k.queue
          AND (t.rank, t.id) > ($3::timestamptz, $4::text) AND t.state = 'pending'
          AND (t.deadline IS NULL OR t.deadline > (SELECT moment FROM now) OR t.must_undo)
        ORDER BY t.rank, t.id LIMIT $7
    ) AS c
    UNION ALL
    (SELECT t.id, false, t.rank FROM {schema}.tasks t
     WHERE t.ready = 0 AND t.state = 'pending' AND t.owner IS NULL AND t.held & 1 <> 1
       AND t.available_at <= (SELECT moment FROM now)
       AND (t.rank, t.id) > ($3::timestamptz, $4::text) AND ($2::text IS NULL OR t.queue = $2::text)
       AND (t.deadline IS NULL OR t.deadline > (SELECT moment FROM now) OR t.must_undo)
     ORDER BY t.rank, t.id LIMIT $7)
    UNION ALL
    (SELECT t.id, true, t.available_at FROM {schema}.tasks t
     WHERE t.ready = 0 AND t.state = 'pending' AND t.owner IS NULL AND t.held & 1 <> 1
       AND (t.available_at, t.id) > (coalesce($5::timestamptz, (SELECT moment FROM now)), $6::text)
       AND ($2::text IS NULL OR t.queue = $2::text)
       AND (t.deadline IS NULL OR t.deadline > (SELECT moment FROM now) OR t.must_undo)
     ORDER BY t.available_at, t.id LIMIT $7)
    ORDER BY delayed, place, id LIMIT $7
)
SELECT now.moment, p.delayed, p.place, {r.task}
FROM now, page p, LATERAL (SELECT * FROM {schema}.shown_tasks t WHERE t.id = p.id LIMIT 1) AS r
ORDER BY p.delayed, p.place, p.id

-- name: ids_that_begin
-- Of the table and the column that are filled in: a range of the index that begins with the id, so that nothing in the
-- text is a pattern. No name has the last of all characters in it, which cannot be printed. DISTINCT for effects: two
-- tasks may have one of the same id.
SELECT DISTINCT {id} FROM {schema}.{table} WHERE {id} >= $1::text AND {id} < $1::text || chr(1114111)
ORDER BY {id} LIMIT $2

-- name: ids_that_end
-- Those that end with it, or whose last eight characters begin with it: these are what tables show of an id. Looks at
-- every id, for no index knows how they end; asked only where none begins like this, by a person.
SELECT DISTINCT {id} FROM {schema}.{table}
WHERE right({id}, length($1::text)) = $1::text OR left(right({id}, 8), length($1::text)) = $1::text
ORDER BY {id} LIMIT $2

-- name: vitals
SELECT current_setting('server_version'),
       (SELECT max(version) FROM {schema}.migrations),
       (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
        WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r')

-- name: estimate_rows
-- What the last VACUUM or ANALYZE saw; before the first one (-1), what the statistics collected of all changes so far.
-- Nothing is counted, however large the tables are.
SELECT relname, CASE WHEN reltuples >= 0 THEN reltuples::bigint ELSE greatest(pg_stat_get_live_tuples(oid), 0) END
FROM pg_class
WHERE relnamespace = '{schema}'::regnamespace
  AND relname IN ('tasks', 'steps', 'events', 'artifacts', 'facts', 'workers')

-- name: settings
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'max_connections')
UNION ALL
SELECT 'in_recovery', CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END

-- name: oldest_snapshot
-- The age in seconds of the oldest transaction of this database for which VACUUM has to keep deleted rows, prepared ones
-- included. Not this statement's own, and no VACUUM, whose snapshot delays no other statement, nor what the server does by itself
-- beside it. The transactions of other users are seen only by members of pg_read_all_stats.
SELECT extract(epoch FROM clock_timestamp() - min(began))::double precision FROM (
    SELECT xact_start AS began FROM pg_stat_activity a
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND backend_type <> 'autovacuum worker'
      AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid)
    UNION ALL
    SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()
) AS transactions

-- name: put_artifact
WITH stored AS (
    INSERT INTO {schema}.artifacts (id, size, media_type, created_at, content)
    VALUES ($1, $2, $3, coalesce($4, clock_timestamp()), $1)
    ON CONFLICT (id) DO NOTHING RETURNING content
)
INSERT INTO {schema}.artifact_chunks (content, number, body)
SELECT stored.content, part.number - 1, part.body
FROM stored, unnest($5::bytea[]) WITH ORDINALITY AS part (body, number)

-- name: renew_artifact
-- Stored again: its age begins again, so that prune keeps it.
UPDATE {schema}.artifacts SET created_at = coalesce($2, clock_timestamp()) WHERE id = $1
RETURNING {artifact}

-- name: task_by_id_or_key
-- The task a submission was answered with.
SELECT id FROM (
    SELECT 0 AS preference, id FROM {schema}.tasks WHERE id = $1
    UNION ALL
    SELECT 1, task_id FROM {schema}.task_keys WHERE name = $2 AND key = $3
) AS found ORDER BY preference LIMIT 1

-- name: artifact
SELECT {artifact} FROM {schema}.artifacts WHERE id = $1

-- name: begin_upload
INSERT INTO {schema}.uploads (id, renewed_at) VALUES ($1, coalesce($2, clock_timestamp())) ON CONFLICT (id) DO NOTHING

-- name: stage
-- Nothing comes back if the upload was pruned. A piece that is sent again replaces itself.
WITH renewed AS (
    UPDATE {schema}.uploads SET renewed_at = coalesce($2, clock_timestamp()) WHERE id = $1 RETURNING id
)
INSERT INTO {schema}.artifact_chunks (content, number, body)
SELECT renewed.id, $3 + part.number - 1, part.body
FROM renewed, unnest($4::bytea[]) WITH ORDINALITY AS part (body, number)
ON CONFLICT (content, number) DO UPDATE SET body = excluded.body
RETURNING number

-- name: finish_upload
-- The chunks stay where they are, or go if the artifact is there already. Nothing comes back if the upload was pruned,
-- or finished before by this very statement.
WITH ended AS (
    DELETE FROM {schema}.uploads WHERE id = $1 RETURNING id
), stored AS (
    INSERT INTO {schema}.artifacts AS a (id, size, media_type, created_at, content)
    SELECT $3, $4, $5, coalesce($2, clock_timestamp()), ended.id FROM ended
    ON CONFLICT (id) DO UPDATE SET created_at = excluded.created_at
    RETURNING a.*
), doubled AS (
    DELETE FROM {schema}.artifact_chunks c USING stored WHERE stored.content <> $1 AND c.content = $1
)
SELECT {artifact} FROM stored

-- name: discard_upload
WITH ended AS (
    DELETE FROM {schema}.uploads WHERE id = $1 RETURNING id
)
DELETE FROM {schema}.artifact_chunks c USING ended WHERE c.content = ended.id

-- name: read_artifact
-- In one statement, which sees all of an artifact or none of it; without a body where the range is empty.
SELECT c.body FROM {schema}.artifacts a
LEFT JOIN {schema}.artifact_chunks c ON c.content = a.content AND c.number BETWEEN $2 AND $3
WHERE a.id = $1 ORDER BY c.number

-- name: artifact_links
SELECT {link} FROM {schema}.artifact_links
WHERE task_id = $1 ORDER BY artifact_id

-- name: fact
SELECT {fact} FROM {schema}.fact_records WHERE id = $1

-- name: subject
-- One row for each fact, or one without a fact, so that the mark and the time come along in any case. The live facts
-- by their own index, however long the history is; those that were asked for, by id.
SELECT coalesce($5, clock_timestamp()),
       (SELECT mark FROM {schema}.subjects WHERE entity = $1 AND attribute = $2 AND other = $3), {f.fact}
FROM (VALUES (1)) AS one LEFT JOIN (
    SELECT * FROM {schema}.fact_records
    WHERE entity = $1 AND attribute = $2 AND other = $3 AND superseded_by IS NULL
    UNION ALL
    SELECT * FROM {schema}.fact_records
    WHERE id = ANY ($4::text[]) AND entity = $1 AND attribute = $2 AND other = $3 AND superseded_by IS NOT NULL
) AS f ON true
ORDER BY f.created_at, f.id

-- name: remember
SELECT id, created_at
FROM {schema}.remember($1, $2, $3, $4, $5, $6, $7::jsonb, $8, coalesce($9, clock_timestamp()))

-- name: search
-- Each word is looked for twice, as the beginning of a word and as a whole one: how often a fact is found is its rank.
SELECT {r.fact} FROM (
    SELECT f.id, count(*) AS hits
    FROM unnest($1::text[]) AS pattern JOIN {schema}.facts f ON f.words @@ pattern::tsquery
    WHERE f.superseded_by IS NULL
    GROUP BY f.id
) AS found
JOIN {schema}.fact_records r ON r.id = found.id
ORDER BY found.hits DESC, coalesce(r.verified_at, r.created_at) DESC, r.id DESC LIMIT $2

-- name: facts_to_split
-- A page of all facts, for a migration that splits their texts in another way.
SELECT id, entity, attribute, value FROM {schema}.facts WHERE id > $1 ORDER BY id LIMIT 500

-- name: put_words
UPDATE {schema}.facts SET words = array_to_tsvector($2::text[]) WHERE id = $1 RETURNING id

-- name: forget
SELECT {schema}.forget($1, $2)

-- name: prune
SELECT tasks, events, artifacts, uploads FROM {schema}.prune(coalesce($1, clock_timestamp()) - $2::interval, $3)

-- name: notify
SELECT pg_notify($1, $2)

-- name: read_feed
SELECT pass, mark, seq, at, entries FROM {schema}.read_feed($1, $2, $3, $4, $5)

-- name: begin_feed
SELECT {schema}.begin_feed()

-- name: feed_tasks
-- What is said now of the tasks that events are about.
SELECT id, name, queue, labels FROM {schema}.tasks WHERE id = ANY ($1::text[])

-- name: feed_payloads
-- What tasks have reported, if that is not long.
SELECT e.channel, e.number, e.payload
FROM unnest($1::text[], $2::bigint[]) AS w (channel, number)
JOIN {schema}.events e ON e.channel = w.channel AND e.number = w.number
WHERE octet_length(e.payload) <= $3

-- name: prune_feed
SELECT {schema}.prune_feed($1, $2)

-- name: set_feed_retention
INSERT INTO {schema}.feed_settings (kept_for, kept_rows)
VALUES ($1::bigint * interval '1 microsecond', $2::bigint)
ON CONFLICT (single) DO UPDATE
SET kept_for = excluded.kept_for, kept_rows = excluded.kept_rows, prunes_at = excluded.prunes_at

-- name: feed_retention
SELECT (extract(epoch FROM kept_for) * 1000000)::bigint, kept_rows FROM {schema}.feed_settings WHERE single
