-- Locks, in the one order that everybody keeps: workers, then tasks by id, accounts, channels, keys, each sorted.
-- Whoever needs a lock out of that order takes it with SKIP LOCKED and never waits, so nobody waits in a circle.
--
-- And plans: every statement in these files finds its rows by key, but PL/pgSQL keeps a plan for as long as the session
-- lives, and one made while a table was small would scan it when it is large. The functions that clients call
-- therefore forbid what only pays on small tables (SET enable_...); whatever they call is planned under the same.

-- Refuse to work under a stricter level: all statements would share one snapshot, and reading later would not help.
CREATE FUNCTION {schema}.insist_on_read_committed() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'holdfast works at the isolation level read committed, this session is at %',
            current_setting('transaction_isolation')
            USING HINT = 'set default_transaction_isolation to read committed for this role';
    END IF;
END
$$;

-- Lock these tasks, and those that may be woken: whoever waits for one of `ending` or listens to one of `emits`.
--
-- A waiter may commit between our first look and our lock on what it waits for. It then holds no lock any more and is
-- taken along by the second look. If somebody else holds it again by that time, the caller starts over: waiting here
-- would be out of order, and going on would lose the wake-up.
CREATE FUNCTION {schema}.lock_tasks(ids text[], ending text[], emits text[], listens text[], accounts text[])
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted text[] := ids || {schema}.waiters(ending, emits);
BEGIN
    PERFORM {schema}.insist_on_read_committed();
    PERFORM FROM {schema}.tasks t WHERE t.id = ANY (wanted) ORDER BY t.id FOR NO KEY UPDATE;

    IF cardinality(accounts) > 0 OR cardinality(ending) > 0 THEN
        PERFORM {schema}.lock_accounts(accounts, ending);
    END IF;
    IF cardinality(emits) > 0 OR cardinality(listens) > 0 THEN
        PERFORM {schema}.lock_channels(emits, listens);
    END IF;
    IF cardinality(emits) > 0 OR cardinality(ending) > 0 THEN
        PERFORM {schema}.lock_latecomers(ending, emits);
    END IF;
END
$$;

-- The tasks that wait for the end of one of `ending` or for an event on one of `emits`.
CREATE FUNCTION {schema}.waiters(ending text[], emits text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(ending) = 0 AND cardinality(emits) = 0 THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        SELECT task_id FROM {schema}.joins WHERE child_id = ANY (ending)
        UNION
        SELECT task_id FROM {schema}.waits WHERE kind = 'event' AND channel = ANY (emits)
    );
END
$$;

CREATE FUNCTION {schema}.lock_latecomers(ending text[], emits text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wanted text[] := {schema}.waiters(ending, emits);
    locked bigint;
BEGIN
    IF cardinality(wanted) = 0 THEN
        RETURN;
    END IF;
    SELECT count(*) INTO locked FROM (
        SELECT FROM {schema}.tasks t WHERE t.id = ANY (wanted) FOR NO KEY UPDATE SKIP LOCKED
    ) AS ours;
    IF locked < cardinality(wanted) THEN
        RAISE EXCEPTION 'a task began to wait for this while it happened; send it again'
            USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;

-- Lock the meters of these accounts, and of those on which the ending tasks still hold a reservation. A meter may be
-- opened only now, and its insert would wait for another one's: so the names are locked before the rows.
CREATE FUNCTION {schema}.lock_accounts(named text[], ending text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {schema}.lock_names('account', to_jsonb(named));
    PERFORM FROM {schema}.accounts a
    WHERE a.account = ANY (named || ARRAY(
        SELECT r.account FROM {schema}.reservations r WHERE r.task_id = ANY (ending)))
    ORDER BY a.account, a.meter FOR NO KEY UPDATE;
END
$$;

-- Lock channels, so that those who emit and those who begin to wait meet here. Many may begin to wait at once
-- (a shared lock); one who emits excludes them all until the event is there to be seen.
CREATE FUNCTION {schema}.lock_channels(emits text[], listens text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.channels (channel)
    SELECT DISTINCT name FROM unnest(emits || listens) AS name
    WHERE NOT EXISTS (SELECT FROM {schema}.channels c WHERE c.channel = name)
    ORDER BY name
    ON CONFLICT DO NOTHING;

    -- One pass in one mode: two passes would not be sorted.
    IF cardinality(emits) > 0 THEN
        PERFORM FROM {schema}.channels c WHERE c.channel = ANY (emits || listens)
        ORDER BY c.channel FOR NO KEY UPDATE;
    ELSE
        PERFORM FROM {schema}.channels c WHERE c.channel = ANY (listens)
        ORDER BY c.channel FOR SHARE;
    END IF;
END
$$;

-- Lock names of things that may not exist yet: idempotency keys, as pairs of name and key, and accounts. Inserts wait
-- for one another in the order in which they are made, and that order is the caller's.
CREATE FUNCTION {schema}.lock_names(kind text, names jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(number) FROM (
        SELECT DISTINCT hashtextextended('{schema}' || kind || name::text, 0) AS number
        FROM jsonb_array_elements(names) AS name
        ORDER BY number
    ) AS sorted;
END
$$;
