"""Commits against take-overs, re-sends, other Commits and other keys.

Where a test takes `broken`, the same interleaving is also run with the rule taken out, and then shows the damage.
"""

import asyncio
from datetime import timedelta

import psycopg
import pytest
from psycopg import conninfo

from holdfast.model.commit import Refusal
from holdfast.model.operations import ApplyPatch, ReopenChild, RequestCancel, SubmitChild
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.store.postgres import PostgresStore
from tests.store.postgres.support import (
    COMPLETE,
    begin,
    break_rule,
    claimed,
    execute,
    held,
    is_blocked,
    move,
    outside,
    paused,
    step,
    wait_for_waiters,
)

PATCH = ApplyPatch(body=b"{}", author="test")
SHAPES = {"commit_plain": (), "lock_tasks": (PATCH,)}
"""Which function locks the tasks of a batch, and what the Commits do beside writing a step."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("broken", [False, True])
async def test_a_zombies_steps_do_not_land_after_the_take_over(
    url: str, store: PostgresStore, *, shape: str, broken: bool
) -> None:
    """The zombie's batch is under way while the take-over commits: it must see the new fence."""
    if broken:
        break_rule(url, shape, "FOR NO KEY UPDATE")
    zombie, other = await claimed(store, "a", "b")
    async with paused(url) as taker:
        await taker.retire("worker")
        # Two Commits, so that they do not go through the scalar form.
        late = begin(store.commit([held(claim, 1, step(), *SHAPES[shape]) for claim in (zombie, other)]))
        await is_blocked(url, late)
        await taker.finish()
    if broken:
        # It judged the row as it stood before the take-over committed, and wrote its steps under a dead fence.
        assert [verdict.refusal for verdict in await late] == [None, None]
        assert (await store.load("a")).steps != ()
        return
    assert [verdict.refusal for verdict in await late] == [Refusal.SUPERSEDED] * 2
    assert (await store.load("a")).steps == ()


async def test_a_zombies_lone_step_does_not_land_either(url: str, store: PostgresStore) -> None:
    [zombie] = await claimed(store, "a")
    async with paused(url) as taker:
        await taker.retire("worker")
        late = begin(store.commit([held(zombie, 1, step())]))
        assert await is_blocked(url, late)
        await taker.finish()
    [verdict] = await late
    assert verdict.refusal is Refusal.SUPERSEDED
    assert (await store.load("a")).steps == ()


async def test_a_take_over_waits_for_a_commit_under_way_and_loads_it(url: str, store: PostgresStore) -> None:
    [claim] = await claimed(store, "a")
    async with paused(url) as worker:
        await worker.commit([held(claim, 1, step())])
        taken = begin(store.retire("worker"))
        assert await is_blocked(url, taken)
        await worker.finish()
    assert await taken == ["a"]
    assert [one.key for one in (await store.load("a")).steps] == ["step"]


async def test_an_unknown_outcome_is_asked_for_under_the_lock(url: str, store: PostgresStore) -> None:
    """While the first send is still committing, a re-send must wait: "not there" would be a guess."""
    [claim] = await claimed(store, "a")
    commit = held(claim, 1, step(), ApplyPatch(body=b"{}", author="test"), COMPLETE)
    async with paused(url) as first:
        await first.commit([commit])
        again = begin(store.commit([commit]))
        assert await is_blocked(url, again)
        await first.finish()
    [verdict] = await again
    assert (verdict.applied, verdict.duplicate, verdict.state) == (True, True, TaskState.COMPLETED)
    assert (await store.load("a")).task.version == 1


async def test_batches_in_opposite_order_do_not_meet_in_a_circle(url: str, store: PostgresStore) -> None:
    """Locks are taken by id, whatever the order in which Commits were sent."""
    one, two = await claimed(store, "a", "b")
    async with paused(url) as first:
        await first.commit([held(two, 1, step()), held(one, 1, step())])
        second = begin(store.commit([held(one, 2, step()), held(two, 2, step())]))
        assert await is_blocked(url, second)
        await first.finish()
    assert [verdict.applied for verdict in await second] == [True, True]


BY_WHO_ASKS = "CASE WHEN current_setting('application_name') = 'backwards' THEN -ascii(t.id) ELSE ascii(t.id) END"


@pytest.mark.parametrize("broken", [False, True])
async def test_one_order_of_locks_for_every_transaction(url: str, store: PostgresStore, *, broken: bool) -> None:
    """Two batches of the same three tasks, the middle one held by another transaction until both have begun to lock."""
    if broken:
        break_rule(url, "lock_tasks", "ORDER BY t.id FOR", f"ORDER BY {BY_WHO_ASKS} FOR")
    claims = await claimed(store, "a", "m", "z")
    elsewhere = conninfo.make_conninfo(url, application_name="backwards")
    async with PostgresStore(elsewhere) as other:
        with psycopg.connect(url) as holder:
            holder.execute("SELECT FROM holdfast.tasks WHERE id = 'm' FOR UPDATE")
            forwards = begin(store.commit([held(claim, 1, step()) for claim in claims]))
            await wait_for_waiters(url, 1)
            backwards = begin(other.commit([outside(claim.task.id, RequestCancel(reason="r")) for claim in claims]))
            await wait_for_waiters(url, 2)
            holder.rollback()
        verdicts = await forwards + await backwards
    assert all(verdict.applied for verdict in verdicts)  # the loser of a circle is sent again, a second later
    await store.close()
    deadlocks = 0
    for _ in range(600):  # statistics arrive a moment after the session ends
        [(deadlocks,)] = execute(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        if deadlocks or not broken:
            break
        await asyncio.sleep(0.1)
    assert (deadlocks > 0) == broken


async def test_of_two_submissions_of_one_key_the_loser_learns_who_won(url: str, store: PostgresStore) -> None:
    """The loser's insert waits for the winner; only a later statement can see the winner's task."""
    async with paused(url) as winner:
        await winner.submit([NewTask(name="job", key="k", id="winner", user_input=1)])
        same = begin(store.submit([NewTask(name="job", key="k", id="same", user_input=1)]))
        other = begin(store.submit([NewTask(name="job", key="k", id="other", user_input=2)]))
        assert await is_blocked(url, same)
        await winner.finish()
    [[same_answer], [other_answer]] = await asyncio.gather(same, other)
    assert (same_answer.task_id, same_answer.created, same_answer.conflict) == ("winner", False, False)
    assert (other_answer.task_id, other_answer.created, other_answer.conflict) == ("winner", False, True)


async def test_the_statement_that_lost_a_key_cannot_see_who_won(url: str, store: PostgresStore) -> None:
    """Why the loser reads in a later statement: asked in the same one, the key does not exist."""
    naive = b"""
        WITH mine AS (
            INSERT INTO holdfast.task_keys (name, key, task_id) VALUES ('job', 'k', 'loser')
            ON CONFLICT DO NOTHING RETURNING task_id)
        SELECT task_id FROM mine UNION ALL SELECT task_id FROM holdfast.task_keys WHERE name = 'job' AND key = 'k'
    """
    async with paused(url) as winner, await psycopg.AsyncConnection.connect(url, autocommit=True) as loser:
        await winner.submit([NewTask(id="winner", name="job", key="k")])
        asking = begin(loser.execute(naive))
        assert await is_blocked(url, asking)
        await winner.finish()
        assert await (await asking).fetchall() == []
    [submitted] = await store.submit([NewTask(id="loser", name="job", key="k")])
    assert (submitted.created, submitted.task_id) == (False, "winner")


async def test_a_key_is_free_again_when_its_submission_is_undone(url: str, store: PostgresStore) -> None:
    async with paused(url) as first:
        await first.submit([NewTask(name="job", key="k", id="first")])
        second = begin(store.submit([NewTask(name="job", key="k", id="second")]))
        assert await is_blocked(url, second)
        await first.connection.rollback()
    [answer] = await second
    assert (answer.task_id, answer.created) == ("second", True)


async def test_children_with_the_same_keys_in_opposite_order(url: str, store: PostgresStore) -> None:
    """Keys are locked in one order before any is inserted."""
    one, two = await claimed(store, "a", "b")
    keyed = [SubmitChild(NewTask(name="child", key=key)) for key in ("x", "y")]
    async with paused(url) as first:
        await first.commit([held(one, 1, keyed[1], keyed[0])])
        second = begin(store.commit([held(two, 1, *keyed)]))
        assert await is_blocked(url, second)
        await first.finish()
    [verdict] = await second
    assert [child.created for child in verdict.children] == [False, False]


async def test_a_refused_commit_leaves_nothing_and_spoils_no_other(store: PostgresStore) -> None:
    """What comes before the refused operation in its Commit is undone, what others did is not."""
    one, two = await claimed(store, "a", "b")
    await store.submit([NewTask(name="child", key="k", user_input="taken")])
    good = SubmitChild(NewTask(name="child", id="good"))
    bad = SubmitChild(NewTask(name="child", key="k", user_input="other"))
    verdicts = await store.commit([held(one, 1, good, bad, step()), held(two, 1, step())])
    assert [verdict.refusal for verdict in verdicts] == [Refusal.KEY, None]
    assert await store.get("good") is None
    assert (await store.load("a")).steps == ()
    assert (await store.load("b")).steps != ()


async def test_the_moves_of_a_batch_see_one_another(store: PostgresStore) -> None:
    """As if sent one by one: the outsider's second Commit meets what the first left."""
    await store.submit([NewTask(name="job", id="a")])
    commits = [outside("a", move(TaskState.CANCELLED)), outside("a", move(TaskState.CANCELLED))]
    verdicts = await store.commit(commits)
    assert [verdict.refusal for verdict in verdicts] == [None, Refusal.ILLEGAL_MOVE]


async def test_the_database_refuses_what_the_code_should_never_write(url: str, store: PostgresStore) -> None:
    await store.submit([NewTask(name="job", id="a")])
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for broken in (
            "UPDATE holdfast.tasks SET state = 'completed'",
            "UPDATE holdfast.tasks SET finished_at = now()",
            "UPDATE holdfast.tasks SET owner = 'w'",
            "UPDATE holdfast.tasks SET wake_at = now()",
            "UPDATE holdfast.tasks SET state = 'unknown', ready = 0",
            "INSERT INTO holdfast.transitions VALUES ('a', 2, 'completed', 'running', '', '', 1, now())",
        ):
            with pytest.raises(psycopg.errors.CheckViolation):
                await connection.execute(broken.encode())
            await connection.rollback()


async def test_submissions_that_name_a_task_twice_in_opposite_orders(url: str, store: PostgresStore) -> None:
    """Each is inserted one by one, in its caller's order; four callers at once still get through."""
    for turn in range(5):
        tasks = [NewTask(id=f"{turn}-{number}", name="job") for number in range(20)]
        there, back = [*tasks, tasks[0]], [*reversed(tasks), tasks[-1]]
        answers = await asyncio.gather(*(store.submit(some) for some in (there, back, there, back)))
        assert sum(answer.created for some in answers for answer in some) == 20
    assert execute(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == [(0,)]


async def test_a_child_is_begun_again_as_it_stands_under_the_lock(url: str, store: PostgresStore) -> None:
    """A person retries it at that very moment: the parent waits, and learns that it has not ended any more."""
    [parent] = await claimed(store, "b-parent")
    await store.submit([NewTask(id="a-child", name="job", parent_id="b-parent", state=TaskState.FAILED)])
    async with paused(url) as person:
        await person.commit([outside("a-child", move(TaskState.PENDING))])
        beginning = begin(store.commit([held(parent, 1, ReopenChild(child_id="a-child", revision=1, reason="again"))]))
        assert await is_blocked(url, beginning)
        await person.finish()
    [verdict] = await beginning
    assert verdict.refusal is Refusal.CONFLICT
    assert "only a child that has ended" in verdict.detail


async def test_a_prune_takes_nothing_of_a_tree_of_which_a_task_is_being_revived(url: str, store: PostgresStore) -> None:
    """Neither while that is under way, nor afterwards; other trees go."""
    ended = {"name": "job", "state": TaskState.FAILED}
    await store.submit([NewTask(id="root", **ended), NewTask(id="child", parent_id="root", **ended)])  # type: ignore[arg-type]
    await store.submit([NewTask(id="other", **ended)])  # type: ignore[arg-type]
    async with paused(url) as person:
        await person.commit([outside("child", move(TaskState.PENDING))])
        assert (await store.prune(timedelta(0))).tasks == 1
        await person.finish()
    assert (await store.prune(timedelta(0))).tasks == 0
    assert {task.id for task in (await store.find()).items} == {"root", "child"}
