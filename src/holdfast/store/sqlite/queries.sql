-- Every statement the SQLite store sends, except the narrow UPDATE of a task row that write_transaction.py makes of what
-- changed, and the listings of listings.py. {step}, {task} and so on stand for the columns of that record: the
-- parameters of the method of store/records.py that reads the row. {task_row} are the fields of rows.TaskRow.
--
-- SQLite has one writer: inside BEGIN IMMEDIATE nothing moves between a read and the write that follows it,
-- so a guard may be read first and needs no lock of its own (PostgreSQL must lock first and read later).

-- name: insert_task
INSERT INTO tasks (id, name, agent_id, queue, priority, key, schedule, parent_id, input_digest, search, state,
                   ready, rank, available_at, deadline, created_at, updated_at, finished_at, round, labels, limits, held,
                   waits_for)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?16, ?17, ?18, ?19, ?20, ?21, ?22)

-- name: insert_input
-- With the last position that was given out: later events are those above it.
INSERT INTO inputs (task_id, user_input, event_position)
VALUES (?, ?, (SELECT coalesce(max(position), 0) FROM channels))

-- name: replace_input
UPDATE inputs SET user_input = ?2 WHERE task_id = ?1

-- name: task_age
SELECT created_at FROM tasks WHERE id = ?

-- name: replace_task
-- All that a later submission with its key changes of a task that was never claimed.
UPDATE tasks SET agent_id = ?2, priority = ?3, input_digest = ?4, search = ?5, ready = ?6, rank = ?7, available_at = ?8,
    deadline = ?9, labels = ?10, updated_at = ?11, limits = ?12, waits_for = ?13, held = held & 5 | iif(?12 IS NULL, 0, 2),
    revision = revision + 1
WHERE id = ?1

-- name: release_key
-- The key goes to a later submission.
UPDATE tasks SET key = NULL WHERE id = ?

-- name: clear_limits
UPDATE accounts SET ceiling = NULL WHERE account = ?

-- name: searched_names
-- The searchable fields of a task, besides its input.
SELECT name, agent_id, key FROM tasks WHERE id = ?

-- name: replace_search
UPDATE tasks SET input_digest = ?2, search = ?3 WHERE id = ?1

-- name: task_by_id
SELECT id, name, input_digest FROM tasks WHERE id = ?

-- name: task_by_key
SELECT id, name, input_digest FROM tasks WHERE name = ? AND key = ?

-- name: task_row
-- The row of a task, for a transaction that changes it. Besides, whether another task may wait for its slot: as many tasks
-- of its queue are at work as may be. A look into an index that is empty in most stores.
SELECT {task_row}, EXISTS (SELECT 1 FROM queues q WHERE q.name = tasks.queue AND q.working >= q.concurrency)
FROM tasks WHERE id = ?

-- name: put_outcome
INSERT INTO outcomes (task_id, result, error) VALUES (?1, ?2, ?3)
ON CONFLICT (task_id) DO UPDATE SET result = excluded.result, error = excluded.error

-- name: delete_outcome
DELETE FROM outcomes WHERE task_id = ?

-- name: insert_transition
INSERT INTO transitions (task_id, number, from_state, to_state, reason, actor, fence, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: task_head
-- What the guard of a worker's Commit looks at, and what its verdict says. Read first and written then: together they
-- cost less than an UPDATE ... RETURNING.
SELECT id, owner, fence, sequence, state, held, revision, version, cancel_requested FROM tasks WHERE id = ?

-- name: ending_head
-- The same for a Commit that ends its task, with what the end would have to look after besides; with the queue if its other
-- tasks may wait for the slot, and the limits whose permits it gives back.
SELECT moves, (SELECT q.name FROM queues q WHERE q.name = tasks.queue AND q.working >= q.concurrency), limits,
       resting <> fence AS has_slot,
       EXISTS (SELECT 1 FROM outcomes WHERE task_id = ?1) AS has_outcome,
       EXISTS (SELECT 1 FROM approvals WHERE task_id = ?1 AND state = 'open')
           OR EXISTS (SELECT 1 FROM reservations WHERE task_id = ?1)
           OR EXISTS (SELECT 1 FROM joins WHERE child_id = ?1) AS has_unfinished,
       id, owner, fence, sequence, state, held, revision, version, cancel_requested
FROM tasks WHERE id = ?1

-- name: advance
-- All that a Commit of steps changes of its task: no index is touched.
UPDATE tasks SET sequence = ?2, revision = revision + 1, updated_at = ?3 WHERE id = ?1

-- name: end
-- All that its end changes of a task for which no other task waits; lifecycle.end and give_back do the same.
UPDATE tasks SET sequence = ?2, state = ?3, finished_at = ?4, owner = NULL, claim = 0, alone = 0, moves = moves + 1,
    revision = revision + 1, updated_at = ?4
WHERE id = ?1

-- name: end_limited
-- The same of a task that had places of its limits, which the caller counts: in no line any more, which tells the trigger.
UPDATE tasks SET sequence = ?2, state = ?3, finished_at = ?4, owner = NULL, claim = 0, alone = 0, moves = moves + 1,
    revision = revision + 1, updated_at = ?4, waits_for = NULL
WHERE id = ?1

-- name: put_step
INSERT INTO steps (task_id, round, key, kind, position, state, attempts, fence, digest, output, error, effect_id,
                   started_at, finished_at, retry_at, undone_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task_id, round, key) DO UPDATE SET
    kind = excluded.kind, position = excluded.position, state = excluded.state, attempts = excluded.attempts,
    fence = excluded.fence, digest = excluded.digest, output = excluded.output, error = excluded.error,
    effect_id = excluded.effect_id, started_at = excluded.started_at, finished_at = excluded.finished_at,
    retry_at = excluded.retry_at, undone_at = excluded.undone_at

-- name: effect_state
SELECT state FROM effects WHERE task_id = ? AND effect_id = ?

-- name: put_effect
INSERT OR REPLACE INTO effects (task_id, effect_id, step_key, effect_class, state, round, fence, attempt, arguments,
                                arguments_hash, approval_id, dispatch_by, settle_at, result, note, compensable,
                                thread_of, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_patch
INSERT INTO patches (task_id, version, body, author, reason, at, step_key, round) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_checkpoint
INSERT OR REPLACE INTO checkpoints (task_id, number, position, version, body, checksum, schema, created_at, damaged)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: rotate_checkpoints
DELETE FROM checkpoints
WHERE task_id = ?1 AND created_at < ?3
  AND number NOT IN (SELECT number FROM checkpoints WHERE task_id = ?1 ORDER BY number DESC LIMIT ?2)

-- name: set_aside_checkpoint
UPDATE checkpoints SET damaged = ?3 WHERE task_id = ?1 AND number = ?2

-- name: set_limit
INSERT INTO accounts (account, meter, ceiling) VALUES (?1, ?2, ?3)
ON CONFLICT (account, meter) DO UPDATE SET ceiling = excluded.ceiling

-- name: open_meter
INSERT INTO accounts (account, meter) VALUES (?, ?) ON CONFLICT (account, meter) DO NOTHING

-- name: meter
SELECT ceiling, spent, reserved FROM accounts WHERE account = ? AND meter = ?

-- name: adjust_meter
UPDATE accounts SET spent = spent + ?3, reserved = reserved + ?4 WHERE account = ?1 AND meter = ?2

-- name: add_reservation
INSERT INTO reservations (task_id, account, meter, step_key, fence, amount) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (task_id, account, meter, step_key, fence) DO UPDATE SET amount = amount + excluded.amount

-- name: take_step_reservations
DELETE FROM reservations WHERE task_id = ? AND account = ? AND step_key = ? AND fence = ?
RETURNING account, meter, amount

-- name: take_reservations_below_fence
DELETE FROM reservations WHERE task_id = ? AND fence < ? RETURNING account, meter, amount

-- name: insert_approval
INSERT INTO approvals (task_id, id, kind, step_key, question, risk, arguments, arguments_hash, policy, requested_by,
                       deciders, expires_at, fallback, state, answer, decided_by, note, consumed_by, created_at,
                       decided_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: approval_by_id
SELECT {approval} FROM approvals WHERE id = ?

-- name: decide_approval
UPDATE approvals SET state = ?3, decided_by = ?4, note = ?5, answer = ?6, decided_at = ?7
WHERE task_id = ?1 AND id = ?2

-- name: consume_approval
UPDATE approvals SET consumed_by = ?3 WHERE task_id = ?1 AND id = ?2

-- name: close_approvals
UPDATE approvals SET state = 'closed', decided_at = ?2 WHERE task_id = ?1 AND state = 'open'

-- name: due_approvals
SELECT task_id, id FROM approvals WHERE state = 'open' AND expires_at IS NOT NULL AND expires_at <= ?
ORDER BY expires_at, id LIMIT ?

-- name: waits_for_approval
SELECT 1 FROM waits WHERE task_id = ? AND approval_id = ?

-- name: expire_approval
UPDATE approvals SET state = 'expired', decided_at = ?3 WHERE task_id = ?1 AND id = ?2

-- name: insert_wait
INSERT INTO waits (task_id, key, kind, due_at, channel, after, remaining, approval_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: delete_waits
DELETE FROM waits WHERE task_id = ?

-- name: insert_join
INSERT INTO joins (task_id, key, child_id)
SELECT ?1, ?2, id FROM tasks WHERE id = ?3 AND finished_at IS NULL
ON CONFLICT DO NOTHING

-- name: count_joins
UPDATE waits SET remaining = (SELECT count(*) FROM joins j WHERE j.task_id = ?1 AND j.key = ?2)
WHERE task_id = ?1 AND key = ?2

-- name: delete_joins
DELETE FROM joins WHERE task_id = ?

-- name: unfinished
-- What a task that ends leaves behind; most leave nothing, and one look is cheaper than three deletes.
SELECT EXISTS (SELECT 1 FROM approvals WHERE task_id = ?1 AND state = 'open'),
       EXISTS (SELECT 1 FROM reservations WHERE task_id = ?1),
       EXISTS (SELECT 1 FROM joins WHERE child_id = ?1)

-- name: leave_joins
-- A child ended: remove it from every join that counts it.
DELETE FROM joins WHERE child_id = ? RETURNING task_id, key

-- name: lower_join
UPDATE waits SET remaining = remaining - 1 WHERE task_id = ? AND key = ? RETURNING remaining

-- name: wait_that_holds
-- Why a waiting task may go on, if it may; the order of the cases is their precedence. The event must still be
-- stored: woken for a pruned one, a task would find nothing, wait again and be woken again.
SELECT min(CASE
    WHEN w.kind = 'time' AND w.due_at <= ?2 THEN 1
    WHEN w.kind = 'event'
        AND EXISTS (SELECT 1 FROM events e WHERE e.channel = w.channel AND e.number > w.after) THEN 2
    WHEN w.kind = 'children' AND w.remaining = 0 THEN 3
    WHEN w.kind = 'decided' AND (SELECT state FROM approvals a WHERE a.id = w.approval_id) <> 'open' THEN 4
END)
FROM waits w WHERE w.task_id = ?1

-- name: request_seen
SELECT 1 FROM requests WHERE task_id = ? AND request = ?

-- name: insert_request
INSERT INTO requests (task_id, request) VALUES (?, ?)

-- name: put_artifact_link
INSERT OR REPLACE INTO artifact_links (task_id, artifact_id, name, type, summary, bytes, step, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: event_by_key
SELECT {event} FROM events WHERE channel = ? AND key = ?

-- name: next_event_number
-- The number within the channel, and the position among the events of all channels: one behind the last.
INSERT INTO channels (channel, last, position)
VALUES (?, 1, (SELECT coalesce(max(position), 0) + 1 FROM channels))
ON CONFLICT (channel) DO UPDATE SET last = last + 1, position = excluded.position
RETURNING last, position

-- name: insert_event
INSERT INTO events (channel, number, key, payload, actor, at, position) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: count_waiting
-- How many waits there are for a channel's events, up to ?2.
SELECT count(*) FROM (SELECT 1 FROM waits WHERE channel = ?1 AND channel IS NOT NULL LIMIT ?2)

-- name: waiting_for_channel
SELECT DISTINCT task_id FROM waits WHERE channel = ?1 AND channel IS NOT NULL AND after < ?2 ORDER BY task_id

-- name: insert_worker
INSERT INTO workers (id, label, lease, state, details, started_at, seen_at, boot_id, expires)
VALUES (?1, ?2, ?3, 'live', ?4, ?5, ?5, ?6, ?7)

-- name: worker
SELECT id, label, lease / 1000000.0 AS lease, state, claims, details, started_at, seen_at FROM workers WHERE id = ?

-- name: worker_lease
-- Whether a worker may act: its state, its last claim, and when it expires on which boot. Besides, whether there is any
-- pause of a queue or a name to look at, any queue whose tasks at work are limited, any that is fair, any task that has to
-- get its turn first, and when a line of tasks that wait for a limit has to be looked at: no other statement is run for that
-- while there is none.
SELECT state, claims, boot_id, expires, lease,
       EXISTS (SELECT 1 FROM pauses WHERE subject >= 'queue:' AND subject < 'queue;')
           OR EXISTS (SELECT 1 FROM pauses WHERE subject >= 'task:' AND subject < 'task;'),
       EXISTS (SELECT 1 FROM queues WHERE concurrency IS NOT NULL),
       EXISTS (SELECT 1 FROM queues WHERE fair_by IS NOT NULL),
       EXISTS (SELECT 1 FROM tasks WHERE ready >= 1 AND held >= 4),
       (SELECT look_at FROM limit_keys WHERE look_at IS NOT NULL ORDER BY look_at LIMIT 1)
FROM workers WHERE id = ?

-- name: renew_worker
UPDATE workers SET seen_at = ?2, boot_id = ?3, expires = ?4 WHERE id = ?1 AND state <> 'dead'

-- name: set_worker_state
UPDATE workers SET state = ?2 WHERE id = ?1 AND state <> 'dead'

-- name: set_worker_claims
UPDATE workers SET claims = ?2 WHERE id = ?1

-- name: workers_not_dead
SELECT id, boot_id, expires, lease FROM workers WHERE state <> 'dead'

-- name: ready_lines
-- The pairs of queue and name that have something claimable, in these queues. From name to name through the index: it
-- reads one row a pair, however long the queues are and however many names the worker knows.
WITH RECURSIVE lines (queue, name) AS (
    SELECT q.value, (
        SELECT t.name FROM tasks t WHERE t.ready = 1 AND t.held = 0 AND t.queue = q.value ORDER BY t.name LIMIT 1)
    FROM json_each(?1) q
    UNION ALL
    SELECT l.queue, (
        SELECT t.name FROM tasks t WHERE t.ready = 1 AND t.held = 0 AND t.queue = l.queue AND t.name > l.name
        ORDER BY t.name LIMIT 1)
    FROM lines l WHERE l.name IS NOT NULL
)
SELECT queue, name FROM lines WHERE name IS NOT NULL

-- name: suspect_lines
WITH RECURSIVE lines (queue, name) AS (
    SELECT q.value, (
        SELECT t.name FROM tasks t WHERE t.ready = 2 AND t.held = 0 AND t.queue = q.value ORDER BY t.name LIMIT 1)
    FROM json_each(?1) q
    UNION ALL
    SELECT l.queue, (
        SELECT t.name FROM tasks t WHERE t.ready = 2 AND t.held = 0 AND t.queue = l.queue AND t.name > l.name
        ORDER BY t.name LIMIT 1)
    FROM lines l WHERE l.name IS NOT NULL
)
SELECT queue, name FROM lines WHERE name IS NOT NULL

-- name: ready_tasks
-- The next tasks of one queue and name: reads only claimable rows, in order.
SELECT rank, id, limits FROM tasks
WHERE ready = 1 AND held = 0 AND queue = ?1 AND name = ?2
  AND (deadline IS NULL OR deadline > ?3 OR must_undo) AND key_form <= ?5
ORDER BY rank, id LIMIT ?4

-- name: merged_ready_tasks
-- The next tasks of several pairs of queue and name, merged by rank: the first of each pair, then behind every task that
-- is taken the next one of its pair. It reads one row a pair and one a task. (A scan over several pairs would have to sort
-- them all.) The next one has the same rank or a higher one, asked for apart: one comparison of both columns would read
-- all tasks of the same rank again and again, and tasks that were submitted together have the same rank.
WITH RECURSIVE merged (queue, name, rank, id, limits) AS (
    SELECT l.value ->> 0, l.value ->> 1, t.rank, t.id, t.limits FROM json_each(?1) l CROSS JOIN tasks t ON t.id = (
        SELECT n.id FROM tasks n WHERE n.ready = 1 AND n.held = 0 AND n.queue = l.value ->> 0 AND n.name = l.value ->> 1
          AND (n.deadline IS NULL OR n.deadline > ?2 OR n.must_undo) AND n.key_form <= ?4
        ORDER BY n.rank, n.id LIMIT 1)
    UNION ALL
    SELECT m.queue, m.name, t.rank, t.id, t.limits FROM merged m CROSS JOIN tasks t ON t.id = coalesce((
        SELECT n.id FROM tasks n
        WHERE n.ready = 1 AND n.held = 0 AND n.queue = m.queue AND n.name = m.name AND n.rank = m.rank AND n.id > m.id
          AND (n.deadline IS NULL OR n.deadline > ?2 OR n.must_undo) AND n.key_form <= ?4
        ORDER BY n.id LIMIT 1
    ), (
        SELECT n.id FROM tasks n
        WHERE n.ready = 1 AND n.held = 0 AND n.queue = m.queue AND n.name = m.name AND n.rank > m.rank
          AND (n.deadline IS NULL OR n.deadline > ?2 OR n.must_undo) AND n.key_form <= ?4
        ORDER BY n.rank, n.id LIMIT 1))
    ORDER BY 3, 4 LIMIT ?3
)
SELECT rank, id, limits FROM merged

-- name: suspect_tasks
SELECT rank, id, limits FROM tasks
WHERE ready = 2 AND held = 0 AND queue = ?1 AND name = ?2
  AND (deadline IS NULL OR deadline > ?3 OR must_undo) AND key_form <= ?5
ORDER BY rank, id LIMIT ?4

-- name: merged_suspect_tasks
-- The first suspect of several pairs of queue and name; one at a time is handed out.
SELECT t.rank, t.id, t.limits FROM json_each(?1) l CROSS JOIN tasks t ON t.id = (
    SELECT n.id FROM tasks n WHERE n.ready = 2 AND n.held = 0 AND n.queue = l.value ->> 0 AND n.name = l.value ->> 1
      AND (n.deadline IS NULL OR n.deadline > ?2 OR n.must_undo) AND n.key_form <= ?4
    ORDER BY n.rank, n.id LIMIT 1)
ORDER BY t.rank, t.id LIMIT ?3

-- name: lease_task
-- A claim's whole change of one task; lifecycle.take does the same. Its caller counts the places that it takes.
UPDATE tasks SET owner = ?2, claim = ?3, alone = ?4, fence = fence + 1, sequence = 0, ready = 0,
    moves = moves + (state = 'pending'), state = iif(state = 'pending', 'running', state),
    revision = revision + 1, updated_at = ?5, started_at = coalesce(started_at, ?5),
    key_form = iif(key_form = 0, ?6, key_form)
WHERE id = ?1

-- name: any_suspect
SELECT EXISTS (SELECT 1 FROM tasks WHERE ready = 2 AND held = 0)

-- name: any_suspect_of
SELECT EXISTS (
    SELECT 1 FROM tasks
    WHERE ready = 2 AND held = 0
      AND queue IN (SELECT value FROM json_each(?1)) AND name IN (SELECT value FROM json_each(?2))
      AND key_form <= ?3
      AND NOT EXISTS (SELECT 1 FROM pauses WHERE subject IN ('queue:' || queue, 'task:' || name))
      AND NOT EXISTS (SELECT 1 FROM queues q WHERE q.name = tasks.queue AND q.working >= q.concurrency))

-- name: queue_settings
SELECT {queue_settings} FROM queues ORDER BY name

-- name: settings_of_queue
SELECT {queue_settings} FROM queues WHERE name = ?

-- name: insert_queue
-- The only time that its tasks are counted.
INSERT INTO queues (name, pending, working)
SELECT ?1, count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE owner IS NOT NULL AND resting <> fence)
FROM tasks INDEXED BY tasks_open WHERE finished_at IS NULL AND queue = ?1

-- name: set_max_pending
UPDATE queues SET max_pending = ?2 WHERE name = ?1

-- name: set_concurrency
UPDATE queues SET concurrency = ?2 WHERE name = ?1

-- name: set_retention
-- The next sweep looks, whatever was agreed before.
UPDATE queues SET retention = ?2, prunes_at = iif(?2 IS NULL, NULL, ?3) WHERE name = ?1

-- name: due_retentions
-- By turn, as in the index. Then what is put off until later than ?3, longer than is ever done: the clock was set back since.
SELECT name, retention FROM queues INDEXED BY queues_with_retention WHERE prunes_at <= ?1
UNION ALL
SELECT name, retention FROM queues INDEXED BY queues_with_retention WHERE prunes_at > ?3
LIMIT ?2

-- name: put_off_pruning
UPDATE queues SET prunes_at = ?2 WHERE name = ?1

-- name: free_places
-- Of these queues those that have a limit, with how many more of their tasks may begin.
SELECT name, max(concurrency - working, 0) FROM queues INDEXED BY queues_with_places
WHERE concurrency IS NOT NULL AND name IN (SELECT value FROM json_each(?1))

-- name: places_of_queue
SELECT concurrency, working FROM queues WHERE name = ? AND concurrency IS NOT NULL

-- name: pauses
SELECT {pause} FROM pauses ORDER BY subject

-- name: pauses_by_kind
-- Those of queues and names: the pauses of single tasks, which may be many, stand in the rows of these tasks as well.
SELECT subject FROM pauses
WHERE (subject >= 'queue:' AND subject < 'queue;') OR (subject >= 'task:' AND subject < 'task;')

-- name: pause
SELECT {pause} FROM pauses WHERE subject = ?

-- name: insert_pause
INSERT INTO pauses (subject, at, by, reason) VALUES (?, ?, ?, ?)

-- name: delete_pause
DELETE FROM pauses WHERE subject = ?

-- name: task_record
SELECT {task} FROM shown_tasks WHERE id = ?

-- name: just_claimed
-- A task that this transaction has leased, and the number of its last move.
SELECT moves, {task} FROM shown_tasks WHERE id = ?

-- name: claimed_records
SELECT r.alone, {r.task} FROM tasks t JOIN shown_tasks r ON r.id = t.id
WHERE t.owner = ?1 AND t.claim = ?2 ORDER BY t.rank, t.id

-- name: owned
SELECT {lease} FROM tasks WHERE owner = ? ORDER BY id

-- name: owned_to_stop
-- Of the tasks it holds: those whose cancel is requested, and those that are paused.
SELECT id, cancel_requested IS NOT NULL FROM tasks WHERE owner = ? AND (cancel_requested IS NOT NULL OR held & 1)

-- name: held_by_the_dead
-- Begins at the dead workers that still hold something: it reads neither every lease nor every dead worker.
SELECT t.id, w.seen_at FROM workers w CROSS JOIN tasks t ON t.owner = w.id
WHERE w.state = 'dead' AND w.cleared = 0 AND t.owner IS NOT NULL ORDER BY t.id LIMIT ?

-- name: clear_the_dead
UPDATE workers SET cleared = 1 WHERE state = 'dead' AND cleared = 0

-- name: due_timers
SELECT id FROM tasks WHERE wake_at IS NOT NULL AND wake_at <= ? ORDER BY wake_at, id LIMIT ?

-- name: passed_deadlines
SELECT id FROM tasks
WHERE deadline IS NOT NULL AND deadline <= ?1 AND owner IS NULL AND undoing = 0
  AND (state = 'waiting' OR (state IN ('pending', 'review') AND must_undo = 0))
ORDER BY deadline, id LIMIT ?2

-- name: due_delayed
SELECT id, queue FROM tasks
WHERE state = 'pending' AND ready = 0 AND owner IS NULL AND available_at <= ? ORDER BY available_at, id LIMIT ?

-- name: next_due
-- With when the next schedule is due: one whose worker is dead at once, so that another one takes it over; one that waits
-- for its last task not before that has ended. Both by their own index, which is empty where there are no schedules.
SELECT min(due), coalesce((
    SELECT 0 FROM schedules s
    WHERE s.declared_by IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = s.declared_by AND w.state <> 'dead')
    LIMIT 1
), (
    SELECT s.due_at FROM schedules s
    WHERE s.due_at IS NOT NULL AND (s.waits_for_last = 0 OR NOT EXISTS (
        SELECT 1 FROM tasks t WHERE t.id = s.last_task_id AND t.finished_at IS NULL))
    ORDER BY s.due_at, s.name LIMIT 1
)) FROM (
    SELECT min(available_at) AS due FROM tasks WHERE state = 'pending' AND ready = 0 AND owner IS NULL
    UNION ALL
    SELECT min(wake_at) FROM tasks WHERE wake_at IS NOT NULL
    UNION ALL
    SELECT min(deadline) FROM tasks WHERE deadline IS NOT NULL AND owner IS NULL AND undoing = 0
        AND (state = 'waiting' OR (state IN ('pending', 'review') AND must_undo = 0))
    UNION ALL
    SELECT min(expires_at) FROM approvals WHERE state = 'open' AND expires_at IS NOT NULL
    UNION ALL
    SELECT min(look_at) FROM limit_keys WHERE look_at IS NOT NULL
    UNION ALL
    SELECT min(p.settles_at) FROM permits p
    WHERE NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = p.worker_id AND w.state <> 'dead'))

-- name: due_schedules
-- What next_due sees, up to ?2 of each kind, as of ?1.
WITH found (name) AS (
    SELECT * FROM (
        SELECT s.name FROM schedules s
        WHERE s.due_at IS NOT NULL AND s.due_at <= ?1 AND (s.waits_for_last = 0 OR NOT EXISTS (
            SELECT 1 FROM tasks t WHERE t.id = s.last_task_id AND t.finished_at IS NULL))
        ORDER BY s.due_at, s.name LIMIT ?2)
    UNION
    SELECT * FROM (
        SELECT s.name FROM schedules s
        WHERE s.declared_by IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = s.declared_by AND w.state <> 'dead')
        LIMIT ?2)
)
SELECT {r.schedule} FROM found CROSS JOIN shown_schedules r ON r.name = found.name
ORDER BY r.due_at IS NULL, r.due_at, r.name LIMIT ?2

-- name: schedule
SELECT {schedule} FROM shown_schedules WHERE name = ?

-- name: schedules
SELECT {schedule} FROM shown_schedules ORDER BY name

-- name: insert_schedule
INSERT INTO schedules (name, spec, anchored_at, tick_at, due_at, waits_for_last, declared, declared_by, paused_at,
                       paused_by, pause_reason, last_tick_at, last_task_id, fired_at, skipped_at, created_at, revision)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, 1)
ON CONFLICT (name) DO NOTHING

-- name: update_schedule
-- Only if it still has the revision ?16.
UPDATE schedules
SET spec = ?2, anchored_at = ?3, tick_at = ?4, due_at = ?5, waits_for_last = ?6, declared = ?7, declared_by = ?8,
    paused_at = ?9, paused_by = ?10, pause_reason = ?11, last_tick_at = ?12, last_task_id = ?13, fired_at = ?14,
    skipped_at = ?15, revision = revision + 1
WHERE name = ?1 AND revision = ?16

-- name: delete_schedule
DELETE FROM schedules WHERE name = ? AND revision = ?

-- name: transitions
SELECT {transition} FROM transitions WHERE task_id = ? ORDER BY number

-- name: steps
SELECT {step} FROM steps WHERE task_id = ? ORDER BY position, round, key

-- name: task_standing
-- The columns of shown_tasks without the input, which may be large: a waiter reads this after every change of a task.
SELECT t.id, t.name, t.agent_id, CAST('null' AS BLOB) AS user_input, t.state, o.result, o.error,
       t.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form,
       t.owner IS NOT NULL AND t.resting = t.fence AS resting, t.labels, t.limits,
       iif(t.finished_at IS NULL, t.waits_for, NULL) AS waits_for
FROM tasks t
LEFT JOIN outcomes o ON o.task_id = t.id
WHERE t.id = ?

-- name: revisions
SELECT id, revision FROM tasks WHERE id IN (SELECT value FROM json_each(?1))

-- name: step
SELECT {step} FROM steps WHERE task_id = ? AND round = ? AND key = ?

-- name: last_steps
-- For a board: one line of each task, without its payloads. SQLite takes the other columns from the row of the maximum.
SELECT task_id, round, key, kind, max(position) AS position, state, attempts, fence, digest, NULL AS output,
       NULL AS error, effect_id, started_at, finished_at, retry_at, undone_at
FROM steps WHERE task_id IN (SELECT value FROM json_each(?1)) GROUP BY task_id

-- name: journal
-- What a replay needs: this round behind a position, and whatever left an effect in an earlier round.
SELECT {step} FROM steps
WHERE task_id = ?1 AND ((round = ?2 AND position > ?3) OR (round < ?2 AND effect_id IS NOT NULL))
ORDER BY position, round, key

-- name: journal_size
-- How many rows a load of the task reads, up to ?2 of each kind, and how many bytes they have. The length of a payload
-- stands at the beginning of its row.
SELECT count(*), coalesce(sum(bytes), 0) FROM (
    SELECT * FROM (SELECT ifnull(length(output), 0) + ifnull(length(error), 0) AS bytes
                   FROM steps WHERE task_id = ?1 LIMIT ?2)
    UNION ALL
    SELECT * FROM (SELECT length(arguments) + ifnull(length(result), 0) FROM effects WHERE task_id = ?1 LIMIT ?2)
    UNION ALL
    SELECT * FROM (SELECT length(body) FROM patches WHERE task_id = ?1 LIMIT ?2)
)

-- name: task_effects
SELECT {effect} FROM effects WHERE task_id = ? ORDER BY effect_id

-- name: evidence
SELECT {evidence} FROM evidence WHERE task_id = ? AND effect_id = ? ORDER BY number

-- name: insert_evidence
INSERT INTO evidence (task_id, effect_id, number, fence, body, at)
SELECT ?1, ?2, coalesce(max(number), 0) + 1, ?3, ?4, ?5 FROM evidence WHERE task_id = ?1 AND effect_id = ?2

-- name: patches
SELECT {patch} FROM patches WHERE task_id = ? AND version > ? ORDER BY version

-- name: checkpoints
SELECT {checkpoint} FROM checkpoints WHERE task_id = ? ORDER BY number

-- name: newest_checkpoint
SELECT {checkpoint} FROM checkpoints WHERE task_id = ? AND damaged IS NULL ORDER BY number DESC LIMIT 1

-- name: task_approvals
SELECT {approval} FROM approvals WHERE task_id = ? ORDER BY id

-- name: accounts
SELECT {account} FROM accounts WHERE account = ? ORDER BY meter

-- name: task_reservations
SELECT {reservation} FROM reservations WHERE task_id = ?
ORDER BY account, meter, step_key, fence

-- name: workers
SELECT id, label, lease / 1000000.0 AS lease, state, claims, details, started_at, seen_at FROM workers ORDER BY id

-- name: events
SELECT {event} FROM events WHERE channel = ? AND number > ? ORDER BY number LIMIT ?

-- name: position
SELECT coalesce((SELECT last FROM channels WHERE channel = ?), 0)

-- name: position_at_submission
-- Backwards from the newest event, so that only those are read that came after the submission, and one more. Tasks and
-- events from before positions were kept are compared by time.
SELECT coalesce(
    (SELECT e.number FROM events e
     WHERE e.channel = ?1 AND CASE WHEN i.event_position IS NULL THEN e.position = 0 AND e.at < t.created_at
                                   ELSE e.position <= i.event_position END
     ORDER BY e.number DESC LIMIT 1),
    (SELECT min(number) - 1 FROM events WHERE channel = ?1),
    (SELECT last FROM channels WHERE channel = ?1),
    0)
FROM inputs i JOIN tasks t ON t.id = i.task_id WHERE i.task_id = ?2

-- name: artifact
SELECT {artifact} FROM artifacts WHERE id = ?

-- name: insert_artifact
INSERT INTO artifacts (id, size, media_type, created_at, content) VALUES (?, ?, ?, ?, ?)

-- name: renew_artifact
-- Stored again: its age begins again, so that prune keeps it.
UPDATE artifacts SET created_at = ?2 WHERE id = ?1

-- name: insert_chunk
INSERT INTO artifact_chunks (content, number, body) VALUES (?, ?, ?)

-- name: delete_chunks
DELETE FROM artifact_chunks WHERE content = ?

-- name: chunks
-- In one statement, which sees all of an artifact or none of it; without a body where the range is empty.
SELECT c.body FROM artifacts a
LEFT JOIN artifact_chunks c ON c.content = a.content AND c.number BETWEEN ?2 AND ?3
WHERE a.id = ?1 ORDER BY c.number

-- name: insert_upload
INSERT INTO uploads (id, renewed_at) VALUES (?, ?)

-- name: renew_upload
UPDATE uploads SET renewed_at = ?2 WHERE id = ?1

-- name: delete_upload
DELETE FROM uploads WHERE id = ?

-- name: artifact_links
SELECT {link} FROM artifact_links WHERE task_id = ? ORDER BY artifact_id

-- name: fact
SELECT {fact} FROM fact_records WHERE id = ?

-- name: subject_mark
SELECT mark FROM subjects WHERE entity = ? AND attribute = ? AND other = ?

-- name: put_mark
INSERT INTO subjects (entity, attribute, other, mark) VALUES (?, ?, ?, ?)
ON CONFLICT (entity, attribute, other) DO UPDATE SET mark = excluded.mark

-- name: delete_mark
-- When its last fact has been deleted.
DELETE FROM subjects
WHERE entity = ?1 AND attribute = ?2 AND other = ?3
  AND NOT EXISTS (SELECT 1 FROM facts f WHERE f.entity = ?1 AND f.attribute = ?2 AND f.other = ?3)

-- name: subject_facts
-- The live ones by their own index, however long the history is; those that were asked for, by id. In no order: asked
-- for one, SQLite would go through the history, which is in order already.
SELECT {fact} FROM fact_records WHERE entity = ?1 AND attribute = ?2 AND other = ?3 AND superseded_by IS NULL
UNION ALL
SELECT {r.fact} FROM json_each(?4) AS asked CROSS JOIN fact_records r ON r.id = asked.value
WHERE r.entity = ?1 AND r.attribute = ?2 AND r.other = ?3 AND r.superseded_by IS NOT NULL

-- name: put_fact
-- Only a fact of the same subject is replaced.
INSERT INTO facts (entity, id, attribute, other, value, confidence, half_life, source, created_at, verified_at,
                   verified_by, superseded_by, words)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    value = excluded.value, confidence = excluded.confidence, half_life = excluded.half_life, source = excluded.source,
    created_at = excluded.created_at, verified_at = excluded.verified_at, verified_by = excluded.verified_by,
    superseded_by = excluded.superseded_by, words = excluded.words
WHERE entity = excluded.entity AND attribute = excluded.attribute AND other = excluded.other

-- name: delete_fact
DELETE FROM facts WHERE id = ?

-- name: search
-- Each word is looked for twice, as the beginning of a word and as a whole one: how often a fact is found is its rank.
SELECT {r.fact} FROM (
    SELECT fact_words.rowid AS number, count(*) AS hits
    FROM json_each(?1) AS pattern CROSS JOIN fact_words ON fact_words MATCH pattern.value
    GROUP BY fact_words.rowid
) AS found
JOIN fact_records r ON r.number = found.number
ORDER BY found.hits DESC, coalesce(r.verified_at, r.created_at) DESC, r.id DESC LIMIT ?2

-- name: queues
-- Goes through the open tasks, by the index that holds no others, and looks at the row of each: an index that had all
-- that is asked here would have to be kept up by every claim.
SELECT queue AS name,
       count(*) FILTER (WHERE state = 'pending' AND available_at <= ?1) AS ready,
       count(*) FILTER (WHERE state = 'pending' AND available_at > ?1) AS delayed,
       count(*) FILTER (WHERE state = 'running') AS running,
       count(*) FILTER (WHERE state = 'waiting') AS waiting,
       count(*) FILTER (WHERE state = 'review') AS review,
       min(available_at) FILTER (WHERE state = 'pending' AND available_at <= ?1) AS oldest_ready_at
FROM tasks INDEXED BY tasks_open WHERE finished_at IS NULL GROUP BY queue ORDER BY queue

-- name: queued
-- What comes next, as of the moment ?2, of the queue ?1 or of all: behind (?3, ?4) in the order of rank what is due, and
-- behind (?5, ?6) in the order of time what is delayed.
-- Due are the ready ones, which the index has in order for each queue and name: `lines` jumps from one pair to the next
-- (by the name, then by the queue: of (queue, name) > (?, ?) with an end beside it SQLite would use the queue alone), and
-- of each only a page is read, as in a claim. `held_lines` does the same for tasks that wait for a limit. Beside them,
-- suspects, tasks whose time has come but that no sweep has seen, and tasks of a fair queue that have no turn yet: few, as
-- long as any worker claims, so that they may be sorted. No name has the last of all characters in it.
WITH RECURSIVE lines (queue, name) AS (
    SELECT queue, name FROM tasks WHERE id = (
        SELECT id FROM tasks
        WHERE ready = 1 AND held = 0 AND queue BETWEEN coalesce(?1, '') AND coalesce(?1, char(1114111))
        ORDER BY queue, name LIMIT 1)
    UNION ALL
    SELECT t.queue, t.name FROM lines l CROSS JOIN tasks t ON t.id = coalesce(
        (SELECT id FROM tasks WHERE ready = 1 AND held = 0 AND queue = l.queue AND name > l.name ORDER BY name LIMIT 1),
        (SELECT id FROM tasks WHERE ready = 1 AND held = 0 AND queue > l.queue AND queue <= coalesce(?1, char(1114111))
         ORDER BY queue, name LIMIT 1))
), held_lines (queue, name) AS (
    SELECT queue, name FROM tasks WHERE id = (
        SELECT id FROM tasks
        WHERE ready >= 1 AND held = 2 AND queue BETWEEN coalesce(?1, '') AND coalesce(?1, char(1114111))
        ORDER BY queue, name LIMIT 1)
    UNION ALL
    SELECT t.queue, t.name FROM held_lines l CROSS JOIN tasks t ON t.id = coalesce(
        (SELECT id FROM tasks WHERE ready >= 1 AND held = 2 AND queue = l.queue AND name > l.name ORDER BY name LIMIT 1),
        (SELECT id FROM tasks WHERE ready >= 1 AND held = 2 AND queue > l.queue AND queue <= coalesce(?1, char(1114111))
         ORDER BY queue, name LIMIT 1))
), page AS MATERIALIZED (
    SELECT t.id, 0 AS delayed, t.rank AS place FROM lines l CROSS JOIN tasks t ON t.id IN (
        SELECT id FROM tasks
        WHERE ready = 1 AND held = 0 AND queue = l.queue AND name = l.name AND (rank, id) > (?3, ?4)
          AND state = 'pending'
          AND (deadline IS NULL OR deadline > ?2 OR must_undo)
        ORDER BY rank, id LIMIT ?7)
    UNION ALL
    SELECT t.id, 0, t.rank FROM held_lines l CROSS JOIN tasks t ON t.id IN (
        SELECT id FROM tasks
        WHERE ready >= 1 AND held = 2 AND queue = l.queue AND name = l.name AND (rank, id) > (?3, ?4)
          AND state = 'pending'
          AND (deadline IS NULL OR deadline > ?2 OR must_undo)
        ORDER BY rank, id LIMIT ?7)
    UNION ALL
    SELECT * FROM (
        SELECT id, 0, rank FROM tasks
        WHERE ready = 2 AND held = 0 AND queue BETWEEN coalesce(?1, '') AND coalesce(?1, char(1114111))
          AND (rank, id) > (?3, ?4) AND state = 'pending' AND (deadline IS NULL OR deadline > ?2 OR must_undo)
        ORDER BY rank, id LIMIT ?7)
    UNION ALL
    SELECT * FROM (
        SELECT id, 0, rank FROM tasks
        WHERE ready >= 1 AND held >= 4 AND held & 1 = 0
          AND queue BETWEEN coalesce(?1, '') AND coalesce(?1, char(1114111))
          AND (rank, id) > (?3, ?4) AND state = 'pending' AND (deadline IS NULL OR deadline > ?2 OR must_undo)
        ORDER BY rank, id LIMIT ?7)
    UNION ALL
    SELECT * FROM (
        SELECT id, 0, rank FROM tasks
        WHERE state = 'pending' AND ready = 0 AND owner IS NULL AND available_at <= ?2 AND (rank, id) > (?3, ?4)
          AND held & 1 = 0
          AND (?1 IS NULL OR queue = ?1) AND (deadline IS NULL OR deadline > ?2 OR must_undo)
        ORDER BY rank, id LIMIT ?7)
    UNION ALL
    SELECT * FROM (
        SELECT id, 1, available_at FROM tasks
        WHERE state = 'pending' AND ready = 0 AND owner IS NULL AND (available_at, id) > (?5, ?6)
          AND held & 1 = 0
          AND (?1 IS NULL OR queue = ?1) AND (deadline IS NULL OR deadline > ?2 OR must_undo)
        ORDER BY available_at, id LIMIT ?7)
    ORDER BY delayed, place, id LIMIT ?7
)
SELECT p.delayed, p.place, {r.task} FROM page p CROSS JOIN shown_tasks r ON r.id = p.id ORDER BY p.delayed, p.place, p.id

-- name: ids_that_begin
-- Of the table and the column that are filled in: a range of the index that begins with the id, so that nothing in the
-- text is a pattern. No name has the last of all characters in it, which cannot be printed. DISTINCT for effects: two
-- tasks may have one of the same id.
SELECT DISTINCT {id} FROM {table} WHERE {id} >= ?1 AND {id} < ?1 || char(1114111) ORDER BY {id} LIMIT ?2

-- name: ids_that_end
-- Those that end with it, or whose last eight characters begin with it: these are what tables show of an id. Looks at
-- every id, for no index knows how they end; asked only where none begins like this, by a person.
SELECT DISTINCT {id} FROM {table}
WHERE substr({id}, -length(?1)) = ?1 OR substr({id}, max(1, length({id}) - 7), length(?1)) = ?1 ORDER BY {id} LIMIT ?2

-- name: schema_version
SELECT max(version) FROM migrations

-- name: count_rows
-- Counts for people: SQLite keeps none, so each is a scan, of the smallest index where the table has one.
SELECT 'tasks', count(*) FROM tasks
UNION ALL SELECT 'steps', count(*) FROM steps
UNION ALL SELECT 'events', count(*) FROM events
UNION ALL SELECT 'artifacts', count(*) FROM artifacts
UNION ALL SELECT 'facts', count(*) FROM facts
UNION ALL SELECT 'workers', count(*) FROM workers

-- name: quick_check
-- Reads every page, and stops at the first thing that is wrong. The single row 'ok' means that nothing is.
PRAGMA quick_check(1)

-- name: count_workers
SELECT count(*) FROM workers WHERE state <> 'dead'

-- name: count_open_approvals
SELECT count(*) FROM approvals WHERE state = 'open'

-- name: count_doubts
-- The second condition is that of the index effects_in_doubt: SQLite does not see by itself that the first implies it.
SELECT count(*) FROM effects
WHERE state IN ('in_doubt', 'needs_human') AND state IN ('armed', 'in_doubt', 'needs_human')

-- name: prunable_tasks
-- Whole trees: a task without a parent that is stored, with all its descendants, if all of them ended before the cutoff,
-- nothing is reserved on an account of theirs and none of their effects is in doubt: a person has to decide those, and
-- finds them by their task. By the index of ended tasks, then by those of children and of doubts. In the order in which
-- the roots ended, parents before children: where the limit cuts a tree, what is left of it has no parent any more and
-- goes with the next batch.
WITH RECURSIVE roots AS MATERIALIZED (
    SELECT t.id, t.finished_at FROM tasks t
    WHERE t.finished_at IS NOT NULL AND t.finished_at < ?1
      AND NOT EXISTS (SELECT 1 FROM tasks p WHERE p.id = t.parent_id)
      AND NOT EXISTS (
          WITH RECURSIVE tree (id) AS (
              SELECT t.id UNION ALL SELECT c.id FROM tree CROSS JOIN tasks c ON c.parent_id = tree.id
          )
          SELECT 1 FROM tree CROSS JOIN tasks m ON m.id = tree.id
          WHERE m.finished_at IS NULL OR m.finished_at >= ?1
             OR EXISTS (SELECT 1 FROM reservations r WHERE r.account = m.id)
             OR EXISTS (SELECT 1 FROM effects e
                        WHERE e.task_id = m.id AND e.state IN ('armed', 'in_doubt', 'needs_human')))
    ORDER BY t.finished_at, t.id LIMIT ?2
), trees (id, depth, root, ended) AS (
    SELECT id, 0, id, finished_at FROM roots
    UNION ALL
    SELECT c.id, trees.depth + 1, trees.root, trees.ended FROM trees CROSS JOIN tasks c ON c.parent_id = trees.id
)
SELECT id FROM trees ORDER BY ended, root, depth, id LIMIT ?2

-- name: kept_no_longer
-- The same of one queue and one state, of roots that never had a parent. A tree goes by the setting of its root: its other
-- tasks may lie in queues that keep theirs. So where the limit cuts a tree, the children go first. Were the root to go
-- first, no setting would reach what is left.
WITH RECURSIVE roots AS MATERIALIZED (
    SELECT t.id, t.finished_at FROM tasks t INDEXED BY tasks_kept
    WHERE t.queue = ?1 AND t.state = ?2 AND t.finished_at IS NOT NULL AND t.finished_at < ?3 AND t.parent_id IS NULL
      AND NOT EXISTS (
          WITH RECURSIVE tree (id) AS (
              SELECT t.id UNION ALL SELECT c.id FROM tree CROSS JOIN tasks c ON c.parent_id = tree.id
          )
          SELECT 1 FROM tree CROSS JOIN tasks m ON m.id = tree.id
          WHERE m.finished_at IS NULL OR m.finished_at >= ?3
             OR EXISTS (SELECT 1 FROM reservations r WHERE r.account = m.id)
             OR EXISTS (SELECT 1 FROM effects e
                        WHERE e.task_id = m.id AND e.state IN ('armed', 'in_doubt', 'needs_human')))
    ORDER BY t.finished_at, t.id LIMIT ?4
), trees (id, depth, root, ended) AS (
    SELECT id, 0, id, finished_at FROM roots
    UNION ALL
    SELECT c.id, trees.depth + 1, trees.root, trees.ended FROM trees CROSS JOIN tasks c ON c.parent_id = trees.id
)
SELECT id FROM trees ORDER BY ended, root, depth DESC, id LIMIT ?4

-- name: effects_of_tasks
SELECT DISTINCT effect_id FROM effects WHERE task_id IN (SELECT value FROM json_each(?))

-- name: artifacts_of_tasks
SELECT DISTINCT artifact_id FROM artifact_links WHERE task_id IN (SELECT value FROM json_each(?))

-- name: delete_own_events
-- On the channels of tasks ?1 that are deleted, and of their effects ?2, unless a fork has such an effect as well.
DELETE FROM events WHERE channel IN (
    SELECT word.column1 || gone.value FROM (VALUES ('task:'), ('inbox:')) AS word CROSS JOIN json_each(?1) AS gone
    UNION ALL
    SELECT 'taken:' || gone.value FROM json_each(?2) AS gone
    WHERE NOT EXISTS (SELECT 1 FROM effects f WHERE f.effect_id = gone.value))

-- name: delete_unused_artifacts
-- Of these artifacts those as old that no task uses any more.
DELETE FROM artifacts
WHERE id IN (SELECT value FROM json_each(?1)) AND created_at < ?2
  AND NOT EXISTS (SELECT 1 FROM artifact_links l WHERE l.artifact_id = artifacts.id)
RETURNING content

-- name: delete_task
DELETE FROM tasks WHERE id = ?

-- name: delete_account
DELETE FROM accounts WHERE account = ?

-- name: delete_evidence
DELETE FROM evidence WHERE task_id = ?

-- name: prune_events
-- A channel <word>:<id> belongs to the task or the effect with that id. Its events stay while that task is open: the
-- channel's counter does not forget an event, so a message that is deleted unread would be waited for without end. They
-- stay while that effect is stored: the first event decides which call took the effect over. Oldest first, by the index
-- of ages alone, with one look each into the primary key of the tasks and the index of effects by id. What stays is
-- passed over again by the next batch.
DELETE FROM events WHERE (channel, number) IN (
    SELECT e.channel, e.number FROM events e
    WHERE e.at < ?1
      AND (instr(e.channel, ':') = 0 OR NOT (
          EXISTS (SELECT 1 FROM tasks t
                  WHERE t.id = substr(e.channel, instr(e.channel, ':') + 1) AND t.finished_at IS NULL)
          OR EXISTS (SELECT 1 FROM effects f WHERE f.effect_id = substr(e.channel, instr(e.channel, ':') + 1))))
    ORDER BY e.at LIMIT ?2)

-- name: prune_artifacts
DELETE FROM artifacts WHERE id IN (
    SELECT a.id FROM artifacts a
    WHERE a.created_at < ?1 AND NOT EXISTS (SELECT 1 FROM artifact_links l WHERE l.artifact_id = a.id)
    ORDER BY a.created_at LIMIT ?2)
RETURNING content

-- name: prune_uploads
-- The table holds only uploads that are under way, so it is small.
DELETE FROM uploads WHERE id IN (SELECT id FROM uploads WHERE renewed_at < ?1 ORDER BY renewed_at LIMIT ?2)
RETURNING id

-- name: prune_workers
DELETE FROM workers
WHERE state = 'dead' AND seen_at < ?1 AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.owner = workers.id)

-- name: feed_page
-- The events behind a number, with what is said of their tasks now, and with what a task reported, if that is not long. By
-- the number, which is the key of the table, and by the keys of the two others.
SELECT f.number, f.task_id, f.kind, f.round, f.at, f.data, t.name, t.queue, t.labels,
       CASE WHEN f.kind = 'progress' THEN (
           SELECT e.payload FROM events e
           WHERE e.channel = 'task:' || f.task_id AND e.number = f.data ->> 0 AND length(e.payload) <= ?3) END
FROM feed f LEFT JOIN tasks t ON t.id = f.task_id
WHERE f.number > ?1 ORDER BY f.number LIMIT ?2

-- name: feed_row
SELECT task_id, kind, at, data FROM feed WHERE number = ?

-- name: feed_begin
-- The number in front of the first event that is kept.
SELECT number - 1 FROM feed ORDER BY number LIMIT 1

-- name: feed_end
SELECT number FROM feed ORDER BY number DESC LIMIT 1

-- name: set_feed_retention
INSERT INTO feed_settings (name, kept_for, kept_rows) VALUES ('', ?1, ?2)
ON CONFLICT (name) DO UPDATE SET kept_for = excluded.kept_for, kept_rows = excluded.kept_rows

-- name: feed_retention
SELECT kept_for, kept_rows FROM feed_settings

-- name: feed_is_long
-- Whether there is enough to delete: the oldest event is a minute older than ?1, or 1 % more are kept than ?2. So an idle
-- store is not written to with every sweep.
SELECT (SELECT f.at FROM feed f ORDER BY f.number LIMIT 1) < ?1 - 60000000
    OR (SELECT max(number) FROM feed) - (SELECT min(number) FROM feed) >= ?2 + ?2 / 100

-- name: prune_feed
-- The oldest ?3 rows, as far as they are older than ?1, or beyond the ?2 newest ones: up to the first that is kept.
DELETE FROM feed WHERE number < (
    SELECT coalesce(
        min(o.number) FILTER (WHERE o.at >= ?1 AND o.number > (SELECT max(number) FROM feed) - ?2), max(o.number) + 1)
    FROM (SELECT number, at FROM feed ORDER BY number LIMIT ?3) AS o)
  AND number < (SELECT max(number) FROM feed)
