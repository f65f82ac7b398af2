"""Everything at once on a few tasks: no deadlock, no lost step, no gap, nothing stuck."""

import asyncio
import random
from collections.abc import Sequence

from holdfast.model.commit import Commit, Verdict
from holdfast.model.operations import Emit, Reserve, Settle, SubmitChild, UntilChildren, UntilEvent
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, Claimed, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import COMPLETE, execute, held, move, outside, step

NOTHING = (
    # No task sleeps through something that has happened.
    "SELECT id FROM holdfast.tasks WHERE state = 'waiting' AND holdfast.reason_to_go_on(id, now()) <> ''",
    # Waits and joins belong to waiting tasks, and the counters are right.
    "SELECT w.task_id FROM holdfast.waits w JOIN holdfast.tasks t ON t.id = w.task_id WHERE t.state <> 'waiting'",
    """SELECT w.task_id FROM holdfast.waits w WHERE w.kind = 'children' AND w.remaining <> (
           SELECT count(*) FROM holdfast.joins j WHERE j.task_id = w.task_id AND j.key = w.key)""",
    """SELECT j.task_id FROM holdfast.joins j JOIN holdfast.tasks c ON c.id = j.child_id
       WHERE c.finished_at IS NOT NULL""",
    # Money is neither lost nor invented.
    """SELECT a.account FROM holdfast.accounts a WHERE a.reserved <> (
           SELECT coalesce(sum(r.amount), 0) FROM holdfast.reservations r
           WHERE r.account = a.account AND r.meter = a.meter)""",
    # The tasks that can be claimed are marked, and no others; nothing is held any more.
    """SELECT id FROM holdfast.tasks
       WHERE ready <> holdfast.readiness(state, owner, available_at, deaths, now()) OR owner IS NOT NULL""",
    # Every key leads to its task.
    """SELECT k.key FROM holdfast.task_keys k LEFT JOIN holdfast.tasks t ON t.id = k.task_id AND t.key = k.key
       WHERE t.id IS NULL""",
)
"""Questions about the tables to which the answer must be empty when all work is done."""

NAMES = ("job", "child")
ROUNDS = 40


async def work(url: str, worker: str, seed: int, acknowledged: dict[str, set[str]]) -> None:
    """Claim a few tasks, and commit random things about them in batches, some of which are sent twice."""
    dice = random.Random(f"{seed} {worker}")
    async with PostgresStore(url, pool_size=2) as store:
        await store.register(NewWorker(id=worker, lease=60))
        for number in range(1, ROUNDS + 1):
            got = await store.claim(Claim(worker_id=worker, number=number, limit=4, names=NAMES))
            commits = [commit for claim in got for commit in random_commits(dice, claim)]
            for verdict_batch in [await store.commit(commits) for _ in range(dice.choice((1, 1, 2)))][:1]:
                note(commits, verdict_batch, acknowledged)
            await store.emit(f"channel-{dice.randrange(3)}", number)
            if dice.random() < 0.3:
                await store.sweep(10)
            if dice.random() < 0.15:
                await store.retire(worker)
                worker += "+"
                await store.register(NewWorker(id=worker, lease=60))
        await store.retire(worker)


def note(commits: Sequence[Commit], verdicts: Sequence[Verdict], acknowledged: dict[str, set[str]]) -> None:
    for commit, verdict in zip(commits, verdicts, strict=True):
        if verdict.applied:
            keys = {op.step.key for op in commit.operations if hasattr(op, "step")}
            acknowledged.setdefault(commit.task_id, set()).update(keys)


def random_commits(dice: random.Random, claim: Claimed) -> list[Commit]:
    first = [step(f"{claim.fence}-{n}", position=n) for n in range(dice.randrange(1, 4))]
    budget = (
        Reserve(account=f"account-{dice.randrange(2)}", step_key="s", amounts={"tokens": 3, "cost": 1}),
        Settle(account=f"account-{dice.randrange(2)}", step_key="s", amounts={"tokens": 2}),
    )
    child = NewTask(name="child", key=f"child-{dice.randrange(12)}")
    last = dice.choice(
        (
            (COMPLETE,),
            (COMPLETE,),
            (move(TaskState.PENDING),),
            (Emit(channel=f"channel-{dice.randrange(3)}", payload=1), COMPLETE),
            (
                move(
                    TaskState.WAITING,
                    waits=tuple(
                        UntilEvent(key=f"e{n}", channel=f"channel-{n}", after=dice.randrange(30)) for n in range(2)
                    ),
                ),
            ),
            (
                SubmitChild(child),
                move(
                    TaskState.WAITING,
                    waits=(
                        UntilChildren(key="j", children=(f"task-{dice.randrange(10):02}", child.id)),
                        UntilEvent(key="e", channel="channel-0"),
                    ),
                ),
            ),
        )
    )
    return [held(claim, 1, *first), held(claim, 2, *(budget if dice.random() < 0.5 else ())), held(claim, 3, *last)]


async def meddle(url: str, seed: int) -> None:
    """What people do meanwhile."""
    dice = random.Random(seed)
    async with PostgresStore(url, pool_size=1) as store:
        for number in range(ROUNDS):
            tasks = [NewTask(name="job", key=f"k{dice.randrange(20)}") for _ in range(3)]
            await store.submit([*tasks, NewTask(name="job", id=f"task-{number % 10:02}")])
            picked = dice.sample(range(10), 3)
            await store.commit([outside(f"task-{n:02}", move(TaskState.CANCELLED)) for n in picked if n % 2])
            await asyncio.sleep(0)


async def test_many_at_once(url: str, seeds: Sequence[int]) -> None:
    async with PostgresStore(url) as store:
        for seed in seeds[:2] if len(seeds) <= 5 else seeds:
            acknowledged: dict[str, set[str]] = {}
            await store.submit([NewTask(name="job", id=f"task-{n:02}") for n in range(10)])
            await asyncio.gather(
                *(work(url, f"worker-{seed}-{n}", seed, acknowledged) for n in range(4)), meddle(url, seed)
            )
            for task_id, keys in acknowledged.items():
                assert keys <= {one.key for one in await store.steps(task_id)}
                numbers = [one.number for one in await store.history(task_id)]
                assert numbers == list(range(1, len(numbers) + 1))
        await check_books(url, store)


async def check_books(url: str, store: PostgresStore) -> None:
    assert execute(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]
    for query in NOTHING:
        assert execute(url, query) == [], query
    await store.sweep()
