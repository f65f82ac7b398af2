-- Statements about fair queues, whose tasks take turns. See decision 0035.

-- name: fair_among
-- Those of these queues that are fair.
SELECT name FROM queues INDEXED BY fair_queues
WHERE fair_by IS NOT NULL AND name IN (SELECT value FROM json_each(?1))

-- name: queues_without_turns
-- The fair queues with tasks that have no turn yet, of these or (NULL) of all, and the label and turn of each.
SELECT name, fair_by, turn FROM queues INDEXED BY fair_queues
WHERE fair_by IS NOT NULL AND (?1 IS NULL OR name IN (SELECT value FROM json_each(?1)))
  AND EXISTS (SELECT 1 FROM tasks t WHERE t.queue = queues.name AND t.ready >= 1 AND t.held >= 4)
ORDER BY name

-- name: has_many_without_turn
-- A row if they are more than ?2.
SELECT 1 FROM tasks WHERE queue = ?1 AND ready >= 1 AND held >= 4 LIMIT 1 OFFSET ?2

-- name: tasks_without_turn
-- All of them, in the order in which they would be claimed in a queue that is not fair.
SELECT id, name, ready, labels, priority, fence FROM tasks
WHERE queue = ?1 AND ready >= 1 AND held >= 4 ORDER BY rank, id

-- name: first_turn
-- By the index that has nothing but turns in order.
SELECT rank FROM tasks
WHERE queue = ?1 AND name = ?2 AND ready = ?3 AND lane IS NOT NULL AND limits IS NULL AND held = 0 AND ready >= 1
ORDER BY rank LIMIT 1

-- name: forget_lanes
-- For the next task of a lane that claims have gone past, it does not matter what turn the last one had.
DELETE FROM lanes WHERE queue = ?1 AND last < ?2

-- name: last_turn
-- Of the tasks that are ready, or none.
SELECT rank FROM tasks WHERE queue = ?1 AND lane = ?2 AND lane IS NOT NULL AND ready >= 1 ORDER BY rank DESC LIMIT 1

-- name: is_lane_ahead
-- Whether the lane has had the turn that the claims have reached.
SELECT EXISTS (SELECT 1 FROM lanes WHERE queue = ?1 AND lane = ?2)

-- name: give_turn
UPDATE tasks SET held = held & 3, rank = ?2, lane = ?3 WHERE id = ?1

-- name: put_lane
INSERT INTO lanes (queue, lane, last) VALUES (?1, ?2, ?3)
ON CONFLICT (queue, lane) DO UPDATE SET last = excluded.last

-- name: ranks_of_tasks
-- Where these tasks would stand in a queue that is not fair.
SELECT id, available_at - priority * 600000000 FROM tasks WHERE id IN (SELECT value FROM json_each(?1))

-- name: go_on_to_turn
UPDATE queues SET turn = max(turn, ?2) WHERE name = ?1

-- name: set_fair_by
UPDATE queues SET fair_by = ?2, turn = iif(?2 IS NULL, 0, turn) WHERE name = ?1

-- name: forget_all_lanes
DELETE FROM lanes WHERE queue = ?1

-- name: take_turns_back
-- From all tasks of a queue that have not ended. If it is fair now (?2), those that are ready get turns again.
UPDATE tasks INDEXED BY tasks_open
SET held = iif(?2 AND ready >= 1, held | 4, held & 3), lane = NULL, rank = available_at - priority * 600000000
WHERE finished_at IS NULL AND queue = ?1
