-- The look for the next tick reads the last task of each schedule by its id, whatever the planner knows of the table.
-- Workers from version 32 on may go on.

-- When the next schedule is due: one whose worker is dead at once, so that another one takes it over; one that waits for
-- its last task not before that has ended. Two index ends, both of them empty where there are no schedules. OFFSET 0 keeps the
-- planner from a join, for which it goes over all open tasks.
CREATE OR REPLACE FUNCTION {schema}.next_tick() RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    RETURN coalesce((
        SELECT timestamptz 'epoch' FROM {schema}.schedules s
        WHERE s.declared_by IS NOT NULL
          AND NOT EXISTS (SELECT FROM {schema}.workers w WHERE w.id = s.declared_by AND w.state <> 'dead')
        LIMIT 1
    ), (
        SELECT s.due_at FROM {schema}.schedules s
        WHERE s.due_at IS NOT NULL AND (NOT s.waits_for_last OR NOT EXISTS (
            SELECT FROM {schema}.tasks t WHERE t.id = s.last_task_id AND t.finished_at IS NULL OFFSET 0))
        ORDER BY s.due_at, s.name LIMIT 1
    ));
END
$$;
