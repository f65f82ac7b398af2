"""Very many rows of all that steers the flow of work, made inside the database."""

from __future__ import annotations

from datetime import timedelta

import apsw
import psycopg

from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.migration import migrate
from tests.store.plans.calls import FULL, NOW, QUEUES, RARE, Big

SQLITE = """
    INSERT INTO workers VALUES ('declarer', '', 80000000000, 'live', 0, x'7b7d', :now, :now, '', 0, 0);

    CREATE TEMP TABLE numbers (n INTEGER PRIMARY KEY);
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :rows)
    INSERT INTO temp.numbers SELECT n FROM numbers;

    INSERT INTO tasks (id, name, agent_id, queue, priority, key, input_digest, search, state, ready, held, rank,
                       available_at, created_at, updated_at, finished_at, labels)
    SELECT format('t%07d', n), 'job', 'a', 'queue ' || (n / 10 % :queues), 0, 'key ' || n, '', '',
           CASE WHEN n % 10 < 4 THEN 'completed' WHEN n % 10 < 8 THEN 'pending' ELSE 'waiting' END,
           n % 10 IN (4, 5, 7), n % 10 = 7, :now - 1000000 * (:rows - n),
           CASE n % 10 WHEN 6 THEN :now + 3600000000 ELSE :now - 1000000 * (:rows - n) END,
           :now - 1000000 * (:rows - n), :now, iif(n % 10 < 4, :now - 1000000 * (:rows - n), NULL),
           CAST(CASE WHEN n % 2 = 0 THEN '{"tenant":"globex"}'
                     WHEN n % (:rows / :rare) = 5 THEN '{"kind":"rare","tenant":"acme"}'
                     ELSE '{"tenant":"acme"}' END AS BLOB)
    FROM temp.numbers;
    INSERT INTO inputs (task_id, user_input, event_position) SELECT format('t%07d', n), x'31', 0 FROM temp.numbers;
    INSERT INTO pauses (subject, at, by) SELECT format('t%07d', n), 0, 'ann' FROM temp.numbers;
    INSERT INTO schedules (name, spec, anchored_at, tick_at, due_at, waits_for_last, declared, declared_by,
                           last_task_id, created_at, revision)
    SELECT format('s%07d', n), x'7b7d', 0, 0, iif(n % 2, NULL, :now - 86400000000 + 10000 * n), n % 4 = 0,
           n < 10, iif(n < 10, 'declarer', NULL), format('t%07d', n), 0, 1
    FROM temp.numbers;
    INSERT INTO queues (name, max_pending, pending, concurrency, retention, prunes_at)
    SELECT 'other ' || n, 10, 0, 10, '{"completed":0}', :now + 30000000 FROM temp.numbers;
    INSERT INTO queues (name, max_pending, pending, concurrency, retention, prunes_at)
    SELECT 'queue ' || n, iif('queue ' || n = :full, 1, 10 * :rows), :rows / :queues * 4 / 10, :rows,
           iif(n = 8, '{"completed":1000000000000000}', NULL), iif(n = 8, :now - 1000000, NULL) FROM temp.numbers
    WHERE n < :queues;
    DROP TABLE temp.numbers;
"""


def fill_sqlite(path: str, big: Big) -> None:
    connection: apsw.Connection = connect(path, durable=False)
    try:
        migrate(connection, path)
        now = round(NOW.timestamp() * 1_000_000)
        values = {"rows": big.rows, "now": now, "queues": QUEUES, "rare": RARE, "full": FULL}
        connection.execute("PRAGMA synchronous = off")
        with connection:
            for statement in SQLITE.split(";\n"):
                connection.execute(statement, values)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()


POSTGRES = """
    SET session_replication_role = replica; SET synchronous_commit = off; SET search_path = holdfast;

    INSERT INTO tasks (id, name, agent_id, queue, priority, key, state, ready, held, rank, available_at, updated_at,
                       finished_at, labels, is_counted)
    SELECT 't' || lpad(n::text, 7, '0'), 'job', 'a', 'queue ' || n / 10 % {queues}, 0, 'key ' || n,
           CASE WHEN n % 10 < 4 THEN 'completed' WHEN n % 10 < 8 THEN 'pending' ELSE 'waiting' END,
           (n % 10 IN (4, 5, 7))::int, (n % 10 = 7)::int, a.at,
           CASE n % 10 WHEN 6 THEN '{now}'::timestamptz + interval '1 hour' ELSE a.at END, '{now}',
           CASE WHEN n % 10 < 4 THEN a.at END,
           CASE WHEN n % 2 = 0 THEN '{{"tenant": "globex"}}'
                WHEN n % ({rows} / {rare}) = 5 THEN '{{"kind": "rare", "tenant": "acme"}}'
                ELSE '{{"tenant": "acme"}}' END::jsonb,
           true
    FROM generate_series(0, {rows} - 1) AS n,
         LATERAL (SELECT '{now}'::timestamptz - ({rows} - n) * interval '1 second') AS a (at);
    INSERT INTO task_labels (task_id, name, value, created_at, is_open)
    SELECT t.id, l.key, l.value, t.rank, t.finished_at IS NULL FROM tasks t, jsonb_each_text(t.labels) AS l;
    INSERT INTO inputs (task_id, created_at, user_input, digest, search) SELECT id, rank, '1', '', '' FROM tasks;
    INSERT INTO task_keys (name, key, task_id) SELECT name, key, id FROM tasks;
    INSERT INTO pauses (subject, at, by) SELECT id, '{now}', 'ann' FROM tasks;
    INSERT INTO schedules (name, spec, anchored_at, tick_at, due_at, waits_for_last, declared, declared_by,
                           last_task_id, created_at, revision)
    SELECT 's' || lpad(n::text, 7, '0'), '{{}}', '{now}', '{now}',
           CASE WHEN n % 2 = 0 THEN '{now}'::timestamptz - interval '1 day' + n * interval '10 milliseconds' END,
           n % 4 = 0, n < 10, CASE WHEN n < 10 THEN 'declarer' END, 't' || lpad(n::text, 7, '0'), '{now}', 1
    FROM generate_series(0, {rows} - 1) AS n;
    INSERT INTO queues (name, max_pending, pending) SELECT 'other ' || n, 10, 0 FROM generate_series(1, {rows}) AS n;
    INSERT INTO queues (name, max_pending, pending)
    SELECT 'queue ' || n, CASE WHEN 'queue ' || n = '{full}' THEN 1 ELSE 10 * {rows} END, {rows} / {queues} * 4 / 10
    FROM generate_series(0, {queues} - 1) AS n;
    INSERT INTO queue_changes (queue, change) SELECT 'other ' || n, 1 FROM generate_series(1, {rows}) AS n;
    INSERT INTO queue_slots (queue, concurrency, taken) SELECT q.name, {rows}, 0 FROM queues q;
    INSERT INTO slot_changes (queue, change) SELECT 'other ' || n, 0 FROM generate_series(1, {rows}) AS n;
    INSERT INTO retentions (queue, kept_for, prunes_at)
    SELECT 'other ' || n, '{{"completed": 0}}', '{now}'::timestamptz + interval '30 seconds'
    FROM generate_series(1, {rows}) AS n;
    INSERT INTO retentions
    VALUES ('queue 8', '{{"completed": 1000000000000000}}', '{now}'::timestamptz - interval '1 second');
    INSERT INTO workers (id, label, lease, state, details, started_at, seen_at, expires_at)
    VALUES ('declarer', '', 80000, 'live', '{{}}', '{now}', '{now}', '{now}'::timestamptz + interval '{lease}');
"""


def fill_postgres(url: str, big: Big) -> None:
    """Fill a database that has the schema."""
    values = {"rows": big.rows, "now": NOW, "queues": QUEUES, "rare": RARE, "full": FULL, "lease": timedelta(hours=22)}
    with psycopg.connect(url, autocommit=True) as connection:
        # Otherwise the server gathers its statistics again during the test, and plans by other ones from then on.
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")
        for (table,) in found.fetchall():
            connection.execute(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = off)".encode())
        connection.execute(POSTGRES.format(**values).encode())
        connection.execute("VACUUM ANALYZE")
