"""CheckpointManager: saves by its strategy, rotates, and does not lose a race against a concurrent patch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import CheckpointManager, Conflict, Holdfast, ManualClock, NotFound, StateConflict, TaskState
from holdfast.model.commit import Commit
from holdfast.model.operations import SaveCheckpoint
from tests.agent.checkpoints.support import assert_exact
from tests.engine.manage.state.support import begin, flagged, line, write
from tests.engine.support import Watched
from tests.ready_schema import new_file


async def test_it_saves_by_its_own_strategy_only(either: Holdfast) -> None:
    task_id = await begin(either)
    await write(either, task_id, line("look", 7))
    manager = CheckpointManager(either.store, "every_iteration")
    assert await manager.maybe_save(task_id, "every_step") is None
    assert await manager.maybe_save(task_id, "on_state_change") is None
    made = await manager.maybe_save(task_id, "every_iteration")
    assert made is not None
    assert (made.number, made.version, made.position) == (1, 1, 7)
    assert_exact(await either.store.checkpoints(task_id), await either.store.patches(task_id))
    with pytest.raises(ValueError, match="sometimes"):
        await manager.maybe_save(task_id, "sometimes")


async def test_a_task_without_a_state_cannot_be_saved(hold: Holdfast) -> None:
    manager = CheckpointManager(hold.store)
    with pytest.raises(NotFound):
        await manager.maybe_save("unknown", "every_step")
    with pytest.raises(NotFound):
        await manager.validate_and_resume("unknown")

    @hold.task
    async def plain(ctx: object) -> None: ...

    task = await hold.submit(plain)
    with pytest.raises(Conflict, match="has no AgentState"):
        await manager.maybe_save(task.id, "every_step")


async def test_a_patch_in_between_makes_it_look_again(database_url: str, watch: Callable[[], list[Watched]]) -> None:
    watches = watch()
    async with Holdfast(database_url) as hold:
        task_id = await begin(hold)
        disturbed: list[int] = []

        async def before(commits: Sequence[Commit]) -> None:
            saving = [one for commit in commits for one in commit.operations if isinstance(one, SaveCheckpoint)]
            if saving and len(disturbed) < 3:
                disturbed.append(saving[0].checkpoint.version)
                await hold.patch_state(task_id, flagged(f"f{len(disturbed)}"), version=len(disturbed), by="ann")

        watches[-1].before_commit = before
        made = await CheckpointManager(hold.store).maybe_save(task_id, "every_step")
        assert disturbed == [1, 2, 3]
        assert made is not None
        assert (made.number, made.version) == (1, 4)
        assert_exact(await hold.store.checkpoints(task_id), await hold.store.patches(task_id))


async def test_it_gives_up_on_a_state_that_never_rests(tmp_path_url: str, watch: Callable[[], list[Watched]]) -> None:
    watches = watch()
    async with Holdfast(tmp_path_url) as hold:
        task_id = await begin(hold)
        tries: list[int] = []

        async def before(commits: Sequence[Commit]) -> None:
            if any(isinstance(one, SaveCheckpoint) for commit in commits for one in commit.operations):
                tries.append(1)
                await hold.patch_state(task_id, flagged(f"f{len(tries)}"), version=len(tries), by="ann")

        watches[-1].before_commit = before
        with pytest.raises(Conflict, match="changes faster than it can be saved"):
            await CheckpointManager(hold.store).maybe_save(task_id, "every_step")
        assert len(tries) == 10
        assert await hold.store.checkpoints(task_id) == []


@pytest.fixture
def tmp_path_url(tmp_path: Path) -> str:
    return f"sqlite:///{new_file(tmp_path / 'hold.db')}"


async def test_saving_and_patching_at_the_same_time_keeps_every_checkpoint_exact(either: Holdfast) -> None:
    task_id = await begin(either)
    manager = CheckpointManager(either.store)

    async def patch(name: str) -> int:
        lost = 0
        for number in range(10):
            while True:
                task = await either.store.get(task_id)
                assert task is not None
                try:
                    await either.patch_state(task_id, flagged(f"{name}{number}"), version=task.version, by="ann")
                    break
                except StateConflict:
                    lost += 1
        return lost

    async def save() -> None:
        for _ in range(10):
            try:
                await manager.maybe_save(task_id, "every_step")
            except Conflict:
                continue

    await asyncio.gather(patch("a"), patch("b"), save(), save())
    saved = await either.store.checkpoints(task_id)
    assert len({one.number for one in saved}) == len(saved) > 1
    patches = await either.store.patches(task_id)
    assert_exact(saved, patches)
    flags = (await either.state(task_id)).risk_flags
    assert sorted(flags) == sorted(f"{name}{number}" for name in "ab" for number in range(10))


async def test_cleanup_deletes_what_is_too_many_and_too_old() -> None:
    clock = ManualClock()
    async with Holdfast("memory://", clock=clock) as hold:
        task_id = await begin(hold)
        generous = CheckpointManager(hold.store, max_count=100)
        for version in range(1, 6):
            await generous.maybe_save(task_id, "every_step")
            await hold.patch_state(task_id, flagged(f"f{version}"), version=version, by="ann")
            clock.advance(3_600)
        manager = CheckpointManager(hold.store, max_age=timedelta(hours=3, minutes=30), max_count=2)
        # They are 5, 4, 3, 2 and 1 hours old: two are too old, and not among the newest two.
        assert await manager.cleanup(task_id) == 2
        assert [one.number for one in await hold.store.checkpoints(task_id)] == [3, 4, 5]
        assert await manager.cleanup(task_id) == 0
        clock.advance(24 * 3_600)
        assert await manager.cleanup(task_id) == 1
        assert [one.number for one in await hold.store.checkpoints(task_id)] == [4, 5]
        made = await manager.maybe_save(task_id, "every_step")
        assert made is not None
        # Rotated in the same Commit; a number is never given twice.
        assert [one.number for one in await hold.store.checkpoints(task_id)] == [5, 6]


async def test_what_it_says_about_a_task_that_is_not_failed(hold: Holdfast) -> None:
    task_id = await begin(hold)
    manager = CheckpointManager(hold.store)
    found = await manager.validate_and_resume(task_id)
    assert found.task.state is TaskState.PENDING
    assert found.checkpoint is None
    assert found.state.plan == ("look", "mend")
    await hold.cancel(task_id)
    with pytest.raises(Conflict, match="was cancelled, which is final"):
        await manager.validate_and_resume(task_id)


async def test_a_failed_task_past_its_deadline_is_resumed_with_a_new_one_only(
    still: Holdfast, clock: ManualClock
) -> None:
    task_id = await begin(still, deadline=clock.now() + timedelta(seconds=10))
    clock.advance(10)
    assert (await still.store.sweep()).failed == (task_id,)
    manager, before = CheckpointManager(still.store), await still.store.get(task_id)
    with pytest.raises(Conflict, match="give it a new deadline"):
        await manager.validate_and_resume(task_id)
    assert await still.store.get(task_id) == before
    resumed = await manager.validate_and_resume(task_id, deadline=60)
    assert resumed.task.state is TaskState.PENDING
    assert resumed.task.deadline == clock.now() + timedelta(seconds=60)
