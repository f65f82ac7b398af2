"""The journal: steps, patches, checkpoints, and everything a worker needs to continue."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.approval import Approval
from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue, NotFound
from holdfast.model.operations import (
    ApplyPatch,
    OpenApproval,
    Operation,
    Reserve,
    RotateCheckpoints,
    SaveCheckpoint,
    SetAsideCheckpoint,
    WriteEffect,
    WriteStep,
)
from holdfast.model.queries import Loaded
from holdfast.model.records import Account, Checkpoint, PatchRecord, Reservation
from holdfast.model.step import Step, StepState
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    apply_outside,
    claimed_by,
    move,
    outside,
    running_task,
    send,
    step,
    stored,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase


def checkpoint(number: int, **options: Any) -> Checkpoint:  # noqa: ANN401 - the fields of Checkpoint
    """Describe a checkpoint."""
    given: dict[str, Any] = {"position": number, "version": 0, "body": b"{}", "checksum": "sum"} | options
    return Checkpoint(number=number, **given)


def patch(body: bytes = b"{}") -> ApplyPatch:
    """Describe a patch."""
    return ApplyPatch(body=body, author="alice", reason="because")


class StepsContract(ContractBase):
    """Steps, written under (round, key)."""

    async def test_the_last_line_of_each_journal_comes_without_its_payloads(self, store: StateStore) -> None:
        """By position, not by the order of writing; a task without lines is left out."""
        one = await running_task(store, "one")
        await one.apply(WriteStep(step("b", 2, output=b'"large"', round=1)), WriteStep(step("a", 1)))
        two = await running_task(store, "two", "another worker")
        await two.apply(WriteStep(step("a", 7, kind="tool", effect_id="effect", round=2)))
        await submit_one(store, "three")
        assert await store.last_steps(["one", "two", "three", "stranger"]) == {
            "one": replace((await store.steps("one"))[-1], output=None),
            "two": (await store.steps("two"))[0],
        }
        assert await store.last_steps([]) == {}

    async def test_one_line_of_a_journal_is_found_by_its_key_and_round(self, store: StateStore) -> None:
        """With its payloads; None for another key, another round, another task."""
        one = await running_task(store, "one")
        await one.apply(WriteStep(step("a", 1, output=b'"first"', round=1)), WriteStep(step("b", 2, round=1)))
        await one.apply(WriteStep(step("a", 10_001, output=b'"second"', round=2)))
        await submit_one(store, "two")
        journal = {(line.round, line.key): line for line in await store.steps("one")}
        assert len(journal) == 3
        for (of_round, key), line in journal.items():
            assert await store.step("one", key, of_round=of_round) == line
        assert await store.step("one", "b", of_round=2) is None
        assert await store.step("one", "A", of_round=1) is None
        assert await store.step("two", "a", of_round=1) is None
        assert await store.step("stranger", "a", of_round=1) is None

    async def test_a_step_is_stored_as_it_was_written(self, store: StateStore, clock: ManualClock) -> None:
        """Every field."""
        now = clock.now()
        written = Step(
            key="collect#2",
            kind="tool",
            position=17,
            state=StepState.FAILED,
            round=3,
            attempts=4,
            fence=5,
            digest="abc",
            output=b'{"\\u0000":1}',
            error=b"",
            effect_id="effect",
            started_at=now,
            finished_at=now + timedelta(microseconds=1),
            retry_at=now + timedelta(days=1),
            undone_at=now + timedelta(days=2),
        )
        attempt = await running_task(store)
        await attempt.apply(WriteStep(written))
        assert await store.steps("task") == [written]

    async def test_nothing_is_filled_in(self, store: StateStore) -> None:
        """Fields that were not given stay empty."""
        written = Step(key="k", kind="step", position=1, state=StepState.PENDING)
        attempt = await running_task(store)
        await attempt.apply(WriteStep(written))
        assert await store.steps("task") == [written]

    async def test_a_step_becomes_exactly_what_was_written_last(self, store: StateStore) -> None:
        """Begun and finished: one row, and nothing of the earlier row is left."""
        attempt = await running_task(store)
        await attempt.apply(WriteStep(step(state=StepState.RUNNING, digest="d", effect_id="e")))
        finished = step(output=b"1")
        await attempt.apply(WriteStep(finished))
        assert await store.steps("task") == [finished]

    async def test_one_commit_may_write_a_step_twice(self, store: StateStore) -> None:
        """The last one counts."""
        attempt = await running_task(store)
        await attempt.apply(WriteStep(step(state=StepState.RUNNING)), WriteStep(step(output=b"1")))
        assert await store.steps("task") == [step(output=b"1")]

    async def test_steps_are_listed_by_position(self, store: StateStore) -> None:
        """Not by key, and not by when they were written."""
        attempt = await running_task(store)
        await attempt.apply(*(WriteStep(step(key, position)) for key, position in (("b", 2), ("a", 10), ("c", 1))))
        assert [found.key for found in await store.steps("task")] == ["c", "b", "a"]

    async def test_a_key_may_return_in_another_round(self, store: StateStore) -> None:
        """As a separate step."""
        attempt = await running_task(store)
        await attempt.apply(WriteStep(step(round=1, position=1)), WriteStep(step(round=2, position=2)))
        assert [found.round for found in await store.steps("task")] == [1, 2]

    async def test_the_steps_of_tasks_are_apart(self, store: StateStore) -> None:
        """The same key in two tasks; no steps for a task that does not exist."""
        for task_id in ("a", "b"):
            await submit_one(store, task_id)
            await apply_outside(store, task_id, WriteStep(step(output=task_id.encode())))
        assert await store.steps("a") == [step(output=b"a")]
        assert await store.steps("missing") == []

    @pytest.mark.parametrize("bad", ["", "a\x00", "x" * 2001])
    async def test_step_keys_no_store_could_hold_are_refused(self, bad: str) -> None:
        """Before they reach any store."""
        with pytest.raises(InvalidValue):
            step(bad)


class PatchesContract(ContractBase):
    """Patches: the versions of a task's AgentState."""

    async def test_patches_are_numbered_by_version(self, store: StateStore, clock: ManualClock) -> None:
        """Also several in one Commit."""
        attempt = await running_task(store)
        first = clock.now()
        await attempt.apply(patch(b"1"), patch(b"2"))
        clock.advance(1)
        verdict = await attempt.apply(patch(b"3"))
        assert verdict.version == 3
        assert (await stored(store)).version == 3
        assert await store.patches("task") == [
            PatchRecord(version=1, body=b"1", author="alice", reason="because", at=first),
            PatchRecord(version=2, body=b"2", author="alice", reason="because", at=first),
            PatchRecord(version=3, body=b"3", author="alice", reason="because", at=clock.now()),
        ]

    async def test_a_patch_remembers_the_step_that_carried_it(self, store: StateStore, clock: ManualClock) -> None:
        """Read alone and loaded with the task; None is a patch from outside."""
        attempt = await running_task(store)
        carried = ApplyPatch(body=b"1", author="observer", step_key="look#2")
        await attempt.apply(carried, patch(b"2"), WriteStep(step("look#2")))
        expected = [
            PatchRecord(version=1, body=b"1", author="observer", reason="", at=clock.now(), step_key="look#2"),
            PatchRecord(version=2, body=b"2", author="alice", reason="because", at=clock.now(), step_key=None),
        ]
        assert await store.patches("task") == expected
        assert list((await store.load("task")).patches) == expected

    async def test_a_patch_remembers_the_round_of_its_step(self, store: StateStore) -> None:
        """The round it was applied in: a Commit that opens a new round still belongs to the old one."""
        attempt = await running_task(store)
        await attempt.apply(patch(b"1"), move(TaskState.REVIEW))
        await attempt.apply(patch(b"2"), move(TaskState.PENDING, new_round=True))
        await apply_outside(store, "task", patch(b"3"))
        assert [record.round for record in await store.patches("task")] == [1, 1, 2]

    async def test_a_copied_patch_names_its_round(self, store: StateStore) -> None:
        """In any round of the task."""
        await submit_one(store, round=3)
        await apply_outside(store, "task", replace(patch(b"1"), round=2), patch(b"2"))
        assert [record.round for record in await store.patches("task")] == [2, 3]

    async def test_patches_are_read_after_a_version(self, store: StateStore) -> None:
        """Versions that the reader already has are left out."""
        await submit_one(store)
        await apply_outside(store, "task", patch(b"1"), patch(b"2"), patch(b"3"))
        assert [record.version for record in await store.patches("task", after=1)] == [2, 3]
        assert await store.patches("task", after=3) == []
        assert await store.patches("missing") == []

    async def test_an_outside_patch_names_the_version_it_was_made_for(self, store: StateStore) -> None:
        """Compare and set: of two patches, the second is refused."""
        await submit_one(store)
        assert (await send(store, outside("task", patch(b"mine"), version=0))).applied
        late = await send(store, outside("task", patch(b"theirs"), version=0))
        assert (late.refusal, late.version) == (Refusal.CONFLICT, 1)
        assert [record.body for record in await store.patches("task")] == [b"mine"]


class CheckpointsContract(ContractBase):
    """Checkpoints: cached folds, kept and rotated."""

    async def test_a_checkpoint_is_stored_as_it_was_saved(self, store: StateStore, clock: ManualClock) -> None:
        """Every field; its date is now unless it has one."""
        earlier = clock.now() - timedelta(days=1)
        dated = checkpoint(
            7, position=3, version=2, body=b"\x00\xff", checksum="c", schema=4, created_at=earlier, damaged="why"
        )
        await submit_one(store)
        await apply_outside(store, "task", SaveCheckpoint(dated), SaveCheckpoint(checkpoint(2)))
        assert await store.checkpoints("task") == [replace(checkpoint(2), created_at=clock.now()), dated]
        assert await store.checkpoints("missing") == []

    async def test_the_same_number_again_replaces(self, store: StateStore, clock: ManualClock) -> None:
        """All of it."""
        await submit_one(store)
        await apply_outside(store, "task", SaveCheckpoint(checkpoint(1, damaged="broken", body=b"old")))
        clock.advance(1)
        await apply_outside(store, "task", SaveCheckpoint(checkpoint(1, body=b"new")))
        assert await store.checkpoints("task") == [checkpoint(1, body=b"new", created_at=clock.now())]

    async def test_rotation_deletes_what_is_both_old_and_surplus(self, store: StateStore, clock: ManualClock) -> None:
        """Neither age nor number alone is enough."""
        await submit_one(store)
        for number in (1, 2, 3, 4):
            await apply_outside(store, "task", SaveCheckpoint(checkpoint(number)))
            clock.advance(10)
        third = clock.now() - timedelta(seconds=20)
        await apply_outside(store, "task", RotateCheckpoints(keep=1, before=third))
        assert [found.number for found in await store.checkpoints("task")] == [3, 4]
        await apply_outside(store, "task", RotateCheckpoints(keep=2, before=clock.now()))
        assert [found.number for found in await store.checkpoints("task")] == [3, 4]
        await apply_outside(store, "task", RotateCheckpoints(keep=0, before=clock.now()))
        assert await store.checkpoints("task") == []

    async def test_rotation_leaves_other_tasks_alone(self, store: StateStore, clock: ManualClock) -> None:
        """It applies only to the Commit's task."""
        for task_id in ("a", "b"):
            await submit_one(store, task_id)
            await apply_outside(store, task_id, SaveCheckpoint(checkpoint(1)))
        clock.advance(1)
        await apply_outside(store, "a", RotateCheckpoints(keep=0, before=clock.now()))
        assert len(await store.checkpoints("b")) == 1

    async def test_a_damaged_checkpoint_is_set_aside(self, store: StateStore) -> None:
        """Kept for inspection, never resumed from."""
        await submit_one(store)
        await apply_outside(store, "task", SaveCheckpoint(checkpoint(1)), SaveCheckpoint(checkpoint(2)))
        await apply_outside(store, "task", SetAsideCheckpoint(number=2, why="bad checksum"))
        assert [found.damaged for found in await store.checkpoints("task")] == [None, "bad checksum"]
        loaded = (await store.load("task")).checkpoint
        assert loaded is not None
        assert loaded.number == 1

    async def test_setting_aside_what_is_not_there_is_fine(self, store: StateStore) -> None:
        """A rotation may have deleted it meanwhile."""
        await submit_one(store)
        await apply_outside(store, "task", SetAsideCheckpoint(number=9, why="bad checksum"))
        assert await store.checkpoints("task") == []


class LoadContract(ContractBase):
    """load: a task with everything a worker needs, read at one moment."""

    async def test_a_missing_task_is_not_loaded(self, store: StateStore) -> None:
        """There is nothing to continue."""
        with pytest.raises(NotFound):
            await store.load("missing")

    async def test_a_fresh_task_has_nothing_yet(self, store: StateStore) -> None:
        """Only the task itself."""
        task = await submit_one(store)
        assert await store.load("task") == Loaded(
            task=task,
            steps=(),
            effects=(),
            patches=(),
            checkpoint=None,
            approvals=(),
            accounts=(),
            reservations=(),
        )

    async def test_everything_comes_in_one_answer(self, store: StateStore, clock: ManualClock) -> None:
        """Each part in its order."""
        now = clock.now()
        effect = Effect(effect_id="e", step_key="s", effect_class=EffectClass.PURE, state=EffectState.ARMED)
        approval = Approval(task_id="task", question="?", step_key="s", id="ask")
        attempt = await running_task(store, budget={"tokens": 9}, user_input={"a": [1]})
        await attempt.apply(
            WriteStep(step("b", 2)),
            WriteStep(step("a", 1)),
            WriteEffect(effect),
            patch(b"1"),
            SaveCheckpoint(checkpoint(1, version=1)),
            patch(b"2"),
            OpenApproval(approval),
            Reserve(account="task", step_key="s", amounts={"tokens": 3}),
        )
        assert await store.load("task") == Loaded(
            task=await stored(store),
            steps=(step("a", 1), step("b", 2)),
            effects=(replace(effect, task_id="task", updated_at=now),),
            patches=(PatchRecord(version=2, body=b"2", author="alice", reason="because", at=now),),
            checkpoint=checkpoint(1, version=1, created_at=now),
            approvals=(replace(approval, created_at=now),),
            accounts=(Account(account="task", meter="tokens", limit=9, spent=0, reserved=3),),
            reservations=(Reservation(account="task", meter="tokens", step_key="s", fence=1, amount=3),),
        )

    async def test_only_what_comes_after_the_checkpoint(self, store: StateStore) -> None:
        """The journal's tail: steps after a position, patches after the checkpoint's version."""
        attempt = await running_task(store)
        await attempt.apply(*(WriteStep(step(f"step-{position}", position)) for position in (1, 2, 3)))
        loaded = await store.load("task", after=2)
        assert [found.position for found in loaded.steps] == [3]

    async def test_earlier_rounds_bring_only_their_effects(self, store: StateStore) -> None:
        """Steps run again in a new round, except those that did something to the world."""
        attempt = await running_task(store, queue="default")
        await attempt.apply(
            WriteStep(step("plain", 1)),
            WriteStep(step("deployed", 2, effect_id="e")),
            move(TaskState.PENDING, new_round=True),
        )
        second = await claimed_by(store, "worker", 2)
        await second.apply(WriteStep(step("plain", 3, round=2)), WriteStep(step("more", 4, round=2)))
        loaded = await store.load("task", after=3)
        assert [(found.round, found.key) for found in loaded.steps] == [(1, "deployed"), (2, "more")]
        assert len(await store.steps("task")) == 4

    async def test_every_effect_and_approval_of_all_rounds(self, store: StateStore) -> None:
        """For any number: an undo that misses one leaves it in the world."""
        names = [f"{number:03}" for number in range(300)]
        attempt = await running_task(store, queue="default")
        for number in (1, 2, 3):
            written: list[Operation] = []
            for name in names[100 * (number - 1) : 100 * number]:
                done = Effect(
                    effect_id=name, step_key=name, effect_class=EffectClass.ONCE, state=EffectState.DONE, round=number
                )
                written += [
                    WriteEffect(done),
                    OpenApproval(Approval(task_id="task", question="?", step_key=name, id=name)),
                ]
            await attempt.apply(*written, move(TaskState.PENDING, new_round=True))
            attempt = await claimed_by(store, "worker", number + 1)
        loaded = await store.load("task", after=1000)
        assert loaded.task.round == 4
        assert [(found.effect_id, found.round) for found in loaded.effects] == [
            (name, number // 100 + 1) for number, name in enumerate(names)
        ]
        assert [found.id for found in loaded.approvals] == names

    async def test_the_newest_undamaged_checkpoint_counts(self, store: StateStore) -> None:
        """Its patches are those after its own version."""
        await submit_one(store)
        await apply_outside(
            store,
            "task",
            patch(b"1"),
            SaveCheckpoint(checkpoint(1, version=1)),
            patch(b"2"),
            SaveCheckpoint(checkpoint(2, version=2, damaged="broken")),
            patch(b"3"),
        )
        loaded = await store.load("task")
        assert loaded.checkpoint is not None
        assert (loaded.checkpoint.number, [record.version for record in loaded.patches]) == (1, [2, 3])

    async def test_nothing_of_other_tasks(self, store: StateStore) -> None:
        """Even if they are very similar."""
        for task_id in ("a", "b"):
            attempt = await running_task(store, task_id, f"worker of {task_id}")
            approval = Approval(task_id=task_id, question="?", step_key="s", id=f"ask {task_id}")
            await attempt.apply(
                WriteStep(step()),
                patch(),
                SaveCheckpoint(checkpoint(1)),
                OpenApproval(approval),
                Reserve(account="a", step_key="s", amounts={"tokens": 3}),
            )
        loaded = await store.load("b")
        assert [approval.id for approval in loaded.approvals] == ["ask b"]
        assert loaded.accounts == ()
        assert len(loaded.steps) == len(loaded.patches) == len(loaded.reservations) == 1
