"""How fast the PostgreSQL store is beside plain inserts on the same server.

    python -m tests.store.postgres.measure [16|18] [--durable]

Prints rates and ratios. It asserts nothing: a rate says more about the machine than about the code.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

import psycopg

from holdfast.model.commit import Commit, Held
from holdfast.model.operations import Move, WriteStep
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.postgres_server import start_postgres

OUTPUT = b'{"data":"' + b"x" * 1000 + b'","schema":1}'
SECONDS = 1.5


async def rate(do: Callable[[int], Awaitable[int]]) -> float:
    """Call ``do`` with rising numbers for a while and return how many items it did a second."""
    for number in range(20):
        await do(number)
    done, number, begin = 0, 20, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        done += await do(number)
        number += 1
    return done / (time.perf_counter() - begin)


async def raw_inserts(url: str) -> float:
    """One row with the same bytes in a transaction of its own: the most one connection can do."""
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0)
    async with connection:
        await connection.execute("CREATE TABLE raw (id text, number bigint, body bytea, PRIMARY KEY (id, number))")

        async def insert(number: int) -> int:
            await connection.execute("INSERT INTO raw VALUES (%s, %s, %s)", ("task", number, OUTPUT))
            return 1

        return await rate(insert)


def step_commit(task_id: str, worker_id: str, fence: int, number: int) -> Commit:
    step = Step(key=f"step#{number}", kind="step", position=number, state=StepState.COMPLETED, output=OUTPUT)
    return Commit(task_id=task_id, guard=Held(worker_id, fence, number), operations=(WriteStep(step),))


async def lone_steps(store: PostgresStore) -> float:
    await store.submit([NewTask(name="lone")])
    worker = await store.register(NewWorker(lease=3600))
    [claimed] = await store.claim(Claim(worker_id=worker.id, number=1, limit=1, names=("lone",)))

    async def commit(number: int) -> int:
        [verdict] = await store.commit([step_commit(claimed.task.id, worker.id, claimed.fence, number + 1)])
        assert verdict.applied, verdict
        return 1

    return await rate(commit)


async def step_batches(store: PostgresStore, size: int) -> float:
    await store.submit([NewTask(name="batch") for _ in range(size)])
    worker = await store.register(NewWorker(lease=3600))
    claimed = await store.claim(Claim(worker_id=worker.id, number=1, limit=size, names=("batch",)))

    async def commit(number: int) -> int:
        verdicts = await store.commit([step_commit(c.task.id, worker.id, c.fence, number + 1) for c in claimed])
        assert all(verdict.applied for verdict in verdicts)
        return size

    return await rate(commit)


async def drain(store: PostgresStore, tasks: int, size: int) -> float:
    """Claim tasks in batches and complete each batch in one commit."""
    for _ in range(tasks // 500):
        await store.submit([NewTask(name="drain", user_input={"n": 1}) for _ in range(500)])
    worker = await store.register(NewWorker(lease=3600))
    done, number, begin = 0, 0, time.perf_counter()
    while done < tasks:
        number += 1
        claimed = await store.claim(Claim(worker_id=worker.id, number=number, limit=size, names=("drain",)))
        end = Move(to=TaskState.COMPLETED, reason="done", result="ok")
        commits = [Commit(task_id=c.task.id, guard=Held(worker.id, c.fence, 1), operations=(end,)) for c in claimed]
        verdicts = await store.commit(commits)
        assert all(verdict.applied for verdict in verdicts)
        done += len(claimed)
    return done / (time.perf_counter() - begin)


async def submissions(store: PostgresStore) -> float:
    async def submit(_: int) -> int:
        await store.submit([NewTask(name="unclaimed", user_input={"n": 1}) for _ in range(100)])
        return 100

    return await rate(submit)


async def loads(store: PostgresStore) -> float:
    await store.submit([NewTask(name="load", id="load")])
    worker = await store.register(NewWorker(lease=3600))
    [claimed] = await store.claim(Claim(worker_id=worker.id, number=1, limit=1, names=("load",)))
    for number in range(1, 51):
        await store.commit([step_commit("load", worker.id, claimed.fence, number)])

    async def load(_: int) -> int:
        assert len((await store.load("load")).steps) == 50
        return 1

    return await rate(load)


async def main(version: int, *, durable: bool) -> None:
    with start_postgres(version, durable=durable) as server:
        url = server.create_database()
        print(f"PostgreSQL {version}, fsync {'on' if durable else 'off'}")  # noqa: T201
        async with PostgresStore(url) as store:
            raw = await raw_inserts(url)
            for name, measured in (
                ("lone step commits", lone_steps(store)),
                ("steps in batches of 10", step_batches(store, 10)),
                ("steps in batches of 100", step_batches(store, 100)),
                ("tasks submitted by 100", submissions(store)),
                ("tasks claimed and completed by 100", drain(store, 4000, 100)),
                ("loads of 50 steps of 1 KB", loads(store)),
            ):
                found = await measured
                print(f"  {name:36} {found:8.0f}/s  {found / raw:5.2f} of raw", flush=True)  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("version", nargs="?", type=int, default=16)
    parser.add_argument("--durable", action="store_true")
    options = parser.parse_args()
    asyncio.run(main(options.version, durable=options.durable))
