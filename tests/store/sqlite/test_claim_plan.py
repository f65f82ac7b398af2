"""A claim reads by index one row a line (a pair of queue and name) and one a task, in a fixed number of statements."""

from __future__ import annotations

import json
from collections.abc import Iterator

import apsw
import pytest

from holdfast.model.task import SCOPED_KEYS
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.sqlite import lease, turns
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.sql import QUERIES
from holdfast.store.sqlite.write_transaction import WriteTransaction

QUEUES, NAMES, TASKS = 20, 10, 20_000
LINES = QUEUES * NAMES
LIMIT = 1_000
NOW = 10**15

FILL = """
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?1)
    INSERT INTO tasks (id, name, agent_id, queue, priority, input_digest, search, state, ready, rank, available_at,
                       created_at, updated_at)
    SELECT format('t%06d', n), 'name ' || (n % ?2), 'a', 'queue ' || (n / ?2 % ?3), 0, '', '', 'pending', 1 + n % 7 / 6,
           ?4 + n / 10000, ?4, 0, 0
    FROM numbers
"""
"""Thousands of them have the same rank, as those that were submitted together."""


@pytest.fixture(scope="module")
def connection() -> Iterator[apsw.Connection]:
    made = connect(":memory:", durable=False)
    migrate(made, ":memory:")
    made.execute(FILL, (TASKS, NAMES, QUEUES, NOW))
    made.execute("INSERT INTO inputs (task_id, user_input) SELECT id, x'31' FROM tasks")
    yield made
    made.close()


def steps_of(connection: apsw.Connection, query: str, *values: object) -> int:
    """Return how many instructions SQLite needs for it: rows that are looked at in vain cost some each."""
    counted = 0

    def count() -> bool:
        nonlocal counted
        counted += 1
        return False

    connection.set_progress_handler(count, 1)
    try:
        list(connection.execute(QUERIES[query], values))
    finally:
        connection.set_progress_handler(None)
    return counted


@pytest.mark.parametrize("kind", ["ready", "suspect"])
def test_a_claim_reads_one_row_a_line_and_one_a_task(connection: apsw.Connection, kind: str) -> None:
    lines = [[f"queue {queue}", f"name {name}"] for queue in range(QUEUES) for name in range(NAMES)]
    queues = json.dumps(sorted({queue for queue, _ in lines}))
    found = steps_of(connection, f"{kind}_lines", queues)
    taken = steps_of(connection, f"merged_{kind}_tasks", json.dumps(lines), NOW, LIMIT, SCOPED_KEYS)
    assert found < 50 * LINES, found
    assert taken < 70 * (LINES + LIMIT), taken
    for query, values in ((f"{kind}_lines", 1), (f"{kind}_tasks", 5), (f"merged_{kind}_tasks", 4)):
        explained = connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[query]}", (None,) * values)
        plan = [str(row[3]) for row in explained]
        searched = [line for line in plan if line.split()[1:2] in (["t"], ["n"], ["tasks"])]
        index = f"tasks_{kind}"
        assert all(index in line or "PRIMARY KEY (id=?)" in line for line in searched), plan
        assert any(index in line for line in searched), plan


@pytest.mark.parametrize(("query", "values"), [("free_places", 1), ("places_of_queue", 1)])
def test_a_look_for_places_reads_no_queue_that_has_none(connection: apsw.Connection, query: str, values: int) -> None:
    explained = connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[query]}", (None,) * values)
    plan = [str(row[3]) for row in explained]
    assert all(line.startswith("SEARCH queues") for line in plan if "queues" in line), plan


def test_a_claim_is_as_many_statements_for_many_lines_as_for_two(connection: apsw.Connection) -> None:
    seen: list[str] = []

    def trace(_: apsw.Cursor, sql: str, __: object) -> bool:
        seen.append(sql)
        return True

    counts = []
    connection.execute("BEGIN")
    limit = "INSERT INTO queues (name, pending, concurrency, working) VALUES (?, 0, 1, ?)"
    for number, names in enumerate((2, NAMES, 2_000, 2, 2, 2, 2, 2, 2), 1):
        if number == 4:
            connection.execute("INSERT INTO pauses (subject, at, by) VALUES ('queue:elsewhere', 0, 'ann')")
        if number == 5:
            connection.execute("DELETE FROM pauses")
            connection.execute(limit, ("elsewhere", 0))
        if number == 6:
            connection.execute(limit, ("queue 1", 1))
        if number == 7:
            connection.execute(limit, ("queue 2", 0))
        if number == 8:
            connection.execute("UPDATE queues SET concurrency = NULL")
            connection.execute("UPDATE queues SET fair_by = 'tenant' WHERE name = 'queue 2'")
            turns.give_turns(WriteTransaction(connection, now=NOW + 10, boot=0, boot_id="boot"))
        if number == 9:
            connection.execute("UPDATE tasks SET held = 4 WHERE id = 't000020'")
        tx = WriteTransaction(connection, now=NOW + 10, boot=0, boot_id="boot")
        worker = NewWorker(id=f"worker {number}")
        lease.register(tx, worker)
        asked = Claim(
            worker_id=worker.id,
            number=1,
            limit=5,
            queues=[f"queue {n}" for n in range(QUEUES)],
            names=[f"name {n}" for n in range(names)],
        )
        seen.clear()
        connection.exec_trace = trace
        tx = WriteTransaction(connection, now=NOW + 10, boot=0, boot_id="boot")
        assert len(lease.claim_within(tx, asked)) == 5
        connection.exec_trace = None
        counts.append(len(seen))
    connection.execute("ROLLBACK")
    # One more where a queue is paused, or limits its tasks at work; two for each limited queue that has a place. One
    # where a queue is fair, and three to see what is next in it; and some where tasks have to get their turns first.
    assert [count - counts[0] for count in counts[:8]] == [0, 0, 0, 1, 1, 1, 3, 4], counts
    assert counts[8] - counts[7] <= 12, counts


def test_a_claim_of_a_fair_queue_reads_as_little_as_of_another(connection: apsw.Connection) -> None:
    """However long the queue is, and however many tenants it has. So does a pass that gives one task its turn."""
    counts = []
    for label in (None, "tenant"):
        connection.execute("BEGIN")
        connection.execute("INSERT INTO queues (name, pending, fair_by) VALUES ('queue 1', 0, ?)", (label,))
        tx = WriteTransaction(connection, now=NOW + 10, boot=0, boot_id="boot")
        connection.execute("UPDATE tasks SET queue = 'queue 1', name = 'job', labels = ?", (b'{"tenant":"big"}',))
        if label is not None:
            turns.begin_again(tx, "queue 1", is_fair=True)
            turns.give_turns(tx)
            connection.execute("UPDATE tasks SET held = 4, lane = NULL WHERE id = 't000123'")
        lease.register(tx, NewWorker(id="worker"))
        asked = Claim(worker_id="worker", number=1, limit=5, queues=["queue 1"], names=["job"])
        done = 0

        def count() -> bool:
            nonlocal done
            done += 1
            return False

        connection.set_progress_handler(count, 1)
        assert len(lease.claim_within(tx, asked)) == 5
        connection.set_progress_handler(None)
        counts.append(done)
        connection.execute("ROLLBACK")
    assert counts[1] < counts[0] + 3_000, counts
