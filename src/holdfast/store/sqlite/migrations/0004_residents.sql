-- Tasks that only wait although they keep their worker. The column holds the fence under which the task rests, so that
-- the note is void as soon as the lease is another one; 0 is none.
ALTER TABLE tasks ADD COLUMN resting INTEGER NOT NULL DEFAULT 0;

DROP VIEW shown_tasks;
CREATE VIEW shown_tasks AS
SELECT t.id, t.name, t.agent_id, i.user_input, t.state, o.result, o.error,
       t.created_at, t.updated_at, t.started_at, t.finished_at,
       t.queue, t.priority, t.key, t.available_at, t.deadline, t.schedule, t.parent_id,
       t.round, t.attempts, t.deaths, t.lone_deaths, t.feedback, t.cancel_requested, t.must_undo,
       t.owner, t.fence, t.sequence, t.revision, t.version, t.key_form,
       t.owner IS NOT NULL AND t.resting = t.fence AS resting,
       t.rank, t.ready, t.alone, t.claim, t.search, t.moves
FROM tasks t
JOIN inputs i ON i.task_id = t.id
LEFT JOIN outcomes o ON o.task_id = t.id;
