"""The state of a fork: the patches of the past it shares, and one of its own."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Conflict, Handle, Holdfast, InvalidValue, ManualClock, TaskState
from holdfast.model.agent_state import KnownFact
from holdfast.model.operations import Move, Operation
from holdfast.model.patch import StatePatch
from holdfast.model.queries import Loaded
from tests.engine.manage.state.support import begin, flagged, line, patched, write


async def lived(hold: Holdfast) -> Handle[Any]:
    """Two steps, a person in between, and one more patch that no step carried."""
    task = await begin(hold)
    now = await hold.store.now()
    await write(hold, task, line("a", 1, at=now), patched(flagged("a"), step="a", reason="saw"))
    await write(hold, task, patched(flagged("careful"), author="alice", reason="mind"))
    await write(hold, task, line("b", 2, at=now), patched(flagged("b"), step="b"))
    await write(hold, task, patched(flagged("late"), author="bob"))
    return hold.handle(task)


async def patches_of(hold: Holdfast, task: Handle[Any]) -> list[tuple[Any, ...]]:
    return [(one.version, one.patch, one.author, one.reason, one.step_key) for one in await hold.state_history(task)]


async def test_it_has_the_patches_up_to_there_with_their_authors(hold: Holdfast) -> None:
    task = await lived(hold)
    fork = await hold.fork(task, at="b")
    assert await patches_of(hold, fork) == (await patches_of(hold, task))[:4]
    assert await hold.state(fork) == await hold.state(task, at="b")
    assert await patches_of(hold, await hold.fork(task)) == await patches_of(hold, task)
    assert (await hold.state(await hold.fork(task, at="a"))).risk_flags == ("a",)


async def test_one_more_patch_is_on_top(hold: Holdfast) -> None:
    task = await lived(hold)
    fork = await hold.fork(task, at="a", patch=flagged("other way"), by="carol")
    assert (await patches_of(hold, fork))[-1] == (3, flagged("other way"), "carol", "fork", None)
    assert (await hold.state(fork)).risk_flags == ("a", "other way")
    assert (await hold.state(task)).risk_flags == ("a", "careful", "b", "late")
    with pytest.raises(Conflict, match="at version 3"):
        await hold.patch_state(fork, flagged("x"), version=2, by="carol")


async def test_a_patch_that_does_not_fit_makes_no_fork(quick: Holdfast) -> None:
    task = await lived(quick)
    with pytest.raises(InvalidValue, match="not open"):
        await quick.fork(task, patch=StatePatch(resolve_questions=("why?",)))
    with pytest.raises(InvalidValue, match="not a StatePatch"):
        await quick.fork(task, patch={"goal": "x"})  # type: ignore[arg-type]
    assert len((await quick.store.find()).items) == 1


async def test_a_task_without_a_state_takes_no_patch(quick: Holdfast) -> None:
    task: Handle[Any] = await quick.submit("job", queue="unserved")
    with pytest.raises(Conflict, match="has no AgentState"):
        await quick.fork(task, patch=flagged("x"))
    assert (await (await quick.fork(task)).task()).version == 0


async def test_facts_of_the_patch_get_a_time(still: Holdfast, clock: ManualClock) -> None:
    task = still.handle(await begin(still))
    clock.advance(10)
    fact = KnownFact(key="disk", value="full", source="alice")
    fork = await still.fork(task, patch=StatePatch(append_facts=(fact,)))
    assert [one.at for one in (await still.state(fork)).known_facts] == [clock.now()]


async def test_patches_of_earlier_rounds_keep_their_steps(hold: Holdfast) -> None:
    """Where the same keys mean others."""
    task = hold.handle(await begin(hold))
    await write(hold, task.id, line("a", 1), patched(flagged("a1"), step="a"))
    await write(hold, task.id, line("b", 2), patched(flagged("b1"), step="b"))
    await write(hold, task.id, Move(to=TaskState.FAILED, reason="gave up"))
    await write(hold, task.id, Move(to=TaskState.PENDING, reason="again", new_round=True))
    second = (1 << 32) + 1
    await write(hold, task.id, line("a", second, round_=2), patched(flagged("a2"), step="a"))
    await write(hold, task.id, line("b", second + 1, round_=2), patched(flagged("b2"), step="b"))
    fork = await hold.fork(task, at="a")
    assert [(one.patch.set_flags, one.step_key) for one in (await hold.state_history(fork))[1:]] == [
        (("a1",), "a"),
        (("b1",), "b"),
        (("a2",), "a"),
    ]
    assert await hold.state(fork) == await hold.state(fork, at="a") == await hold.state(task, at="a")
    assert (await hold.state(fork, at="b")).risk_flags == ("a1", "b1")


async def test_a_patch_of_a_step_that_is_done_again_stays_behind(quick: Holdfast) -> None:
    """The step will apply it again."""
    task = quick.handle(await begin(quick))
    await write(quick, task.id, line("a", 1), patched(flagged("a"), step="a"))
    undone = line("b", 2)
    object.__setattr__(undone.step, "undone_at", await quick.store.now())
    await write(quick, task.id, undone, patched(flagged("b"), step="b"))
    assert (await quick.state(await quick.fork(task))).risk_flags == ("a",)


async def test_it_is_of_one_moment(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is over, with its patch, right after the look at the journal is part of neither."""
    task, load = await lived(hold), hold.store.load

    async def and_then(task_id: str, *, after: int = 0) -> Loaded:
        monkeypatch.undo()
        loaded = await load(task_id, after=after)
        await write(hold, task.id, line("c", 3), patched(flagged("c"), step="c"))
        return loaded

    before = await hold.state(task)
    monkeypatch.setattr(hold.store, "load", and_then)
    fork = await hold.fork(task)
    assert await hold.state(fork) == before
    assert [step.key for step in await hold.store.steps(fork.id)] == ["a", "b", "holdfast:fork"]
    assert (await hold.state(task)).risk_flags[-1] == "c"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_state_of_a_fork_is_the_state_after_its_last_step(lives: list[tuple[bool, int]], random: Any) -> None:  # noqa: ANN401
    """For any history of steps, over in any order, with patches of theirs and patches from outside in between."""

    async def live() -> None:
        async with Holdfast("memory://", clock=(clock := ManualClock())) as hold:
            task = hold.handle(await begin(hold))
            steps = [(f"s{number}", number + 1, patches) for number, (_, patches) in enumerate(lives)]
            outside = [number for number, (has_outside, _) in enumerate(lives) if has_outside]
            random.shuffle(steps)
            for number, (key, position, patches) in enumerate(steps):
                clock.advance(random.choice([1e-6, 1]))
                carried: list[Operation] = [patched(flagged(f"{key}-{one}"), step=key) for one in range(patches)]
                await write(hold, task.id, line(key, position, at=clock.now()), *carried)
                if number in outside:
                    clock.advance(random.choice([1e-6, 1]))
                    await hold.patch_state(
                        task, flagged(f"outside-{number}"), version=(await task.task()).version, by="alice"
                    )
            for key, _, _ in steps:
                fork = await hold.fork(task, at=key)
                assert await hold.state(fork) == await hold.state(task, at=key)
            assert await hold.state(await hold.fork(task)) == await hold.state(task)

    asyncio.run(live())
