-- The rules of the model that the database itself enforces. Tests compare each with its Python original.

-- Which state may follow which: the table MOVES of model/transitions.py.
-- PL/pgSQL, because a CHECK asks it: an SQL function would be parsed anew by every statement that writes a transition.
CREATE FUNCTION {schema}.is_legal_move(source text, target text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE source
        WHEN 'pending' THEN target IN ('running', 'failed', 'cancelled')
        WHEN 'running' THEN target IN ('pending', 'waiting', 'review', 'completed', 'failed', 'cancelled')
        WHEN 'waiting' THEN target IN ('pending', 'failed', 'cancelled')
        WHEN 'review' THEN target IN ('completed', 'pending', 'failed', 'waiting', 'cancelled')
        WHEN 'failed' THEN target = 'pending'
        ELSE false
    END;
END
$$;

-- What has to be true of a task in each state: it has an end if and only if it is finished, it can be claimed only where
-- it is queued and nobody holds it, a timer is for waking, and only a lease can be a lone one.
-- PL/pgSQL for the same reason: spelled out in CHECKs, it cost a lone step a tenth of its time.
CREATE FUNCTION {schema}.is_sound(
    state text, owner text, finished_at timestamptz, ready smallint, wake_at timestamptz, alone boolean
) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN CASE state
        WHEN 'running' THEN finished_at IS NULL AND wake_at IS NULL AND ready = 0
        WHEN 'pending' THEN finished_at IS NULL AND wake_at IS NULL AND (ready = 0 OR owner IS NULL)
        WHEN 'review' THEN finished_at IS NULL AND wake_at IS NULL AND (ready = 0 OR owner IS NULL)
        WHEN 'waiting' THEN finished_at IS NULL AND ready = 0
        WHEN 'completed' THEN finished_at IS NOT NULL AND wake_at IS NULL AND ready = 0 AND owner IS NULL
        WHEN 'failed' THEN finished_at IS NOT NULL AND wake_at IS NULL AND ready = 0 AND owner IS NULL
        WHEN 'cancelled' THEN finished_at IS NOT NULL AND wake_at IS NULL AND ready = 0 AND owner IS NULL
        ELSE false
    END AND (owner IS NOT NULL OR NOT alone) AND ready BETWEEN 0 AND 2;
END
$$;

-- Which state of an effect may follow which: EFFECT_MOVES of model/effect.py. No state before: not yet stored.
-- The same state again is allowed to a worker only: of two people who resolve one doubt, the second is told.
CREATE FUNCTION {schema}.is_legal_effect_move(source text, target text, fenced boolean) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN source = target THEN fenced ELSE (coalesce(source, ''), target) IN (
        ('', 'intended'), ('', 'armed'), ('', 'done'),
        ('intended', 'armed'), ('intended', 'abandoned'), ('intended', 'in_doubt'),
        ('armed', 'done'), ('armed', 'failed'), ('armed', 'in_doubt'),
        ('failed', 'intended'), ('failed', 'armed'), ('failed', 'abandoned'), ('failed', 'in_doubt'),
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
