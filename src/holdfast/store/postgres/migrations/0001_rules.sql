-- The rules of the model that the database itself enforces. Tests compare each with its Python original.

-- Which state may follow which: the table MOVES of model/transitions.py.
CREATE FUNCTION {schema}.is_legal_move(source text, target text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (source, target) IN (
        ('pending', 'running'), ('pending', 'failed'), ('pending', 'cancelled'),
        ('running', 'pending'), ('running', 'waiting'), ('running', 'review'),
        ('running', 'completed'), ('running', 'failed'), ('running', 'cancelled'),
        ('waiting', 'pending'), ('waiting', 'failed'), ('waiting', 'cancelled'),
        ('review', 'completed'), ('review', 'pending'), ('review', 'failed'),
        ('review', 'waiting'), ('review', 'cancelled'),
        ('failed', 'pending')
    )
$$;

-- Which state of an effect may follow which: EFFECT_MOVES of model/effect.py. No state before: not yet stored.
-- The same state again is allowed to a worker only: of two people who resolve one doubt, the second is told.
CREATE FUNCTION {schema}.is_legal_effect_move(source text, target text, fenced boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN source = target THEN fenced ELSE (coalesce(source, ''), target) IN (
        ('', 'intended'), ('', 'armed'),
        ('intended', 'armed'), ('intended', 'abandoned'),
        ('armed', 'done'), ('armed', 'failed'), ('armed', 'in_doubt'),
        ('failed', 'intended'), ('failed', 'armed'), ('failed', 'abandoned'),
        ('in_doubt', 'done'), ('in_doubt', 'intended'), ('in_doubt', 'needs_human'),
        ('needs_human', 'done'), ('needs_human', 'intended'), ('needs_human', 'compensating'),
        ('needs_human', 'abandoned'),
        ('done', 'compensating'), ('done', 'in_doubt'),
        ('compensating', 'compensated'), ('compensating', 'needs_human'),
        ('compensated', 'in_doubt'),
        ('abandoned', 'in_doubt')
    ) END
$$;

-- The three states in which a task has ended.
CREATE FUNCTION {schema}.is_terminal(state text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT state IN ('completed', 'failed', 'cancelled')
$$;

-- The place in the queue: each point of priority is worth AGEING (model/task.py) of waiting.
CREATE FUNCTION {schema}.rank_of(available_at timestamptz, priority integer) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT available_at - priority * interval '10 minutes'
$$;

-- Whether a task can be claimed: 1 now, 2 only by a worker that runs nothing else (deaths >= ALONE_AFTER of
-- model/worker.py), 0 not at all. Stored with the task, because an index cannot ask what time it is.
CREATE FUNCTION {schema}.readiness(
    state text, owner text, available_at timestamptz, deaths integer, moment timestamptz
) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (CASE
        WHEN owner IS NOT NULL THEN 0
        WHEN state = 'review' OR (state = 'pending' AND available_at <= moment)
            THEN CASE WHEN deaths >= 2 THEN 2 ELSE 1 END
        ELSE 0
    END)::smallint
$$;
