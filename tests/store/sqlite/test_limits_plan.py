"""What limits cost a claim: nothing without them, and with them what is let out, however long the lines are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import apsw
import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.flow_limit import Limit
from holdfast.model.operations import Release
from holdfast.model.task import NewTask
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import lease, limits, lines, submission
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.limit_keys import Keys
from holdfast.store.sqlite.migration import migrate
from holdfast.store.sqlite.rows import moment
from holdfast.store.sqlite.sql import QUERIES
from holdfast.store.sqlite.write_transaction import WriteTransaction
from holdfast.testing.contract._support import acquired_by, running_task, submit_one
from holdfast.testing.contract.limit_lines import ways_back
from tests.store.limit_counters import check_counters

NOW = 10**15
LONG = 5_000
TENANTS = 300


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    made = connect(":memory:", durable=False)
    migrate(made, ":memory:")
    made.execute("BEGIN")
    tx = transaction(made)
    lease.register(tx, NewWorker(id="worker"))
    limits.set_limit(tx, Limit(name="tenant", concurrency=2, each=True))
    limits.set_limit(tx, Limit(name="openai", concurrency=3))
    yield made
    check_counters(made)
    made.close()


def transaction(connection: apsw.Connection) -> WriteTransaction:
    return WriteTransaction(connection, now=NOW, boot=0, boot_id="boot")


def submit(connection: apsw.Connection, first: int, count: int, *keys: str, in_line: bool = False) -> None:
    """Submit tasks; with ``in_line`` into the line of their key, as if it had no room for them then."""
    tasks = [NewTask(id=f"t{n:06}", name="job", limits=keys) for n in range(first, first + count)]
    submission.submit_all(transaction(connection), tasks)
    if in_line:
        connection.executemany("UPDATE tasks SET held = 2 WHERE id = ?", [(task.id,) for task in tasks])


def claim(connection: apsw.Connection, number: int, limit: int = 10) -> list[str]:
    asked = Claim(worker_id="worker", number=number, limit=limit, names=("job",))
    return [claimed.task.id for claimed in lease.claim_within(transaction(connection), asked)]


def let_out(connection: apsw.Connection) -> list[str]:
    tx = transaction(connection)
    return sorted(lines.let_out(tx, Keys(tx)))


@contextmanager
def instructions(connection: apsw.Connection) -> Iterator[Callable[[], int]]:
    """Count the instructions of SQLite's machine."""
    ticks = 0

    def tick() -> bool:
        nonlocal ticks
        ticks += 1
        return False

    connection.set_progress_handler(tick, 10)
    try:
        yield lambda: ticks * 10
    finally:
        connection.set_progress_handler(None)


def test_a_full_key_with_a_long_line_costs_a_claim_nothing(connection: apsw.Connection) -> None:
    """Nor does the end of one of its tasks cost more than what it lets out."""
    submit(connection, 0, LONG, "tenant:full")
    submit(connection, LONG, 100)
    assert claim(connection, 1, limit=2) == ["t000000", "t000001"]
    claim(connection, 2, limit=1)
    with instructions(connection) as count:
        assert claim(connection, 3) == [f"t{LONG + n:06}" for n in range(1, 11)]
        without = count()
    connection.execute("UPDATE tasks SET owner = NULL, state = 'completed', finished_at = 1 WHERE id = 't000001'")
    with instructions(connection) as count:
        assert claim(connection, 4) == ["t000002", *(f"t{LONG + n:06}" for n in range(11, 20))]
        assert count() < without + 10_000
    assert without < 30_000


async def test_what_is_not_at_work_is_in_no_index_that_a_claim_reads() -> None:
    """Until it is let out: new, brought back in any way, leased by its id and given back."""
    async with MemoryStore(clock=(clock := ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))) as store:
        reader = store._backend.reader
        assert reader is not None
        where = "FROM tasks WHERE id = ?"
        await store.set_limit(Limit(name="openai", concurrency=100))
        for name, bring_back in ways_back(store, clock).items():
            attempt = await running_task(store, name, f"worker of {name}", limits=["openai"], parent_id="parent")
            assert reader.connection.execute(f"SELECT held {where}", (name,)).get == 0
            await bring_back(attempt)
            assert reader.connection.execute(f"SELECT held, waits_for {where}", (name,)).get == (2, "openai"), name
        await submit_one(store, "new", limits=["openai"])
        attempt = await acquired_by(store, "new", "parent's worker")
        assert reader.connection.execute(f"SELECT held {where}", ("new",)).get == 0
        await attempt.apply(Release())
        assert reader.connection.execute(f"SELECT held {where}", ("new",)).get == 2
        check_counters(reader.connection)


def test_a_look_at_many_keys_is_bounded(connection: apsw.Connection) -> None:
    """The next claims do the rest; each of them finds what the ones before have let out."""
    for tenant in range(TENANTS):
        submit(connection, tenant * 3, 3, f"tenant:{tenant:03}", in_line=True)
    with instructions(connection) as count:
        assert len(claim(connection, 1)) == 10
        assert count() < 500_000
    assert connection.execute("SELECT count(*) FROM tasks WHERE held = 0 AND owner IS NULL").get < 2 * lines.MOST_KEYS
    claimed = {task_id for number in range(2, 100) for task_id in claim(connection, number)}
    assert len(claimed) == 2 * TENANTS - 10


def test_a_look_at_tasks_that_wait_for_another_key_is_bounded(connection: apsw.Connection) -> None:
    """They go over into the line of that key, so many at once. Then the first one behind them is let out."""
    submit(connection, LONG, 3, "openai")
    assert len(claim(connection, 1)) == 3
    submit(connection, 0, LONG, "openai", "tenant:a")
    limits.set_limit(transaction(connection), Limit(name="tenant", concurrency=2, each=True))
    connection.execute("UPDATE tasks SET waits_for = 'tenant:a' WHERE waits_for = 'openai'")
    assert let_out(connection) == []
    submit(connection, 2 * LONG, 1, "tenant:a")
    looks: list[list[str]] = []
    while not looks or not looks[-1]:
        with instructions(connection) as count:
            looks.append(claim(connection, 2 + len(looks)))
            assert count() < 1_500_000
    assert looks[-1] == [f"t{2 * LONG:06}"]
    assert len(looks) >= LONG // lines.MOST_TASKS - 1
    assert connection.execute("SELECT count(*) FROM tasks WHERE waits_for = 'openai' AND held = 2").get == LONG


def test_a_task_enters_no_line_while_its_key_has_room(connection: apsw.Connection) -> None:
    """Few of them; none where others stand in the line, or once the key is full or closed."""

    def claimable() -> int:
        return int(connection.execute("SELECT count(*) FROM tasks WHERE held = 0 AND owner IS NULL").get)

    submit(connection, 0, 2, "tenant:a")
    submit(connection, 2, lines.MOST_EAGER, "tenant:a")
    assert claimable() == lines.MOST_EAGER
    submit(connection, 100, 1, "tenant:b", in_line=True)
    submit(connection, 101, 1, "tenant:b")
    submit(connection, 102, 1, "tenant:c", "openai")
    limits.close_limit(transaction(connection), ["tenant:c"], moment(NOW + 1))
    submit(connection, 103, 1, "tenant:c")
    assert claimable() == lines.MOST_EAGER
    assert claim(connection, 1, limit=lines.MOST_EAGER) == ["t000000", "t000001", "t000100", "t000101"]
    submit(connection, 200, 1, "tenant:a")
    assert claimable() == 0


def test_no_more_is_let_out_than_there_is_room_for(connection: apsw.Connection) -> None:
    """What was let out before is counted; what is late is passed over, for no claim gets it."""
    for first, (n, expected) in enumerate(((1, 1), (3, 1), (1, 0))):
        submit(connection, 10 * first, n, "tenant:a", in_line=True)
        assert len(let_out(connection)) == expected
    late = NewTask(id="t", name="job", limits=("openai",), deadline=moment(NOW - 1), priority=9)
    submission.submit_all(transaction(connection), [late])
    connection.execute("UPDATE tasks SET held = 2 WHERE id = 't'")
    submit(connection, 100, 5, "openai", in_line=True)
    assert let_out(connection) == ["t000100", "t000101", "t000102"]


def test_many_candidates_of_a_full_key_are_held_again(connection: apsw.Connection) -> None:
    """A claim that meets them goes on to what is behind them."""
    submit(connection, 0, 500, "openai")
    submit(connection, 500, 20)
    connection.execute("UPDATE tasks SET held = 0 WHERE limits IS NOT NULL")
    assert claim(connection, 1, limit=10) == ["t000000", "t000001", "t000002", *(f"t{500 + n:06}" for n in range(7))]
    assert connection.execute("SELECT count(*) FROM tasks WHERE held = 2").get == 497


def test_a_limit_without_numbers_lets_out_any_number(connection: apsw.Connection) -> None:
    """So many at once, and the rest as they are claimed."""
    limits.set_limit(transaction(connection), Limit(name="openai"))
    submit(connection, 0, LONG, "openai")
    assert [len(claim(connection, number, limit=900)) for number in range(1, 8)] == [900] * 5 + [500, 0]


PLANS = {
    "keys_to_look_at": (2, ["SEARCH limit_keys USING COVERING INDEX limit_keys_to_look_at (look_at>? AND look_at<?)"]),
    "has_line": (1, ["SEARCH tasks USING COVERING INDEX tasks_in_line (waits_for=? AND held=?)"]),
    "first_in_line": (
        6,
        ["SEARCH tasks USING INDEX tasks_in_line (waits_for=? AND held=? AND queue=? AND name=? AND ready=?)"],
    ),
    "candidates": (
        6,
        ["SEARCH tasks USING COVERING INDEX tasks_in_line (waits_for=? AND held=? AND queue=? AND name=? AND ready=?)"],
    ),
    "permits_before": (3, ["SEARCH p USING INDEX permits_in_line (key=? AND place<?)"]),
    "delete_uses_over": (2, ["SEARCH limit_uses USING PRIMARY KEY (key=? AND until<?)"]),
    "lines_of_the_future": (1, ["SEARCH k USING COVERING INDEX limit_keys_to_look_at (look_at>?)"]),
    "key_states": (2, ["SEARCH k USING PRIMARY KEY (key=?)", "SEARCH l USING PRIMARY KEY (name=?)"]),
    "next_place": (0, ["SEARCH permits USING COVERING INDEX permits_by_place"]),
}


def test_lines_are_read_by_index(connection: apsw.Connection) -> None:
    for query, (count, expected) in PLANS.items():
        values: tuple[Any, ...] = (None,) * count
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[query]}", values)]
        for line in expected:
            assert any(found.startswith(line) for found in plan), (query, plan)
        assert not [
            found for found in plan if "TEMP B-TREE" in found or re.match(r"SCAN (tasks|permits|k|u)\b", found)
        ], plan


def test_the_lines_of_a_key_are_read_one_row_each(connection: apsw.Connection) -> None:
    submit(connection, 0, LONG, "openai")
    with instructions(connection) as count:
        assert list(connection.execute(QUERIES["lines_of_key"], ("openai",))) == [("default", "job", 1)]
        assert count() < 1_000
    let_out(connection)
