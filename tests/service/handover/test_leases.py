"""Leases: renewed by every call of their holder, never valid again once they have ended, and not to be forged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from holdfast import Conflict, Holdfast, InvalidValue, ManualClock, NotFound, TaskState
from holdfast.engine.outside import LeaseToken
from holdfast.model.errors import LeaseHeld, LeaseLost
from tests.service.handover.support import VERBS, Outside, everything, facts, living_workers, outside_steps, task_of


@pytest.mark.parametrize("verb", ["renew", "complete_step", "report", "patch"])
async def test_whatever_the_holder_does_keeps_the_lease(
    hold: Holdfast, ada: Outside, bob: Outside, clock: ManualClock, verb: str
) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    for _ in range(4):
        clock.advance(50)  # each time less than the lease, together far more
        await VERBS[verb](ada.holding(lease))
        with pytest.raises(LeaseHeld):
            await bob.ask(task.id)
    assert await bob.ask() is None
    await ada.holding(lease).finish("done")
    assert (await task_of(hold, task.id)).result == "done"


async def test_who_is_silent_for_too_long_loses_the_task(
    hold: Holdfast, ada: Outside, bob: Outside, clock: ManualClock
) -> None:
    task = await ada.offer()
    first = await ada.take()
    await ada.step(first.lease, "look", 1, facts(disk="92%"))
    clock.advance(59)
    assert await bob.ask() is None
    clock.advance(59)
    second = await bob.take()
    assert second.task.id == task.id
    assert second.lease.fence > first.lease.fence
    assert second.lease.worker_id != first.lease.worker_id
    assert second.state is not None
    assert [fact.value for fact in second.state.known_facts] == ["92%"]  # what was recorded is still there
    assert any(move.reason == "its worker died" for move in await hold.store.history(task.id))


@pytest.mark.parametrize("verb", VERBS)
async def test_a_stale_holder_writes_nothing(
    hold: Holdfast, ada: Outside, bob: Outside, clock: ManualClock, verb: str
) -> None:
    task = await ada.offer()
    stale = (await ada.take()).lease
    clock.advance(61)
    fresh = (await bob.take()).lease
    before = await everything(hold, task.id)
    with pytest.raises(LeaseLost, match=r"another worker has it.*stop working on it"):
        await VERBS[verb](ada.holding(stale))
    assert await everything(hold, task.id) == before
    await bob.holding(fresh).finish("bob's")
    assert (await task_of(hold, task.id)).result == "bob's"


async def test_a_task_without_a_claim_does_not_either(hold: Holdfast, ada: Outside, clock: ManualClock) -> None:
    task = await ada.offer()
    stale = (await ada.take()).lease
    clock.advance(61)
    await hold.store.sweep()
    before = await everything(hold, task.id)
    for verb in VERBS.values():
        with pytest.raises(LeaseLost, match="task is pending"):
            await verb(ada.holding(stale))
    assert await everything(hold, task.id) == before


@pytest.mark.parametrize("ending", ["finish", "release", "give_up", "ask"])
async def test_a_lease_ends_with_what_ends_it(hold: Holdfast, ada: Outside, ending: str) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await VERBS[ending](ada.holding(lease))
    assert await living_workers(hold) == 0
    before = await everything(hold, task.id)
    for name, verb in VERBS.items():
        if name == ending:
            await verb(ada.holding(lease))  # a call whose answer was lost can be repeated, and changes nothing
        else:
            with pytest.raises(LeaseLost):
                await verb(ada.holding(lease))
    assert await everything(hold, task.id) == before


async def test_forged_leases_open_nothing(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    task, other = await ada.offer("mine"), await ada.offer("theirs")
    lease = (await ada.take(task.id)).lease
    own = (await bob.take(other.id)).lease
    assert lease.worker_id == (await task_of(hold, task.id)).owner
    forged: Sequence[LeaseToken] = (
        LeaseToken(task.id, lease.fence, "guess"),
        LeaseToken(task.id, lease.fence, lease.worker_id),  # every reader can see the holder's id
        LeaseToken(task.id, lease.fence + 1, lease.secret),
        LeaseToken(task.id, 10**30, lease.secret),
        LeaseToken(task.id, own.fence, own.secret),  # a lease of one's own, on another agent's task
        LeaseToken("nowhere", 1, "guess"),
    )
    before = await everything(hold, task.id)
    for one, verb in itertools.product(forged, VERBS.values()):
        with pytest.raises((LeaseLost, NotFound)):
            await verb(bob.holding(one))
    assert await everything(hold, task.id) == before
    await ada.holding(lease).finish(1)


async def test_a_lease_that_was_shown_to_another_server_holds_there_too(hold: Holdfast, ada: Outside) -> None:
    """Nothing is kept between two calls: the text alone is the lease."""
    await ada.offer()
    text = str((await ada.take()).lease)
    again = LeaseToken.read(f"  {text}\n")
    assert not await Outside(hold, "ada, elsewhere").step(again, "look")
    assert list(await outside_steps(hold, again.task_id)) == ["outside:look"]


def test_the_secret_is_in_no_log_and_does_not_follow_from_the_worker() -> None:
    lease = LeaseToken("task", 3, "secret")
    assert str(lease) == "task/3/secret"
    assert "secret" not in repr(lease)
    assert "secret" not in lease.worker_id
    assert LeaseToken.read(str(lease)) == lease
    assert LeaseToken("task", 3, "other").worker_id != lease.worker_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "//",
        "task",
        "task/1",
        "task/1/",
        "task//x",
        "task/x/y",
        "task/0/y",
        "task/-1/y",
        "task/1.0/y",
        "/1/y",
        "task/¹/y",
        f"task/{'9' * 5000}/y",
    ],
    ids=lambda text: text[:20] or "nothing",
)
def test_what_is_not_a_lease(text: str) -> None:
    with pytest.raises(InvalidValue, match="that is not a valid lease; pass the text claim_task returned"):
        LeaseToken.read(text)


async def test_agents_that_die_alone_with_a_task_condemn_it(
    hold: Holdfast, ada: Outside, bob: Outside, clock: ManualClock
) -> None:
    """As with workers: two deaths may have any cause, the next three count against the task."""
    task = await ada.offer("deadly")
    for death in range(5):
        assert (await ada.take()).task.id == task.id, f"not handed out after {death} deaths"
        clock.advance(61)
    assert await bob.ask() is None
    condemned = await task_of(hold, task.id)
    assert condemned.state is TaskState.FAILED
    assert condemned.error is not None
    assert condemned.error["type"] == "Poison"
    with pytest.raises(Conflict, match="it has ended"):
        await bob.ask(task.id)
