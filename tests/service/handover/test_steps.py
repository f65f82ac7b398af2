"""Steps of agents outside: recorded once, whatever is sent again, and none lost between calls at the same time."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Conflict, Holdfast, InvalidValue, ManualClock, StepState
from holdfast.model.codec import decode
from holdfast.model.errors import CodecError
from holdfast.model.patch import StatePatch
from tests.engine.support import Watched
from tests.service.handover.support import Outside, everything, facts, outside_steps, task_of


async def test_a_step_is_a_line_of_its_own_kind_with_its_patch(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer(plan=["look", "clean"])
    lease = (await ada.take()).lease
    patch = StatePatch(complete_steps=("look",), current_step="clean")
    assert not await ada.step(lease, "look", {"disk": "92%"}, patch)
    [step] = await hold.store.steps(task.id)
    assert (step.key, step.kind, step.state, step.fence) == (
        "outside:look",
        "outside",
        StepState.COMPLETED,
        lease.fence,
    )
    assert decode(step.output or b"") == {"disk": "92%"}
    assert step.finished_at is not None
    state = await hold.state(task.id)
    assert (state.completed_steps, state.current_step) == (("look",), "clean")
    last = (await hold.state_history(task.id))[-1]
    assert (last.author, last.step_key) == ("mcp:ada", "outside:look")


async def test_the_journal_is_not_read_for_one_more_line(hold: Holdfast, ada: Outside) -> None:
    """It grows with every call, and a call should not cost more for it."""
    task = await ada.offer()
    lease = (await ada.take()).lease
    await ada.step(lease, "first")
    watched = Watched(hold.store)
    await ada.step(lease, "second", None, facts(disk="92%"))
    await ada.step(lease, "second", None, facts(disk="92%"))
    await ada.holding(lease).report("half way", 50)
    assert (watched.calls["load"], watched.calls["steps"]) == (0, 0)
    assert [(step.key, step.position) for step in await hold.store.steps(task.id)] == [
        ("outside:first", 1),
        ("outside:second", 2),
    ]


async def test_the_same_again_is_answered_and_changes_nothing(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await ada.step(lease, "look", {"a": 1, "b": 2}, facts(disk="92%"))
    before = await everything(hold, task.id)
    assert await ada.step(lease, "look", {"b": 2, "a": 1}, facts(disk="99%"))
    assert await everything(hold, task.id) == before


async def test_the_next_holder_of_the_task_gets_the_answer(
    hold: Holdfast, ada: Outside, bob: Outside, clock: ManualClock
) -> None:
    task = await ada.offer()
    await ada.step((await ada.take()).lease, "look", 1)
    clock.advance(61)
    lease = (await bob.take()).lease
    assert await bob.step(lease, "look", 1)
    assert not await bob.step(lease, "clean", 2)
    steps = await outside_steps(hold, task.id)
    assert list(steps) == ["outside:look", "outside:clean"]
    assert [step.position for step in steps.values()] == [1, 2]


@pytest.mark.parametrize("other", [2, "1", True, None, [1]], ids=repr)
async def test_another_output_under_the_key_is_refused(hold: Holdfast, ada: Outside, other: object) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await ada.step(lease, "look", 1)
    before = await everything(hold, task.id)
    with pytest.raises(Conflict, match=r"'look'.*recorded already, with the output 1; choose another key"):
        await ada.step(lease, "look", other)
    assert await everything(hold, task.id) == before


async def test_many_calls_at_once_under_one_lease_lose_nothing(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    keys = [f"step-{number}" for number in range(10)]
    replayed = await asyncio.gather(*(ada.step(lease, key, key, facts(**{key: key})) for key in keys))
    assert replayed == [False] * 10
    steps = await outside_steps(hold, task.id)
    assert {key: decode(step.output or b"") for key, step in steps.items()} == {f"outside:{key}": key for key in keys}
    assert len({step.position for step in steps.values()}) == 10
    assert sorted(fact.key for fact in (await hold.state(task.id)).known_facts) == sorted(keys)
    assert (await task_of(hold, task.id)).version == 11


async def test_the_same_step_many_times_at_once_is_one(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    replayed = await asyncio.gather(*(ada.step(lease, "look", 1, facts(disk="92%")) for _ in range(8)))
    assert sorted(replayed) == [False] + [True] * 7
    assert len(await hold.store.steps(task.id)) == 1
    assert (await task_of(hold, task.id)).version == 2


async def test_an_end_among_many_calls_is_the_end(hold: Holdfast, ada: Outside) -> None:
    """Each call is written before the end, or refused; none is answered and lost."""
    task = await ada.offer()
    lease = (await ada.take()).lease
    calls = [ada.step(lease, f"step-{number}", number) for number in range(6)]
    answers = await asyncio.gather(*calls, ada.holding(lease).finish("done"), return_exceptions=True)
    assert (await task_of(hold, task.id)).result == "done"
    recorded = await outside_steps(hold, task.id)
    for number, answer in enumerate(answers[:6]):
        assert (f"outside:step-{number}" in recorded) == (answer is False), answers


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", "x" * 2000], ids=["empty", "nul", "surrogate", "long"])
async def test_a_key_no_journal_could_hold(hold: Holdfast, ada: Outside, key: str) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    with pytest.raises(InvalidValue):
        await ada.step(lease, key)
    assert await hold.store.steps(task.id) == []


async def test_an_output_that_is_not_json(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    with pytest.raises(CodecError):
        await ada.step(lease, "look", object())
    assert await hold.store.steps(task.id) == []


async def test_a_patch_that_contradicts_the_state_takes_the_step_with_it(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    with pytest.raises(InvalidValue, match="is not open"):
        await ada.step(lease, "look", 1, StatePatch(resolve_questions=("never asked",)))
    assert await hold.store.steps(task.id) == []


async def test_progress_is_reported_to_watchers(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    standing = await ada.holding(lease).report("half way", 50)
    assert standing.task.id == task.id
    await ada.holding(lease).report("a bit more", None)
    await ada.holding(lease).finish(None)
    events = [event.payload async for event in hold.handle(task.id).events()]
    assert {"message": "half way", "by": "mcp:ada", "percent": 50} in events
    assert {"message": "a bit more", "by": "mcp:ada"} in events
