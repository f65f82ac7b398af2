-- No worker is declared dead right after an outage, whatever its kind: a sweep says for how long it has been over.

DROP FUNCTION {schema}.sweep(integer, timestamptz);
DROP FUNCTION {schema}.declare_dead(timestamptz, boolean);

-- One bounded batch of everything. The order matters: tasks that could go on in time are woken before deadlines are
-- looked at.
CREATE FUNCTION {schema}.sweep(
    most integer, at timestamptz DEFAULT NULL, answering_for double precision DEFAULT NULL,
    OUT recovered text[], OUT poisoned text[], OUT woken text[], OUT due integer, OUT failed text[],
    OUT expired text[], OUT more boolean, OUT next_due timestamptz, OUT hints text[]
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    moment timestamptz := coalesce(at, clock_timestamp());
    lost record;
    undecided record;
    late record;
    timers text[];
    made_ready text[];
BEGIN
    PERFORM {schema}.declare_dead(moment, at IS NULL, answering_for);
    SELECT part.* INTO lost FROM {schema}.recover(most, moment) AS part;
    SELECT part.* INTO undecided FROM {schema}.expire_approvals(most, moment) AS part;
    timers := {schema}.wake_timers(most, moment);
    SELECT part.* INTO late FROM {schema}.pass_deadlines(most, moment) AS part;
    made_ready := {schema}.make_ready(most, moment);

    recovered := lost.recovered;
    poisoned := lost.poisoned;
    expired := undecided.expired;
    woken := timers || late.woken;
    failed := late.failed;
    due := cardinality(made_ready);
    more := most IN (cardinality(recovered || poisoned), cardinality(expired), cardinality(timers),
                     cardinality(failed || late.woken), due);
    next_due := {schema}.next_due();
    hints := {schema}.hints_of(
        lost.touched || undecided.touched || woken || failed || late.touched || made_ready);
END
$$;

-- Declare dead whose lease ran out. FOR UPDATE keeps claims out and looks at the row again under the lock, so that a
-- heartbeat that came first counts. While the server was away no worker could send one. So each gets one lease after a
-- start of the server, or a restart would make all work doubtful at once. The same holds after a time in which the server
-- could only be read, had no room on its disk, or was replaced by its standby, which started long ago. Only clients
-- notice that: `answering_for` is for how many seconds the server has answered this one since; NULL: it always has.
CREATE FUNCTION {schema}.declare_dead(moment timestamptz, real_time boolean, answering_for double precision)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.workers w SET state = 'dead'
    WHERE w.id IN (
        SELECT late.id FROM {schema}.workers late
        WHERE NOT late.emptied AND late.state IN ('live', 'draining') AND late.expires_at <= moment
          AND (NOT real_time OR pg_postmaster_start_time() + late.lease * interval '1 second' <= moment)
          AND (answering_for IS NULL OR late.lease <= answering_for)
        ORDER BY late.id FOR UPDATE SKIP LOCKED);
END
$$;
