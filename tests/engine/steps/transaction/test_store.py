"""transact, on every store that has it: a user's SQL and a Commit are written together, or neither."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import (
    DeadlineExceeded,
    HoldfastError,
    InvalidValue,
    NewTask,
    StateStore,
    StoreClosed,
    StoreError,
    TaskState,
    make_store,
)
from holdfast.model.commit import Commit, Expect, Refusal
from holdfast.model.operations import Emit, Move, ReopenChild, SubmitChild
from holdfast.model.queries import TaskFilter
from holdfast.store.transaction import StoreTransaction, Work
from tests.engine.steps.transaction.support import LONG, Bookings, ask, book_with, claim, commit, keys_of, seats, step
from tests.engine.support import until


async def test_both_are_written_together(store: StateStore, bookings: Bookings) -> None:
    claimed = await claim(store)
    value, verdict = await book_with(store, bookings, "1A", commit(claimed, 1, step("book")))
    assert (value, verdict.applied, verdict.duplicate, verdict.sequence) == ("1A", True, False, 1)
    assert await seats(store) == ["1A"]
    assert await keys_of(store) == ["book"]


async def test_a_commit_can_carry_anything(store: StateStore, bookings: Bookings) -> None:
    claimed = await claim(store)
    child = SubmitChild(NewTask(id="child", name="job", queue="later"))
    end = Move(to=TaskState.COMPLETED, reason="done", result=1)
    async with store.listen() as listener:
        await listener.wait(0.1)
        _, verdict = await book_with(
            store, bookings, "1A", commit(claimed, 1, step(), child, Emit(channel="news", payload=1), end)
        )
        assert [made.task_id for made in verdict.children] == ["child"]
        topics: set[str] = set()
        async with asyncio.timeout(LONG):
            while not topics >= {"task:a", "queue:later", "channel:news"}:
                topics |= await listener.wait()
    assert (await store.get("a")).state is TaskState.COMPLETED  # type: ignore[union-attr]
    assert await store.get("child") is not None


async def test_a_child_is_begun_again_with_the_users_row_or_not_at_all(store: StateStore, bookings: Bookings) -> None:
    claimed = await claim(store)
    await store.submit([NewTask(id="child", name="job", parent_id="a", state=TaskState.COMPLETED, queue="later")])
    again = ReopenChild(child_id="child", revision=1, reason="again", new_round=True, user_input="Other Words")
    _, verdict = await book_with(store, bookings, "1A", commit(claimed, 1, again))
    assert verdict.applied
    child = await store.get("child")
    assert child is not None
    assert (child.state, child.round, child.user_input) == (TaskState.PENDING, 2, "Other Words")
    assert [task.id for task in (await store.find(TaskFilter(text="job default  other words"))).items] == ["child"]
    _, verdict = await book_with(store, bookings, "2B", commit(claimed, 2, again))
    assert verdict.refusal is Refusal.CONFLICT
    assert await seats(store) == ["1A"]
    assert await store.get("child") == child


async def test_a_stale_fence_writes_nothing_not_even_the_users_row(store: StateStore, bookings: Bookings) -> None:
    zombie = await claim(store)
    await store.retire("worker")
    _, verdict = await book_with(store, bookings, "1A", commit(zombie, 1))
    assert verdict.refusal is Refusal.SUPERSEDED
    assert await seats(store) == []
    assert await keys_of(store) == []


async def test_a_refused_operation_undoes_the_users_row_too(store: StateStore, bookings: Bookings) -> None:
    claimed = await claim(store)
    illegal = Move(to=TaskState.PENDING, reason="back", new_round=True)
    await store.submit([NewTask(id="other", name="job", key="taken")])
    taken = SubmitChild(NewTask(name="job", key="taken", user_input="other"))
    _, verdict = await book_with(store, bookings, "1A", commit(claimed, 1, step(), taken, illegal))
    assert verdict.refusal is Refusal.KEY
    assert (await seats(store), await keys_of(store)) == ([], [])
    _, verdict = await book_with(store, bookings, "2B", commit(claimed, 1))  # the number is still free
    assert verdict.applied
    assert await seats(store) == ["2B"]


async def test_a_number_that_was_used_writes_nothing(store: StateStore, bookings: Bookings) -> None:
    """A Commit that is sent again is answered as applied; a transaction is other SQL each time."""
    claimed = await claim(store)
    [first] = await store.commit([commit(claimed, 1, step("first"))])
    assert first.applied
    _, verdict = await book_with(store, bookings, "1A", commit(claimed, 1, step("second")))
    assert (verdict.refusal, verdict.sequence) == (Refusal.OUT_OF_ORDER, 1)
    assert (await seats(store), await keys_of(store)) == ([], ["first"])
    _, verdict = await book_with(store, bookings, "1A", commit(claimed, 3))  # and one too high
    assert verdict.refusal is Refusal.OUT_OF_ORDER
    assert await seats(store) == []


async def test_an_unknown_task(store: StateStore, bookings: Bookings) -> None:
    claimed = await claim(store)
    lost = commit(claimed, 1)
    lost = Commit(task_id="unknown", guard=lost.guard, operations=lost.operations)
    _, verdict = await book_with(store, bookings, "1A", lost)
    assert verdict.refusal is Refusal.NOT_FOUND
    assert await seats(store) == []


async def test_only_a_worker_can_share_a_transaction(store: StateStore, bookings: Bookings) -> None:
    await claim(store)
    with pytest.raises(InvalidValue, match="Held"):
        await book_with(store, bookings, "1A", Commit(task_id="a", guard=Expect(), operations=()))
    assert await seats(store) == []


async def test_what_the_work_raises_undoes_it(store: StateStore, bookings: Bookings) -> None:
    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        raise LookupError("no such passenger")

    with pytest.raises(LookupError, match="passenger"):
        await store.transact(work, timeout=LONG)
    assert await seats(store) == []
    await store.submit([NewTask(name="job")])  # and the store goes on


async def test_errors_of_the_work_stay_what_they_are(store: StateStore) -> None:
    """Also those that would mean something else in a Commit of the store's own."""
    for error in (OverflowError("mine"), UnicodeEncodeError("utf-8", "x", 0, 1, "mine"), TimeoutError("mine")):

        async def work(tx: StoreTransaction, error: Exception = error) -> tuple[None, None]:
            del tx
            raise error

        with pytest.raises(type(error)) as caught:
            await store.transact(work, timeout=LONG)
        assert caught.value is error


async def test_a_statement_that_fails_spoils_the_whole_transaction(store: StateStore, bookings: Bookings) -> None:
    """In every database, and whether or not the function catches it: PostgreSQL could not go on."""

    async def go_on(tx: StoreTransaction) -> tuple[str, None]:
        await bookings.book(tx, "1A")
        with pytest.raises(StoreError, match=r"refused 'INSERT INTO nowhere.*nowhere"):
            await tx.execute("INSERT INTO nowhere VALUES (1)")
        with pytest.raises(InvalidValue, match="a statement before it failed"):
            await bookings.book(tx, "2B")
        return "fine", None

    with pytest.raises(InvalidValue, match="went on; nothing was written"):
        await store.transact(go_on, timeout=LONG)
    assert await seats(store) == []


async def test_a_broken_rule_is_an_error_that_names_the_statement(store: StateStore, bookings: Bookings) -> None:
    await ask(store, "CREATE UNIQUE INDEX one_each ON bookings (seat)")
    await ask(store, bookings.insert, "1A")
    with pytest.raises(StoreError, match=r"refused 'INSERT INTO bookings.*(?i:unique)") as caught:
        await ask(store, bookings.insert, "1A")
    assert type(caught.value) is StoreError
    assert caught.value.__cause__ is not None
    assert await seats(store) == ["1A"]


async def test_a_rule_that_is_checked_at_the_end(store: StateStore, bookings: Bookings) -> None:
    await ask(store, "CREATE TABLE planes (name TEXT PRIMARY KEY)")
    await ask(store, "CREATE TABLE gates (plane TEXT REFERENCES planes (name) DEFERRABLE INITIALLY DEFERRED)")
    claimed = await claim(store)

    async def work(tx: StoreTransaction) -> tuple[None, Commit]:
        await bookings.book(tx, "1A")
        await tx.execute("INSERT INTO gates VALUES ('none')")
        return None, commit(claimed, 1)

    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        await store.transact(work, timeout=LONG)
    assert (await seats(store), await keys_of(store)) == ([], [])


CONTROL = [
    *("BEGIN", "COMMIT", "commit;", "END", "ROLLBACK", "SAVEPOINT here", "RELEASE here", " -- now\n COMMIT"),
    *("/* a /* nested */ one */ COMMIT", ";COMMIT"),
]


@pytest.mark.parametrize("statement", CONTROL)
async def test_the_transaction_cannot_be_ended_from_inside(
    store: StateStore, bookings: Bookings, statement: str
) -> None:
    if "nested" in statement and not bookings.is_postgres:
        statement = "/* one */ COMMIT"

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        await tx.execute(statement)
        return None, None

    with pytest.raises(InvalidValue, match="begun and ended around the function"):
        await store.transact(work, timeout=LONG)
    assert await seats(store) == []


@pytest.mark.usefixtures("bookings")
@pytest.mark.parametrize("second", ["COMMIT", "INSERT INTO bookings VALUES ('2B')", "SELECT 1"])
async def test_one_statement_a_call(store: StateStore, second: str) -> None:
    with pytest.raises(HoldfastError, match=r"(?i)one by one|multiple commands|begun and ended"):
        await ask(store, f"INSERT INTO bookings VALUES ('1A'); {second}")
    assert await seats(store) == []


async def test_a_semicolon_or_a_comment_at_the_end_is_not_a_second_statement(
    store: StateStore,
) -> None:
    assert await ask(store, "SELECT 1;") == [(1,)]
    assert await ask(store, "SELECT 1; -- and that is all") == [(1,)]
    assert await ask(store, "SELECT 1 /* and that is all */ ;") == [(1,)]


async def test_a_transaction_sees_itself_and_no_other_does(store: StateStore, bookings: Bookings) -> None:
    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        assert await tx.execute("SELECT seat FROM bookings") == [("1A",)]
        assert await store.get("unknown") is None  # others go on reading meanwhile
        assert await store.count() == {}
        return None, None

    await store.transact(work, timeout=LONG)


async def test_it_ends_at_its_timeout(store: StateStore, bookings: Bookings) -> None:
    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(DeadlineExceeded, match=r"timeout of 0\.05 s.*rolled back.*slow before it"):
        await store.transact(work, timeout=0.05)
    assert await seats(store) == []
    await store.submit([NewTask(name="job")])


async def test_it_ends_at_its_timeout_though_the_work_does_not_mind(store: StateStore, bookings: Bookings) -> None:
    async def work(tx: StoreTransaction) -> tuple[str, None]:
        await bookings.book(tx, "1A")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done", None
        raise AssertionError

    with pytest.raises(DeadlineExceeded):
        await store.transact(work, timeout=0.05)
    assert await seats(store) == []


async def test_a_statement_that_takes_too_long_is_stopped(store: StateStore, bookings: Bookings) -> None:
    slow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0"

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        await tx.execute(slow)
        return None, None

    async with asyncio.timeout(LONG):
        with pytest.raises(DeadlineExceeded):
            await store.transact(work, timeout=0.1)
        assert await seats(store) == []


async def test_a_cancelled_caller_leaves_nothing_open(store: StateStore, bookings: Bookings) -> None:
    claimed = await claim(store)
    inside = asyncio.Event()

    async def work(tx: StoreTransaction) -> tuple[None, Commit]:
        await bookings.book(tx, "1A")
        inside.set()
        await asyncio.Event().wait()
        return None, commit(claimed, 1)

    caller = asyncio.create_task(store.transact(work, timeout=LONG))
    await inside.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    async with asyncio.timeout(LONG):
        assert await seats(store) == []
        _, verdict = await book_with(store, bookings, "2B", commit(claimed, 1))
    assert verdict.applied
    assert await seats(store) == ["2B"]


async def test_a_caller_cancelled_in_a_statement_leaves_nothing_open(store: StateStore, bookings: Bookings) -> None:
    slow = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0"
    inside = asyncio.Event()

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        inside.set()
        await tx.execute(slow)
        return None, None

    caller = asyncio.create_task(store.transact(work, timeout=1.0 if "Memory" in type(store).__name__ else LONG))
    await inside.wait()
    await asyncio.sleep(0.05)
    caller.cancel()
    with pytest.raises((asyncio.CancelledError, DeadlineExceeded)):  # in memory the loop itself is busy with it
        await caller
    async with asyncio.timeout(LONG):
        assert await seats(store) == []


async def test_a_caller_cancelled_while_waiting_for_its_turn(store: StateStore, bookings: Bookings) -> None:
    go_on = asyncio.Event()

    async def hold_open(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        await go_on.wait()
        return None, None

    first = asyncio.create_task(store.transact(hold_open, timeout=LONG))
    others = [asyncio.create_task(ask(store, bookings.insert, f"{number}C")) for number in range(6)]
    await asyncio.sleep(0.05)
    for other in others[1::2]:
        other.cancel()
    await asyncio.sleep(0.05)
    go_on.set()
    await first
    await asyncio.gather(*others, return_exceptions=True)
    booked = {"1A"} | {f"{number}C" for number, other in enumerate(others) if not other.cancelled()}
    found = set(await seats(store))
    assert found >= booked
    # On PostgreSQL they went on beside it, and one may have been cancelled in the middle of its COMMIT.
    assert found == booked or bookings.is_postgres


async def test_statements_of_one_transaction_take_turns(store: StateStore, bookings: Bookings) -> None:
    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await asyncio.gather(*(bookings.book(tx, f"{number}A") for number in range(5)))
        return None, None

    await store.transact(work, timeout=LONG)
    assert len(await seats(store)) == 5


async def test_transactions_side_by_side(store: StateStore, bookings: Bookings) -> None:
    def working(number: int) -> Work[None]:
        async def work(tx: StoreTransaction) -> tuple[None, None]:
            await bookings.book(tx, f"{number}A")
            await asyncio.sleep(0.001)
            await bookings.book(tx, f"{number}B")
            if number % 3 == 0:
                raise LookupError
            return None, None

        return work

    outcomes = await asyncio.gather(
        *(store.transact(working(n), timeout=LONG) for n in range(12)), return_exceptions=True
    )
    assert sum(isinstance(outcome, LookupError) for outcome in outcomes) == 4
    assert await seats(store) == sorted(f"{n}{letter}" for n in range(12) if n % 3 for letter in "AB")


async def test_nothing_is_run_once_it_is_over(store: StateStore, bookings: Bookings) -> None:
    kept: list[StoreTransaction] = []

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        kept.append(tx)
        return None, None

    await store.transact(work, timeout=LONG)
    with pytest.raises(HoldfastError, match="the transaction is over"):
        await bookings.book(kept[0], "1A")
    assert await seats(store) == []


async def test_a_transaction_inside_a_transaction_is_refused(store: StateStore, bookings: Bookings) -> None:
    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        with pytest.raises(InvalidValue, match="not part of the transaction that is open here"):
            await ask(store, bookings.insert, "2B")
        return None, None

    async with asyncio.timeout(LONG):
        await store.transact(work, timeout=LONG)
        assert await seats(store) == ["1A"]


async def test_a_task_begun_inside_may_outlive_it(store: StateStore, bookings: Bookings) -> None:
    left: list[asyncio.Task[list[tuple[object, ...]]]] = []
    over = asyncio.Event()

    async def later() -> list[tuple[object, ...]]:
        await over.wait()
        return await ask(store, bookings.insert_returning, "2B")

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        del tx
        left.append(asyncio.create_task(later()))
        return None, None

    await store.transact(work, timeout=LONG)
    over.set()
    assert await left[0] == [("2B",)]


async def test_values_it_cannot_hold(store: StateStore, bookings: Bookings) -> None:
    for value in (object(), "\ud800"):
        with pytest.raises(InvalidValue):
            await ask(store, bookings.insert, value)
    with pytest.raises(HoldfastError):
        await ask(store, bookings.insert)  # a placeholder without a value
    assert await seats(store) == []


async def test_what_the_store_says_at_the_door(store: StateStore, bookings: Bookings) -> None:
    claimed = await claim(store)
    twice = (Move(to=TaskState.COMPLETED, reason="a"), Move(to=TaskState.COMPLETED, reason="b"))
    with pytest.raises(InvalidValue, match="moves it twice"):
        await book_with(store, bookings, "1A", commit(claimed, 1, *twice))
    assert await seats(store) == []


async def test_a_store_that_is_closed(store: StateStore, bookings: Bookings) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        inside.set()
        await go_on.wait()
        await bookings.book(tx, "2B")
        return None, None

    caller = asyncio.create_task(store.transact(work, timeout=LONG))
    await inside.wait()
    await store.close()
    go_on.set()
    if not bookings.is_postgres:  # there, a function that has a connection finishes with it
        with pytest.raises(StoreClosed):
            await caller
    else:
        await caller
    with pytest.raises(StoreClosed):
        await store.transact(work, timeout=LONG)


async def test_who_waits_behind_a_transaction_hears_that_the_store_was_closed(
    store: StateStore, bookings: Bookings
) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        inside.set()
        await go_on.wait()
        raise LookupError("mine")

    caller = asyncio.create_task(store.transact(work, timeout=LONG))
    await inside.wait()
    behind = asyncio.create_task(store.submit([NewTask(name="job")]))
    await asyncio.sleep(0.05)
    await store.close()
    go_on.set()
    with pytest.raises(LookupError, match="mine"):
        await caller
    async with asyncio.timeout(LONG):
        await asyncio.wait([behind])
    assert bookings.is_postgres or isinstance(behind.exception(), StoreClosed)


async def test_ones_own_tables_survive_like_the_tasks(tmp_path: Path, postgres_url: str) -> None:
    for url in (f"sqlite:///{tmp_path}/hold.db", postgres_url):
        bookings = Bookings(url)
        async with make_store(url) as store:
            await bookings.create(store)
            await ask(store, bookings.insert, "1A")
        async with make_store(url) as store:
            assert await seats(store) == ["1A"]
            await store.submit([NewTask(name="job")])


async def test_a_store_of_files_refuses(tmp_path: Path) -> None:
    async def work(tx: StoreTransaction) -> tuple[None, None]:
        raise AssertionError(tx)

    async with make_store(f"json:///{tmp_path}/hold") as store:
        assert not store.capabilities.transactions
        with pytest.raises(InvalidValue, match=r"no tables but Holdfast's own.*sqlite:///"):
            await store.transact(work, timeout=LONG)


async def test_other_verbs_wait_for_it_or_go_on_beside_it(store: StateStore, bookings: Bookings) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def work(tx: StoreTransaction) -> tuple[None, None]:
        await bookings.book(tx, "1A")
        inside.set()
        await go_on.wait()
        await bookings.book(tx, "2B")
        return None, None

    caller = asyncio.create_task(store.transact(work, timeout=LONG))
    await inside.wait()
    writes = [asyncio.create_task(store.submit([NewTask(id=f"t{n}", name="job")])) for n in range(3)]
    assert await store.get("unknown") is None
    if bookings.is_postgres:
        async with asyncio.timeout(LONG):
            await asyncio.gather(*writes)
    else:
        await asyncio.sleep(0.05)
        assert not any(write.done() for write in writes)
    go_on.set()
    await asyncio.gather(caller, *writes)
    assert await seats(store) == ["1A", "2B"]

    async def all_there() -> bool:
        return (await store.count()).get(TaskState.PENDING) == 3

    await until(all_there)


async def test_numbered_placeholders_mean_the_same_in_every_database(store: StateStore, bookings: Bookings) -> None:
    texts = ("a", "it's $1", "100 %s ?")
    assert await ask(store, "SELECT CAST($2 AS TEXT), CAST($1 AS TEXT), CAST($2 AS TEXT)", *texts[:2]) == [
        (texts[1], texts[0], texts[1])
    ]
    for text in texts:
        await ask(store, "INSERT INTO bookings (seat) VALUES ($1) -- $2", text)
    assert await ask(store, "SELECT seat FROM bookings WHERE seat = $1 AND 7 % 4 = $2", texts[2], 3) == [(texts[2],)]
    assert await ask(store, "SELECT '$1' FROM bookings WHERE seat LIKE '%s ?' AND seat <> $1", "x") == [("$1",)]
    await ask(store, bookings.insert, "own style")  # as before
    assert await seats(store) == sorted((*texts, "own style"))
    for sql, parameters in (("SELECT $2", ("a",)), ("SELECT $1", ("a", "b"))):
        with pytest.raises(InvalidValue, match="it has to name"):
            await ask(store, sql, *parameters)
    mixed = bookings.insert.replace("VALUES (", "VALUES ($1 || ")
    with pytest.raises((InvalidValue, StoreError)):
        await ask(store, mixed, "a")
