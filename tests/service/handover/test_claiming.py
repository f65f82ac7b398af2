"""Claiming: who gets what, in which order, and what is refused."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from holdfast import Conflict, Context, Effect, Handle, Holdfast, InvalidValue, ManualClock, NotFound, TaskState
from holdfast.model.effect import EffectClass, EffectState
from holdfast.model.errors import LeaseHeld, StoreClosed
from holdfast.model.operations import Move, Release, RequestCancel, WriteEffect
from holdfast.model.patch import StatePatch
from holdfast.model.task import NewTask
from tests.engine.manage.state.support import write
from tests.engine.support import reaches
from tests.service.handover.support import Outside, everything, living_workers, task_of


async def test_higher_priority_comes_first_then_who_waited_longer(ada: Outside, clock: ManualClock) -> None:
    for number, priority in enumerate((0, 5, 5, 9)):
        await ada.offer(f"{number}", priority=priority)
        clock.advance(0.1)
    taken = [await ada.take() for _ in range(4)]
    assert [one.task.user_input for one in taken] == [["3"], ["1"], ["2"], ["0"]]
    assert await ada.ask() is None


async def test_a_claim_that_fails_while_the_store_closes_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = await Holdfast("memory://").__aenter__()
    ada = Outside(hold, "ada")
    task = await ada.offer()

    async def closed(*_: object) -> None:
        await hold.__aexit__(None, None, None)
        raise StoreClosed("in the middle of it")

    monkeypatch.setattr(hold.store, "acquire", closed)
    before = asyncio.all_tasks()
    with pytest.raises(StoreClosed):
        await ada.take(task.id)
    assert asyncio.all_tasks() == before


async def test_a_claim_has_the_task_its_state_and_a_lease(hold: Holdfast, ada: Outside) -> None:
    await ada.offer("Free the disk", plan=["look"])
    taken = await ada.take(seconds=90)
    assert taken.seconds == 90
    assert taken.task.state is TaskState.RUNNING
    assert taken.state is not None
    assert (taken.state.goal, taken.state.plan) == ("Free the disk", ("look",))
    assert taken.answers == []
    assert taken.lease.task_id == taken.task.id
    assert (taken.task.owner, taken.task.fence) == (taken.lease.worker_id, taken.lease.fence)
    [worker] = await hold.store.workers()
    assert (worker.label, worker.lease) == ("mcp:ada", 90)


async def test_one_that_was_submitted_by_hand_has_a_state_from_its_first_claim_on(hold: Holdfast, ada: Outside) -> None:
    await hold.store.submit([NewTask(id="t", name="handover", user_input=["Look", {"plan": ["a"]}])])
    taken = await ada.take("t")
    assert taken.state is not None
    assert (taken.state.goal, taken.state.plan, taken.task.version) == ("Look", ("a",), 1)


async def test_only_the_queues_that_were_named_are_looked_at(ada: Outside) -> None:
    await ada.offer("here", queue="here")
    assert await ada.ask() is None
    assert await ada.ask(queues=["there", "elsewhere"]) is None
    assert (await ada.take(queues=["there", "here"])).task.queue == "here"


async def test_a_claim_that_finds_nothing_leaves_nothing(hold: Holdfast, ada: Outside) -> None:
    assert await ada.ask() is None
    await ada.offer("elsewhere", queue="elsewhere")
    await hold.store.submit([NewTask(id="other", name="for-our-workers")])
    assert await ada.ask() is None
    assert await hold.store.workers() == []


async def test_nor_does_one_that_finds_only_what_is_not_due(hold: Holdfast, ada: Outside) -> None:
    await ada.offer(delay=60)
    for _ in range(3):
        assert await ada.ask() is None
    assert await hold.store.workers() == []


async def test_nor_does_one_that_was_refused(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    task = await ada.offer()
    await ada.take(task.id)
    with pytest.raises(LeaseHeld):
        await bob.ask(task.id)
    assert await living_workers(hold) == 1


async def test_of_many_claims_at_once_each_task_goes_to_one(ada: Outside) -> None:
    offered = {(await ada.offer(f"{number}")).id for number in range(4)}
    taken = await asyncio.gather(*(ada.ask() for _ in range(8)))
    got = [one.task.id for one in taken if one is not None]
    assert sorted(got) == sorted(offered)


async def test_of_many_claims_at_once_on_one_task_one_gets_it(ada: Outside) -> None:
    task = await ada.offer()
    answers = await asyncio.gather(*(ada.ask(task.id) for _ in range(6)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Conflict)]
    assert len(refused) == 5, answers


@pytest.mark.parametrize("seconds", [0, 0.9, -1, 3601, float("nan"), float("inf")])
async def test_an_impossible_lease_is_refused(hold: Holdfast, ada: Outside, seconds: float) -> None:
    await ada.offer()
    with pytest.raises(InvalidValue, match="choose 1 to 3600"):
        await ada.ask(seconds=seconds)
    assert await hold.store.workers() == []


async def test_a_task_that_is_not_there(ada: Outside) -> None:
    with pytest.raises(NotFound):
        await ada.ask("nowhere")


async def test_what_cannot_be_claimed_by_its_id_is_refused_in_words(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    waiting, ended, review, delayed, held = [
        await ada.offer(name, delay=60 if name == "delayed" else 0)
        for name in ("waiting", "ended", "review", "delayed", "held")
    ]
    await ada.take(held.id)
    lease = (await ada.take(waiting.id)).lease
    await ada.holding(lease).ask("may I?")
    await ada.holding((await ada.take(ended.id)).lease).finish(1)
    await hold.store.submit([NewTask(id="ours", name="deploy")])
    lease = (await ada.take(review.id)).lease
    await ada.holding(lease).change(Move(to=TaskState.REVIEW, reason="by hand", result=1), Release())
    for task_id, words in (
        (held.id, "is held by mcp:ada; if it stays silent, the task is free after 2026-01-01T00:01:00"),
        (waiting.id, "is waiting: it waits for a person or for something else"),
        (review.id, "is review: its result is being verified"),
        (ended.id, "is completed: it has ended"),
        (delayed.id, "is not due before 2026-01-01T00:01:00"),
        ("ours", r"\(deploy\) is for Holdfast's own workers; agents outside may claim handover.*--claim NAME"),
    ):
        before = await everything(hold, task_id)
        with pytest.raises(Conflict, match=words):
            await bob.ask(task_id)
        assert await everything(hold, task_id) == before


async def test_a_task_that_is_being_cancelled_is_cancelled_and_not_handed_out(
    hold: Holdfast, ada: Outside, bob: Outside, clock: ManualClock
) -> None:
    task = await ada.offer()
    await ada.take(task.id)
    assert await hold.cancel(task.id, "not wanted", by="ann") is TaskState.RUNNING
    clock.advance(61)
    assert await bob.ask() is None
    ended = await task_of(hold, task.id)
    assert ended.state is TaskState.CANCELLED
    with pytest.raises(Conflict, match="cancelled"):
        await bob.ask(task.id)


async def test_a_cancel_request_for_a_task_without_a_holder(hold: Holdfast, ada: Outside, bob: Outside) -> None:
    task = await ada.offer()
    await write(hold, task.id, RequestCancel(reason="not wanted"))
    with pytest.raises(Conflict, match="cancelled"):
        await bob.ask(task.id)
    assert await bob.ask() is None
    assert (await task_of(hold, task.id)).state is TaskState.CANCELLED


OPEN_TO_ALL = ("handover", "deploy")


async def deploy(hold: Holdfast, task_id: str, *, in_doubt: bool) -> None:
    """Submit a task of our own; with a call in doubt, if requested."""
    await hold.store.submit([NewTask(id=task_id, name="deploy", priority=9 if in_doubt else 0)])
    if in_doubt:
        effect = Effect(
            effect_id=f"effect-{task_id}", step_key="pay", effect_class=EffectClass.ONCE, state=EffectState.ARMED
        )
        await write(hold, task_id, WriteEffect(effect))


async def test_a_task_with_a_call_in_doubt_is_for_its_own_worker(hold: Holdfast, ada: Outside) -> None:
    await deploy(hold, "blocked", in_doubt=True)
    await deploy(hold, "free", in_doubt=False)
    with pytest.raises(Conflict, match=re.escape("a call whose outcome is unknown (pay); its own worker, or a person")):
        await ada.ask("blocked", names=OPEN_TO_ALL)
    assert (await ada.take(names=OPEN_TO_ALL)).task.id == "free"  # the next one behind it
    assert (await task_of(hold, "blocked")).state is TaskState.PENDING
    assert await ada.ask(names=OPEN_TO_ALL) is None
    assert await living_workers(hold) == 1


async def test_those_in_doubt_do_not_hide_what_waits_behind_them(hold: Holdfast, ada: Outside) -> None:
    for number in range(8):
        await deploy(hold, f"blocked-{number}", in_doubt=True)
    await deploy(hold, "free", in_doubt=False)
    before = [await everything(hold, f"blocked-{number}") for number in range(8)]
    assert (await ada.take(names=OPEN_TO_ALL)).task.id == "free"
    assert [await everything(hold, f"blocked-{number}") for number in range(8)] == before


async def test_a_task_with_steps_to_undo_is_for_its_own_worker(living: Holdfast) -> None:
    async def book(ctx: Context) -> None:
        await ctx.step("book", lambda: "seat 4", compensate=lambda _result: None)
        await ctx.approval("Fly?")

    living.task(book)
    ada = Outside(living, "ada")
    handle: Handle[Any] = await living.submit("book")
    async with living.worker():
        await reaches(handle, TaskState.WAITING)
    [asked] = await living.approvals(handle.id)
    await living.approve(asked.id, by="ann")
    with pytest.raises(Conflict, match="has steps that must be undone should it fail"):
        await ada.ask(handle.id, names=["book"])
    assert (await task_of(living, handle.id)).owner is None
    assert await ada.ask(names=["book"]) is None
    async with living.worker():
        await living.handle(handle.id).result(60)


async def test_what_a_patch_brought_before_the_claim_is_seen(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    await hold.patch_state(task.id, StatePatch(set_flags=("careful",)), version=1, by="ann")
    state = (await ada.take()).state
    assert state is not None
    assert state.risk_flags == ("careful",)
