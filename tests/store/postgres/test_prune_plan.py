"""A prune finds what is old by index, however much is not."""

from datetime import timedelta

from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import execute

READ_IN_SEQUENCE = (
    "SELECT relname, seq_scan FROM pg_stat_xact_user_tables WHERE schemaname = 'holdfast' AND seq_scan > 0"
)


async def test_trees_and_events_are_found_by_index(url: str, store: PostgresStore) -> None:
    """Root by root, child by child, event by event. Workers and uploads are few, and may be read from end to end."""
    ended = [NewTask(id=f"t{n}", name="job", state=TaskState.COMPLETED) for n in range(20)]
    below = [NewTask(name="job", parent_id=f"t{n}", state=TaskState.COMPLETED) for n in range(20)]
    await store.submit([*ended, *below, NewTask(id="open", name="job")])
    for channel in ("news", "inbox:open", "taken:effect"):
        await store.emit(channel, 1)
    prune = "SELECT holdfast.prune(clock_timestamp(), 10)"
    found = execute(url, "BEGIN", prune, READ_IN_SEQUENCE)
    assert {table for table, _ in found} <= {"workers", "uploads"}
    assert (await store.count())[TaskState.COMPLETED] == 30
    assert [len(await store.events(channel)) for channel in ("news", "inbox:open", "taken:effect")] == [0, 1, 0]


async def test_what_a_queue_keeps_no_longer_is_found_by_index(url: str, store: PostgresStore) -> None:
    """And so is the queue whose turn it is."""
    ended = [NewTask(id=f"t{n}", name="job", state=TaskState.COMPLETED) for n in range(20)]
    below = [NewTask(name="job", parent_id=f"t{n}", state=TaskState.COMPLETED) for n in range(20)]
    await store.submit([*ended, *below, NewTask(id="open", name="job")])
    await store.set_queue("default", retention={"completed": timedelta(0)})
    found = execute(url, "BEGIN", "SELECT holdfast.prune_kept(10, clock_timestamp())", READ_IN_SEQUENCE)
    assert found == []
    assert (await store.count())[TaskState.COMPLETED] == 30
