"""The event loop gets its turn: what is long is divided, and counted here by the work between two turns of the loop."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Context, EffectClass, Holdfast, Step, StepState, TaskState
from holdfast.engine.attempt.scope import Digests
from holdfast.engine.runtime import loop_turns
from holdfast.engine.steps import call, one_try
from holdfast.model import canonical, codec, large_values
from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Emit, Move, UntilEvent, WriteStep
from holdfast.model.task import NewTask
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.base import StateStore
from holdfast.store.sqlite import lifecycle, submission
from holdfast.store.sqlite.records import RECORDS
from tests.engine.support import PATIENCE, reaches


class Turns:
    """Counts calls on the event loop's thread, and remembers the most of them between two of its turns."""

    def __init__(self) -> None:
        self.most = self.total = self._now = 0
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def counting(self, function: Callable[..., Any], size: Callable[[Any], int] = lambda _: 1) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            count = size(args[0])
            self.total += count
            if threading.get_ident() == self._thread:
                if self._now == 0:
                    self._loop.call_soon(self._start_over)
                self._now += count
                self.most = max(self.most, self._now)
            return function(*args, **options)

        return counted

    def _start_over(self) -> None:
        self._now = 0


async def test_a_replay_gives_way_now_and_then(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where several long journals are replayed at the same time: they share a turn."""
    steps, tasks = 3 * loop_turns.READ_IN_A_TURN, 2

    @hold.task
    async def long(ctx: Context) -> int:
        return sum([await ctx.step("n", int, n, returns=int) for n in range(steps)])

    handles = [await hold.submit(long) for _ in range(tasks)]
    worker = NewWorker(lease=3600)
    await hold.store.register(worker)
    claimed = await hold.store.claim(Claim(worker_id=worker.id, number=1, limit=tasks, names=["long"]))
    for one in claimed:
        lines = [
            Step(
                key="n" if n == 0 else f"n#{n + 1}",
                kind="step",
                position=n + 1,
                state=StepState.COMPLETED,
                output=b'{"v":1,"value":1}',
            )
            for n in range(steps)
        ]
        guard = Held(worker.id, one.task.fence, 1)
        await hold.store.commit([Commit(task_id=one.task.id, guard=guard, operations=tuple(map(WriteStep, lines)))])
    await hold.store.retire(worker.id)
    replayed, noted, read = Turns(), Turns(), Turns()
    monkeypatch.setattr(one_try, "decode", replayed.counting(lambda *_, **__: 1))
    monkeypatch.setattr(Digests, "note", noted.counting(Digests.note))
    monkeypatch.setattr(RECORDS, "step", read.counting(RECORDS.step))
    async with hold.worker():
        assert [await handle.result(timeout=PATIENCE) for handle in handles] == [steps] * tasks
    assert replayed.total == steps * tasks
    assert replayed.most <= loop_turns.REPLAYED_IN_A_TURN
    assert noted.total == steps * tasks
    assert noted.most <= loop_turns.READ_IN_A_TURN * tasks
    assert read.most <= loop_turns.READ_IN_A_TURN


async def test_very_many_branches_wait_for_their_turn_without_asking_for_it() -> None:
    """Each is woken once or twice. If each asked in every turn, their number would count twice."""
    branches, turns = 5_000, loop_turns.Turns()
    taken = Turns()
    take = taken.counting(lambda _: None)
    woken = 0

    async def branch(number: int) -> None:
        nonlocal woken
        waiting = turns.take()
        try:
            while True:  # as the loop drives a coroutine
                future = waiting.send(None)
                woken += 1
                if future is None:
                    await asyncio.sleep(0)
                else:
                    future._asyncio_future_blocking = False
                    await future
        except StopIteration:
            take(number)

    await asyncio.gather(*map(branch, range(branches)))
    assert taken.total == branches
    assert taken.most <= loop_turns.REPLAYED_IN_A_TURN
    assert woken <= 2 * branches


async def test_a_cancelled_branch_takes_no_turn_from_the_others() -> None:
    count = 3 * loop_turns.REPLAYED_IN_A_TURN
    turns = loop_turns.Turns()
    branches = [asyncio.create_task(turns.take()) for _ in range(count)]
    await asyncio.sleep(0)
    waiting = [branch for branch in branches if not branch.done()]
    for branch in waiting[:-1]:
        branch.cancel()
    async with asyncio.timeout(PATIENCE):
        await waiting[-1]


async def test_large_results_have_turns_of_their_own(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many steps may get their answers in one turn, and a task whose branches have large results replays them all."""
    count, asked, answer = 5, 0, asyncio.Event()

    async def fetch() -> str:
        nonlocal asked
        asked += 1
        if asked == count:
            answer.set()
        await answer.wait()
        return "x" * loop_turns.REPLAYED_IN_A_TURN * loop_turns.BYTES_LIKE_A_LINE

    @hold.task
    async def large(ctx: Context) -> int:
        got = await asyncio.gather(*(ctx.step("fetch", fetch, key=f"fetch {n}") for n in range(count)))
        await ctx.wait_event("go on")
        return len(got)

    recorded, replayed = Turns(), Turns()
    monkeypatch.setattr(one_try, "round_trip", recorded.counting(codec.round_trip))
    monkeypatch.setattr(one_try, "decode", replayed.counting(codec.decode))
    handle = await hold.submit(large)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        await hold.emit("go on", None)
        assert await handle.result(timeout=PATIENCE) == count
    assert (recorded.total, recorded.most) == (count, 1)
    assert (replayed.total, replayed.most) == (count, 1)


async def test_one_result_with_very_many_items_is_divided(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is recorded, when it is replayed, and when it is the argument of another step."""
    count = 20_000

    async def fetch() -> list[dict[str, object]]:
        return [{"id": number, "name": f"row {number}"} for number in range(count)]

    async def measure(rows: list[dict[str, object]]) -> int:
        return len(rows)

    @hold.task
    async def large(ctx: Context) -> int:
        rows = await ctx.step("fetch", fetch)
        await ctx.wait_event("go on")
        return await ctx.step("measure", measure, rows)

    at_once, turns = Turns(), Turns()
    for module, name in ((one_try, "round_trip"), (one_try, "decode"), (call, "write_plain")):
        monkeypatch.setattr(module, name, at_once.counting(getattr(module, name), items_in))
    monkeypatch.setattr(large_values, "write_plain", turns.counting(canonical.write_plain, items_in))
    monkeypatch.setattr(large_values, "parse", turns.counting(canonical.parse, items_in))
    handle = await hold.submit(large)
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        await hold.emit("go on", None)
        assert await handle.result(timeout=PATIENCE) == count
    assert at_once.total < 1000
    assert turns.total > 5 * count  # written and read again; read, and written as arguments
    assert turns.most <= loop_turns.REPLAYED_IN_A_TURN * loop_turns.ITEMS_LIKE_A_LINE + 2 * large_values.PIECE


def items_in(value: Any) -> int:  # noqa: ANN401
    if isinstance(value, bytes):
        return value.count(b",")
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return sum(1 + items_in(member) for member in members)


@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_a_cancel_while_a_result_is_encoded_does_not_lose_it(
    hold: Holdfast, effect: EffectClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch is cancelled, as if the cancel had come while the Commit was sent: the result is recorded."""
    count, calls, pieces = 20_000, 0, 0
    branch: asyncio.Task[Any] | None = None

    async def fetch() -> list[list[int]]:
        nonlocal calls
        calls += 1
        return [[number] for number in range(count)]

    def cancelling(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        nonlocal pieces
        work = large_values.round_trip(*args, **options)
        while True:
            try:
                items = next(work)
            except StopIteration as end:
                return end.value
            pieces += 1
            if pieces == 2:
                assert branch is not None
                branch.cancel()
            yield items

    @hold.task
    async def large(ctx: Context) -> str:
        nonlocal branch
        branch = asyncio.create_task(ctx.step("fetch", fetch, effect=effect))
        try:
            await branch
        except asyncio.CancelledError:
            return "cancelled"
        return "not cancelled"

    monkeypatch.setattr(one_try, "large_values", SimpleNamespace(round_trip=cancelling, decode=large_values.decode))
    handle = await hold.submit(large)
    async with hold.worker():
        assert await handle.result(timeout=PATIENCE) == "cancelled"
    assert pieces > 2
    assert calls == 1
    [recorded] = await hold.store.steps(handle.id)
    assert recorded.state is StepState.COMPLETED
    assert codec.decode(recorded.output or b"") == [[number] for number in range(count)]
    assert await hold.doubts() == []


@pytest.mark.parametrize("how", ["emit", "commit"])
async def test_an_event_for_very_many_wakes_them_beside_the_loop(
    url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if url.startswith("postgres"):
        return  # the database wakes them
    count = 500
    async with Holdfast(url) as hold:
        store = hold.store
        worker = NewWorker(lease=3600)
        await store.register(worker)
        for number in range(1, count // 250 + 1):
            await store.submit([NewTask(name="listener") for _ in range(250)])
            claimed = await store.claim(Claim(worker_id=worker.id, number=number, limit=250, names=["listener"]))
            wait = Move(to=TaskState.WAITING, reason="waits", waits=(UntilEvent(key="e", channel="news"),))
            await store.commit(
                [
                    Commit(task_id=one.task.id, guard=Held(worker.id, one.task.fence, 1), operations=(wait,))
                    for one in claimed
                ]
            )
        await store.submit([NewTask(id="teller", name="teller")])
        [teller] = await store.claim(Claim(worker_id=worker.id, number=100, limit=1, names=["teller"]))
        woken = Turns()
        monkeypatch.setattr(submission, "wake", woken.counting(lifecycle.wake))
        if how == "emit":
            await asyncio.gather(store.emit("news", 1), _read_meanwhile(store))
        else:
            tell = Commit(
                task_id="teller",
                guard=Held(worker.id, teller.task.fence, 1),
                operations=(Emit(channel="news", payload=1),),
            )
            await asyncio.gather(store.commit([tell]), _read_meanwhile(store))
        assert (await store.count())[TaskState.PENDING] == count
        assert woken.total == count
        assert woken.most <= 200


async def _read_meanwhile(store: StateStore) -> None:
    """Reads see all of it or nothing, also where one connection does everything."""
    counts = [(await store.count()).get(TaskState.PENDING, 0) for _ in range(5)]
    assert set(counts) <= {0, 500}


async def test_a_worker_that_retires_hands_very_many_back_beside_the_loop(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if url.startswith("postgres"):
        return  # the database does it
    async with Holdfast(url) as hold:
        store, worker = hold.store, NewWorker(lease=3600)
        await store.register(worker)
        await store.submit([NewTask(name="held") for _ in range(400)])
        await store.claim(Claim(worker_id=worker.id, number=1, limit=400, names=["held"]))
        returned = Turns()
        monkeypatch.setattr(lifecycle, "requeue", returned.counting(lifecycle.requeue))
        assert len(await store.retire(worker.id)) == 400
        assert returned.total == 400
        assert returned.most <= 200
