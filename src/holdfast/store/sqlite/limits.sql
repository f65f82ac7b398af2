-- Statements about limits, their keys, the lines of tasks that wait for a key, and the permits of steps. See decision 0032.

-- name: limits
SELECT {limit} FROM limits ORDER BY name

-- name: limit_by_name
SELECT {limit} FROM limits WHERE name = ?

-- name: put_limit
INSERT INTO limits (name, concurrency, rate, tokens, per, burst, each) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (name) DO UPDATE SET
    concurrency = excluded.concurrency, rate = excluded.rate, tokens = excluded.tokens, per = excluded.per,
    burst = excluded.burst

-- name: known_keys
SELECT key FROM limit_keys WHERE key IN (SELECT value FROM json_each(?1))

-- name: insert_key
INSERT INTO limit_keys (key, name) VALUES (?, ?) ON CONFLICT (key) DO NOTHING

-- name: close_key
UPDATE limit_keys SET closed_until = ?2 WHERE key = ?1 AND (closed_until IS NULL OR closed_until < ?2)

-- name: key_states
-- What the keys have taken and counted, what their limits allow, and whether they are paused: each by its primary key.
SELECT k.key, k.taken, k.calls, k.tokens, k.closed_until, l.concurrency, l.rate, l.tokens, l.per, l.burst,
       EXISTS (SELECT 1 FROM pauses p WHERE p.subject IN ('limit:' || k.key, 'limit:' || k.name)),
       EXISTS (SELECT 1 FROM limit_uses u WHERE u.key = k.key AND u.counted_at > ?2)
FROM json_each(?1) AS asked CROSS JOIN limit_keys k ON k.key = asked.value CROSS JOIN limits l ON l.name = k.name

-- name: delete_uses_over
-- What counts no more, of these keys: the first rows of each.
DELETE FROM limit_uses WHERE key IN (SELECT value FROM json_each(?1)) AND until <= ?2 RETURNING key, calls, tokens

-- name: delete_uses_of_the_future
DELETE FROM limit_uses WHERE key = ? AND counted_at > ? RETURNING until, calls, tokens, counted_at

-- name: move_uses_of_permits
UPDATE permits SET until = ?3 WHERE key = ?1 AND until = ?2

-- name: lines_of_the_future
-- Keys whose line is looked at too late, because the clock was set back.
SELECT key FROM limit_keys k
WHERE look_at > ?1 AND EXISTS (SELECT 1 FROM limit_uses u WHERE u.key = k.key AND u.counted_at > ?1)

-- name: key_sweep_due
SELECT after_key FROM key_sweeps WHERE goes_on_at <= ?

-- name: next_keys
SELECT key FROM limit_keys WHERE key > ?1 ORDER BY key LIMIT ?2

-- name: delete_idle_keys
-- Those of these keys whose rows say nothing that a missing row would not say: nothing has a permit, nothing counts, and
-- nothing waits.
DELETE FROM limit_keys
WHERE key IN (SELECT value FROM json_each(?1)) AND taken = 0 AND calls = 0 AND tokens = 0 AND look_at IS NULL
  AND coalesce(closed_until <= ?2, 1)
  AND EXISTS (SELECT 1 FROM limits l WHERE l.name = limit_keys.name AND l.each)
  AND NOT EXISTS (SELECT 1 FROM limit_uses u WHERE u.key = limit_keys.key)
  AND NOT EXISTS (SELECT 1 FROM permits p WHERE p.key = limit_keys.key AND p.granted_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = limit_keys.key AND t.held IN (0, 2) AND t.ready >= 1)

-- name: continue_key_sweep
UPDATE key_sweeps SET after_key = ?, goes_on_at = ?

-- name: keys_with_uses_over
-- For prune: of the keys that no other verb looks at any more. Goes through the table, which has few rows for each key.
SELECT DISTINCT key FROM limit_uses WHERE until <= ?1 LIMIT ?2

-- name: add_use
INSERT INTO limit_uses (key, until, calls, tokens, counted_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (key, until) DO UPDATE SET
    calls = calls + excluded.calls, tokens = tokens + excluded.tokens, counted_at = max(counted_at, excluded.counted_at)

-- name: change_use
UPDATE limit_uses SET calls = calls + ?3, tokens = tokens + ?4 WHERE key = ?1 AND until = ?2

-- name: delete_empty_use
DELETE FROM limit_uses WHERE key = ? AND until = ? AND calls = 0

-- name: add_to_key
UPDATE limit_keys SET calls = calls + ?2, tokens = tokens + ?3 WHERE key = ?1

-- name: take_places
UPDATE limit_keys SET taken = taken + ?2 WHERE key = ?1

-- name: give_places_back
-- With a look at the line of the key, if there is one.
UPDATE limit_keys SET taken = taken - ?2, look_at = iif(
    EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = ?1 AND t.held = 2 AND t.ready >= 1), 0, look_at)
WHERE key = ?1

-- name: first_end_of_uses
SELECT min(until) FROM limit_uses WHERE key = ? AND until > ?

-- name: uses_of_key
SELECT until, calls, tokens FROM limit_uses WHERE key = ? AND until > ? ORDER BY until

-- name: room_for_more
-- Of keys that have room and no line, how many more than the candidates that there are.
SELECT k.key, ?3 - (
    SELECT count(*) FROM (
        SELECT 1 FROM tasks t WHERE t.waits_for = k.key AND t.held = 0 AND t.ready >= 1 AND t.waits_for IS NOT NULL LIMIT ?3))
FROM json_each(?1) AS asked CROSS JOIN limit_keys k ON k.key = asked.value CROSS JOIN limits l ON l.name = k.name
WHERE coalesce(k.taken < l.concurrency, 1) AND coalesce(k.calls < l.rate + l.burst, 1) AND coalesce(k.closed_until <= ?2, 1)
  AND NOT EXISTS (SELECT 1 FROM pauses p WHERE p.subject IN ('limit:' || k.key, 'limit:' || k.name))
  AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = k.key AND t.held = 2 AND t.ready >= 1)

-- name: keys_to_look_at
SELECT key FROM limit_keys WHERE look_at IS NOT NULL AND look_at <= ?1 ORDER BY look_at, key LIMIT ?2

-- name: look_at
UPDATE limit_keys SET look_at = ?2 WHERE key = ?1

-- name: look_at_line
-- If there is one.
UPDATE limit_keys SET look_at = 0
WHERE key = ?1 AND EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = ?1 AND t.ready >= 1 AND t.held = 2)

-- name: look_at_line_later
-- If there is one: when the first of what counts now counts no more.
UPDATE limit_keys SET look_at = coalesce(
    look_at, (SELECT min(until) FROM limit_uses u WHERE u.key = ?1 AND u.until > ?2))
WHERE key = ?1 AND EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = ?1 AND t.ready >= 1 AND t.held = 2)

-- name: look_at_limit
-- All keys of a limit that have a line.
UPDATE limit_keys SET look_at = 0
WHERE name = ?1 AND EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = limit_keys.key AND t.ready >= 1 AND t.held = 2)

-- name: has_line
SELECT EXISTS (SELECT 1 FROM tasks WHERE waits_for = ? AND ready >= 1 AND held = 2)

-- name: lines_of_key
-- The lines of a key: of ordinary tasks (1) and of suspects (2), for each queue and name. From one to the next through the
-- index: it reads one row a line, however long the lines are. (Of `ready > l.ready` beside `ready >= 1`, which the index
-- asks for, SQLite would use the second, and go through the whole line.)
WITH RECURSIVE lines (queue, name, ready) AS (
    SELECT * FROM (
        SELECT queue, name, ready FROM tasks WHERE waits_for = ?1 AND ready >= 1 AND held = 2
        ORDER BY queue, name, ready LIMIT 1)
    UNION ALL
    SELECT t.queue, t.name, t.ready FROM lines l CROSS JOIN tasks t ON t.id = coalesce(
        (SELECT id FROM tasks
         WHERE waits_for = ?1 AND ready >= 1 AND held = 2 AND queue = l.queue AND name = l.name AND ready = 2 AND l.ready = 1
         LIMIT 1),
        (SELECT id FROM tasks
         WHERE waits_for = ?1 AND ready >= 1 AND held = 2 AND queue = l.queue AND name > l.name
         ORDER BY name, ready LIMIT 1),
        (SELECT id FROM tasks
         WHERE waits_for = ?1 AND ready >= 1 AND held = 2 AND queue > l.queue ORDER BY queue, name, ready LIMIT 1))
)
SELECT queue, name, ready FROM lines

-- name: first_in_line
-- Without those that are late: no claim gets them, the next sweep fails them.
SELECT rank, id, limits FROM tasks
WHERE waits_for = ?1 AND queue = ?2 AND name = ?3 AND ready = ?4 AND ready >= 1 AND held = 2
  AND (deadline IS NULL OR deadline > ?5 OR must_undo)
ORDER BY rank, id LIMIT ?6

-- name: candidates
-- Those that were let out of a line and not claimed yet, without the first ?5.
SELECT rank, id FROM tasks
WHERE waits_for = ?1 AND queue = ?2 AND name = ?3 AND ready = ?4 AND ready >= 1 AND held = 0
ORDER BY rank, id LIMIT ?6 OFFSET ?5

-- name: let_out
UPDATE tasks SET held = held & 1 WHERE id = ?

-- name: change_line
UPDATE tasks SET waits_for = ?2 WHERE id = ?1

-- name: hold_candidate
UPDATE tasks SET held = held | 2, waits_for = ?2 WHERE id = ?1

-- name: limit_uses
-- The lines are counted in their index, and so are those that were let out and not claimed yet, or have to get their turns first. Steps of dead workers wait
-- no more, although the next sweep deletes them.
WITH found AS MATERIALIZED (
    SELECT k.key, k.taken,
           (SELECT count(*) FROM tasks t WHERE t.waits_for = k.key AND t.ready >= 1 AND t.held IN (0, 2, 4, 6))
         + (SELECT count(*) FROM permits p
            WHERE p.key = k.key AND p.granted_at IS NULL
              AND EXISTS (SELECT 1 FROM workers w WHERE w.id = p.worker_id AND w.state <> 'dead')) AS waiting,
           (SELECT coalesce(sum(u.calls), 0) FROM limit_uses u WHERE u.key = k.key AND u.until > ?2) AS calls,
           (SELECT coalesce(sum(u.tokens), 0) FROM limit_uses u WHERE u.key = k.key AND u.until > ?2) AS used_tokens,
           iif(k.closed_until > ?2, k.closed_until, NULL), {l.limit}
    FROM limit_keys k CROSS JOIN limits l ON l.name = k.name
    WHERE ?1 IS NULL OR k.name = ?1
)
SELECT * FROM found ORDER BY taken + waiting + calls + used_tokens = 0, key LIMIT ?3

-- name: worker_lives
SELECT EXISTS (SELECT 1 FROM workers WHERE id = ? AND state <> 'dead')

-- name: keys_that_steps_wait_for
-- Of a limit, or of one key.
SELECT DISTINCT p.key FROM permits p JOIN limit_keys k ON k.key = p.key
WHERE p.granted_at IS NULL AND (k.name = ?1 OR k.key = ?1)

-- name: permit_rows
SELECT key, place, worker_id, tokens, lasts, granted_at, until, reserved FROM permits WHERE id = ? ORDER BY key

-- name: next_place
SELECT coalesce(max(place), 0) + 1 FROM permits

-- name: insert_permit
INSERT INTO permits (id, key, place, task_id, worker_id, tokens, lasts) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: permits_before
-- What stands before a place in the line of a key, of workers that live.
SELECT p.tokens FROM permits p
WHERE p.key = ?1 AND p.granted_at IS NULL AND p.place < ?2
  AND EXISTS (SELECT 1 FROM workers w WHERE w.id = p.worker_id AND w.state <> 'dead')
ORDER BY p.place LIMIT ?3

-- name: grant_permit
UPDATE permits SET granted_at = ?3, until = ?4, reserved = ?5, settles_at = ?6 WHERE id = ?1 AND key = ?2

-- name: settle_permit_later
UPDATE permits SET granted_at = ?2, settles_at = ?3 WHERE id = ?1

-- name: delete_permit
DELETE FROM permits WHERE id = ?

-- name: permits_over
-- Of workers that are dead: what still waits, and what has settled; with how long that is away, should the clock have been set
-- back since a permit was given. Goes through the permits that there are.
SELECT DISTINCT p.id, p.settles_at, CASE WHEN p.granted_at > ?1 THEN p.settles_at - p.granted_at END FROM permits p
WHERE (p.settles_at IS NULL OR p.settles_at <= ?1 OR p.granted_at > ?1)
  AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = p.worker_id AND w.state <> 'dead')
ORDER BY p.settles_at, p.id LIMIT ?2
