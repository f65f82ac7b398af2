"""Patching a state from outside: compare and set."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import pytest

from holdfast import Conflict, Context, Holdfast, InvalidValue, ManualClock, NotFound, TaskState
from holdfast.model.agent_state import KnownFact
from holdfast.model.commit import Commit, Verdict
from holdfast.model.errors import StateConflict
from holdfast.model.operations import Move
from holdfast.model.patch import StatePatch
from holdfast.model.task import JsonValue, NewTask
from tests.engine.manage.state.support import begin, flagged, patched, write
from tests.engine.support import reaches


async def version_of(hold: Holdfast, task_id: str) -> int:
    task = await hold.store.get(task_id)
    assert task is not None
    return task.version


async def test_a_patch_is_applied_and_remembered(hold: Holdfast) -> None:
    task = await begin(hold)
    changed = await hold.patch_state(task, flagged("careful"), version=1, by="alice", reason="mind the database")
    assert changed.risk_flags == ("careful",)
    assert await hold.state(task) == changed
    last = (await hold.state_history(task))[-1]
    assert (last.version, last.patch, last.author, last.reason) == (2, flagged("careful"), "alice", "mind the database")
    assert last.step_key is None


async def test_one_that_comes_too_late_gets_the_newer_state_to_merge_with(hold: Holdfast) -> None:
    task = await begin(hold)
    await hold.patch_state(task, flagged("careful"), version=1, by="alice")
    with pytest.raises(StateConflict, match="at version 2, and the patch was made for 1") as caught:
        await hold.patch_state(task, flagged("hurry"), version=1, by="bob")
    assert isinstance(caught.value, Conflict)
    assert (caught.value.version, caught.value.expected, caught.value.task_id) == (2, 1, task)
    assert caught.value.state == await hold.state(task)
    assert await version_of(hold, task) == 2
    merged = await hold.patch_state(task, flagged("hurry"), version=caught.value.version, by="bob")
    assert merged.risk_flags == ("careful", "hurry")


async def test_one_made_for_a_state_that_is_still_to_come(quick: Holdfast) -> None:
    task = await begin(quick)
    with pytest.raises(StateConflict) as caught:
        await quick.patch_state(task, flagged("careful"), version=7, by="alice")
    assert caught.value.version == 1


async def test_of_many_at_once_each_version_is_made_by_one(hold: Holdfast) -> None:
    task = await begin(hold)

    async def patch(name: str) -> int:
        version, tries = 1, 0
        while True:
            tries += 1
            try:
                await hold.patch_state(task, flagged(name), version=version, by=name)
            except StateConflict as conflict:
                version = conflict.version
            else:
                return tries

    tries = await asyncio.gather(*(patch(f"flag-{number}") for number in range(6)))
    assert max(tries) > 1
    assert sorted((await hold.state(task)).risk_flags) == [f"flag-{number}" for number in range(6)]
    assert await version_of(hold, task) == 7


async def test_a_patch_that_comes_between_the_look_and_the_commit(
    hold: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await begin(hold)
    came = before_the_next_commit(hold, monkeypatch, lambda: write(hold, task, patched(flagged("first"))))
    with pytest.raises(StateConflict) as caught:
        await hold.patch_state(task, flagged("second"), version=1, by="alice")
    assert came
    assert caught.value.state.risk_flags == ("first",)
    assert await version_of(hold, task) == 2


def before_the_next_commit(
    hold: Holdfast, monkeypatch: pytest.MonkeyPatch, happen: Callable[[], Awaitable[None]]
) -> list[bool]:
    """Have something happen between what the next caller of commit read and what it writes; says whether it did."""
    commit, happened = hold.store.commit, list[bool]()

    async def late(commits: Sequence[Commit]) -> list[Verdict]:
        monkeypatch.undo()
        await happen()
        happened.append(True)
        return await commit(commits)

    monkeypatch.setattr(hold.store, "commit", late)
    return happened


async def test_one_that_does_not_fit_changes_nothing(hold: Holdfast) -> None:
    task = await begin(hold)
    before = await hold.state_history(task)
    with pytest.raises(InvalidValue, match="not open"):
        await hold.patch_state(task, StatePatch(resolve_questions=("why?",)), version=1, by="alice")
    with pytest.raises(InvalidValue, match="not a StatePatch"):
        await hold.patch_state(task, {"goal": "x"}, version=1, by="alice")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        await hold.patch_state(task, flagged("x"), version=1, by="")
    assert await hold.state_history(task) == before


async def test_a_task_that_has_ended_is_left_alone(hold: Holdfast) -> None:
    task = await begin(hold)
    await write(hold, task, Move(to=TaskState.CANCELLED, reason="enough"))
    for version in (1, 2):
        with pytest.raises(Conflict, match="is cancelled: its state is not used"):
            await hold.patch_state(task, flagged("late"), version=version, by="alice")
    assert await version_of(hold, task) == 1


async def test_one_that_ends_between_the_look_and_the_commit(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await begin(hold)
    end = Move(to=TaskState.CANCELLED, reason="enough")
    came = before_the_next_commit(hold, monkeypatch, lambda: write(hold, task, end))
    with pytest.raises(Conflict, match="is cancelled: its state is not used"):
        await hold.patch_state(task, flagged("late"), version=1, by="alice")
    assert came
    assert await version_of(hold, task) == 1


async def test_a_task_without_a_state_gets_none(quick: Holdfast) -> None:
    """The first patch is for the agent to write: it says everything."""
    await quick.store.submit([NewTask(id="plain", name="job")])
    with pytest.raises(Conflict, match="has no AgentState"):
        await quick.patch_state("plain", flagged("x"), version=0, by="alice")
    with pytest.raises(NotFound):
        await quick.patch_state("missing", flagged("x"), version=0, by="alice")
    assert await version_of(quick, "plain") == 0


async def test_facts_without_a_time_get_the_stores(still: Holdfast, clock: ManualClock) -> None:
    task = await begin(still)
    clock.advance(60)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    facts = (
        KnownFact(key="disk", value="full", source="alice"),
        KnownFact(key="owner", value="bob", source="alice", at=long_ago),
    )
    changed = await still.patch_state(task, StatePatch(append_facts=facts), version=1, by="alice")
    assert [fact.at for fact in changed.known_facts] == [clock.now(), long_ago]
    assert await still.state(task) == changed


async def test_a_task_that_a_worker_holds_can_be_patched(hold: Holdfast) -> None:
    """It takes no lease, and takes none away."""

    @hold.task
    async def agent(ctx: Context) -> JsonValue:
        return await ctx.step("wait", released.wait)

    released = asyncio.Event()
    async with hold.worker():
        handle = await hold.submit(agent)
        await reaches(handle, TaskState.RUNNING)
        await write(hold, handle.id, patched(StatePatch(goal="fix it")))
        await hold.patch_state(handle, flagged("careful"), version=1, by="alice")
        assert (await handle.task()).owner is not None
        released.set()
        assert await handle.result(timeout=60) is True
    assert (await hold.state(handle)).risk_flags == ("careful",)
