"""Claims beside claims, and clients that stop reading."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from holdfast import NewTask, TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import PATIENCE, begin, execute, is_blocked

QUEUES, NAMES = ("q1", "q2", "q3"), ("n1", "n2", "n3", "n4", "n5")


async def test_claims_side_by_side_take_different_tasks(store: PostgresStore) -> None:
    """A claim locks what it takes and no more: every claim gets tasks while there are enough."""
    await store.submit([NewTask(queue=queue, name=name) for queue in QUEUES for name in NAMES for _ in range(10)])
    workers = [(await store.register(NewWorker())).id for _ in range(8)]
    claims = await asyncio.gather(
        *(store.claim(Claim(worker_id=w, number=1, limit=10, queues=QUEUES, names=NAMES)) for w in workers)
    )
    assert [len(claimed) for claimed in claims] == [10] * 8
    assert len({claimed.task.id for one in claims for claimed in one}) == 80


async def test_a_claim_goes_past_what_others_have_locked(url: str, store: PostgresStore) -> None:
    await store.submit([NewTask(id=f"t{n:03}", name="job") for n in range(60)])
    worker = await store.register(NewWorker())
    with psycopg.connect(url) as other:
        other.execute("SELECT FROM holdfast.tasks WHERE id < 't050' FOR UPDATE")
        claimed = await store.claim(Claim(worker_id=worker.id, number=1, limit=5, names=("job",)))
    assert [one.task.id for one in claimed] == [f"t{n:03}" for n in range(50, 55)]


FROZEN = """
import asyncio, os, signal, sys
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.postgres import PostgresStore

async def main():
    store = await PostgresStore(sys.argv[1]).open()
    await store.register(NewWorker(id="frozen"))
    connection = await store._backend.open_connections().connect()
    query = store._backend.queries["claim"].encode()
    connection.pgconn.send_query_params(
        query, [b"frozen", b"1", b"200", b"{default}", b"{job}", b"f", None, b"2", b"f"])
    while connection.pgconn.flush():
        pass
    print("sent", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

asyncio.run(main())
"""


async def test_a_client_that_stops_reading_keeps_no_lock(url: str, store: PostgresStore, tmp_path: Path) -> None:
    """The server answers before it commits: an answer that did not fit the socket would wait, with all its locks."""
    await store.submit([NewTask(name="job", user_input="x" * 20_000) for _ in range(200)])
    (tmp_path / "frozen.py").write_text(FROZEN)
    frozen = subprocess.Popen([sys.executable, tmp_path / "frozen.py", url], stdout=subprocess.PIPE)
    try:
        assert frozen.stdout is not None
        assert frozen.stdout.readline() == b"sent\n"
        async with asyncio.timeout(PATIENCE):
            while len(await store.owned("frozen")) < 200:  # noqa: ASYNC110 - the server goes on alone
                await asyncio.sleep(0.05)
        execute(url, "UPDATE holdfast.workers SET (lease, expires_at) = (0.001, seen_at)")  # it was silent for long
        recovered = 0
        async with asyncio.timeout(PATIENCE):
            while recovered < 200:
                recovered += len((await store.sweep()).recovered)
    finally:
        os.kill(frozen.pid, signal.SIGKILL)
        frozen.wait()
        if frozen.stdout is not None:
            frozen.stdout.close()
    assert await store.count() == {TaskState.PENDING: 200}


@pytest.mark.parametrize("same_id", [True, False])
async def test_a_submission_beside_a_prune_keeps_its_key(url: str, store: PostgresStore, same_id: bool) -> None:
    """The pruned task is seen by one statement and gone for the next; two tasks must not end up with one key."""
    await store.submit([NewTask(id="old", name="job", key="k", state=TaskState.COMPLETED)])
    with psycopg.connect(url) as other:
        other.execute("SELECT holdfast.prune(clock_timestamp() + interval '1 hour', 10)")
        new = NewTask(id="old" if same_id else "new", name="job", key="k", user_input="again")
        submitting = begin(store.submit([new]))
        assert await is_blocked(url, submitting)
        other.commit()
    [submitted] = await submitting
    assert submitted.created
    assert execute(url, "SELECT task_id FROM holdfast.task_keys") == [(new.id,)]
    [second] = await store.submit([NewTask(name="job", key="k", user_input="again")])
    assert (second.created, second.task_id) == (False, new.id)
