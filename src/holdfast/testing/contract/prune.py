"""prune: tasks that ended long ago are deleted, with everything that belongs to them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model.approval import Approval
from holdfast.model.clock import ManualClock
from holdfast.model.effect import Effect, EffectClass, EffectState, Evidence
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import (
    ApplyPatch,
    LinkArtifact,
    OpenApproval,
    Reserve,
    SaveCheckpoint,
    SetLimits,
    Settle,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.queries import Pruned
from holdfast.model.records import ArtifactLink, Checkpoint
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    apply_outside,
    claim,
    enter,
    move,
    new_task,
    running_task,
    step,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import all_tasks

DAY = timedelta(days=1)
NOTHING = Pruned(tasks=0, events=0, artifacts=0, more=False)

WAYS = {
    EffectState.ARMED: (EffectState.ARMED,),
    EffectState.IN_DOUBT: (EffectState.ARMED, EffectState.IN_DOUBT),
    EffectState.NEEDS_HUMAN: (EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN),
    EffectState.INTENDED: (EffectState.INTENDED,),
    EffectState.DONE: (EffectState.DONE,),
    EffectState.FAILED: (EffectState.ARMED, EffectState.FAILED),
    EffectState.COMPENSATING: (EffectState.DONE, EffectState.COMPENSATING),
    EffectState.COMPENSATED: (EffectState.DONE, EffectState.COMPENSATING, EffectState.COMPENSATED),
    EffectState.ABANDONED: (EffectState.INTENDED, EffectState.ABANDONED),
}
"""How an effect gets into each state; the first three are doubts."""
DOUBTS = tuple(WAYS)[:3]


def _effect(state: EffectState, effect_id: str = "e") -> Effect:
    return Effect(effect_id=effect_id, step_key="s", effect_class=EffectClass.ONCE, state=state)


class PruneContract(ContractBase):
    """Deleting what is old."""

    async def test_ended_tasks_go_when_they_are_old_enough(self, store: StateStore, clock: ManualClock) -> None:
        """Counted from the exact moment of their end."""
        await submit_one(store)
        clock.advance(DAY)
        await apply_outside(store, "task", CANCEL)
        clock.advance(DAY)
        assert await store.prune(DAY) == NOTHING
        clock.advance(timedelta(microseconds=1))
        assert await store.prune(DAY) == Pruned(tasks=1, events=0, artifacts=0, more=False)
        assert await store.get("task") is None

    async def test_open_tasks_stay(self, store: StateStore, clock: ManualClock) -> None:
        """At any age."""
        for state in (TaskState.PENDING, TaskState.RUNNING, TaskState.WAITING, TaskState.REVIEW):
            await submit_one(store, state, state=state)
        clock.advance(365 * DAY)
        assert await store.prune(DAY) == NOTHING

    async def test_a_task_goes_with_all_its_rows(self, store: StateStore, clock: ManualClock) -> None:
        """Nothing with its id is left."""
        effect = _effect(EffectState.DONE)
        attempt = await running_task(store, budget={"tokens": 3}, key="k")
        await attempt.apply(
            WriteStep(step()),
            WriteEffect(effect),
            ApplyPatch(body=b"{}", author="a"),
            SaveCheckpoint(Checkpoint(number=1, position=1, version=1, body=b"", checksum="")),
            OpenApproval(Approval(task_id="task", question="?", step_key="s", id="ask")),
            LinkArtifact(ArtifactLink(artifact_id="a", name="n", type="t", summary="", bytes=0)),
            move(TaskState.COMPLETED, result="done"),
        )
        await store.add_evidence(Evidence(task_id="task", effect_id="e", fence=1, body=b"1"))
        clock.advance(2 * DAY)
        assert (await store.prune(DAY)).tasks == 1
        assert await all_tasks(store) == []
        assert await store.history("task") == []
        assert await store.steps("task") == []
        assert await store.effects() == []
        assert await store.evidence("task", "e") == []
        assert await store.patches("task") == []
        assert await store.checkpoints("task") == []
        assert await store.approvals() == []
        assert await store.accounts("task") == []
        assert await store.artifact_links("task") == []

    async def test_a_pruned_id_and_key_are_free_again(self, store: StateStore, clock: ManualClock) -> None:
        """And a task submitted under them starts from the beginning."""
        await submit_one(store, key="k", user_input="old")
        await apply_outside(store, "task", WriteOutcome(result="old"), CANCEL)
        clock.advance(2 * DAY)
        await store.prune(DAY)
        [answer] = await store.submit([new_task(key="k", user_input="new")])
        assert answer.created
        again = await store.load("task")
        assert (again.task.revision, again.task.result, again.steps, again.patches) == (1, None, (), ())

    async def test_children_go_only_with_their_parent(self, store: StateStore, clock: ManualClock) -> None:
        """The parent may restart them. A task whose parent is gone, or never existed, is deleted alone."""
        await submit_one(store, "parent")
        await submit_one(store, "child", parent_id="parent", state=TaskState.COMPLETED)
        await submit_one(store, "orphan", parent_id="missing", state=TaskState.COMPLETED)
        clock.advance(2 * DAY)
        assert (await store.prune(DAY)).tasks == 1
        assert await store.get("orphan") is None
        await apply_outside(store, "parent", move(TaskState.FAILED))
        clock.advance(DAY)
        assert await store.prune(DAY) == NOTHING
        clock.advance(1)
        assert (await store.prune(DAY)).tasks == 2
        assert await all_tasks(store) == []

    async def test_a_tree_goes_whole_or_stays_whole(self, store: StateStore, clock: ManualClock) -> None:
        """If one task in it is open, ended too late, or has a reservation on its account, all stay."""
        attempt = await running_task(store, "spender")
        for tree in ("a", "b", "c", "d"):
            await submit_one(store, tree, state=TaskState.COMPLETED)
            for below, above in ((f"{tree}1", tree), (f"{tree}2", tree), (f"{tree}11", f"{tree}1")):
                ended = below not in {"b11", "c2"}
                state = TaskState.COMPLETED if ended else TaskState.PENDING
                await submit_one(store, below, parent_id=above, state=state, budget={"tokens": 5})
        await attempt.apply(Reserve(account="d2", step_key="s", amounts={"tokens": 1}))
        clock.advance(2 * DAY)
        await apply_outside(store, "c2", CANCEL)
        assert (await store.prune(DAY)).tasks == 4
        left = {task.id for task in await all_tasks(store)}
        assert left == {"spender", *(tree + below for tree in "bcd" for below in ("", "1", "2", "11"))}
        await apply_outside(store, "b11", CANCEL)
        await attempt.apply(Settle(account="d2", step_key="s", amounts={}))
        clock.advance(2 * DAY)
        assert (await store.prune(DAY)).tasks == 12

    async def test_a_tree_stays_while_an_effect_in_it_is_in_doubt(self, store: StateStore, clock: ManualClock) -> None:
        """All of it, until a person has decided: an open doubt outlives its task. Other effects keep nothing."""
        for state, way in WAYS.items():
            await submit_one(store, f"{state} root", state=TaskState.COMPLETED)
            await submit_one(store, f"{state} leaf", parent_id=f"{state} task", state=TaskState.COMPLETED)
            attempt = await running_task(store, f"{state} task", f"worker {state}", parent_id=f"{state} root")
            await attempt.apply(*(WriteEffect(_effect(one)) for one in way), move(TaskState.COMPLETED))
        clock.advance(2 * DAY)
        assert (await store.prune(DAY)).tasks == 3 * (len(WAYS) - len(DOUBTS))
        left = {task.id for task in await all_tasks(store)}
        assert left == {f"{state} {place}" for state in DOUBTS for place in ("root", "task", "leaf")}
        for state in DOUBTS:
            assert await store.prune(DAY) == NOTHING
            await apply_outside(store, f"{state} task", WriteEffect(_effect(EffectState.DONE)))
            assert (await store.prune(DAY)).tasks == 3, "its end counts, and not the decision"
        assert await all_tasks(store) == []

    async def test_a_large_tree_goes_from_its_root_downwards(self, store: StateStore, clock: ManualClock) -> None:
        """In bounded batches: no kept parent misses a child, and the rest is deleted in the next batch."""
        await submit_one(store, "root", state=TaskState.COMPLETED)
        for child in ("x", "y"):
            await submit_one(store, child, parent_id="root", state=TaskState.COMPLETED)
            await submit_one(store, f"{child}1", parent_id=child, state=TaskState.COMPLETED)
        clock.advance(2 * DAY)
        assert await store.prune(DAY, limit=2) == Pruned(tasks=2, events=0, artifacts=0, more=True)
        assert {task.id for task in await all_tasks(store)} == {"x1", "y", "y1"}
        assert await store.prune(DAY, limit=2) == Pruned(tasks=2, events=0, artifacts=0, more=True)
        assert {task.id for task in await all_tasks(store)} == {"y1"}
        assert await store.prune(DAY, limit=2) == Pruned(tasks=1, events=0, artifacts=0, more=False)

    async def test_a_parent_stays_while_its_children_are_open(self, store: StateStore, clock: ManualClock) -> None:
        """They spend under its limits."""
        await submit_one(store, "parent", budget={"tokens": 10})
        await submit_one(store, "child", parent_id="parent")
        await apply_outside(store, "parent", CANCEL)
        clock.advance(100)
        assert (await store.prune(timedelta(seconds=1))).tasks == 0
        await apply_outside(store, "child", CANCEL)
        clock.advance(100)
        assert (await store.prune(timedelta(seconds=1))).tasks == 2

    async def test_a_task_stays_while_its_account_is_reserved_on(self, store: StateStore, clock: ManualClock) -> None:
        """Otherwise the limit would be gone when the reservation is settled."""
        await submit_one(store, "payer", budget={"tokens": 10})
        attempt = await running_task(store, "spender")
        await attempt.apply(Reserve(account="payer", step_key="call", amounts={"tokens": 4}))
        await apply_outside(store, "payer", CANCEL)
        clock.advance(20)
        assert (await store.prune(timedelta(seconds=1))).tasks == 0
        await attempt.apply(Settle(account="payer", step_key="call", amounts={"tokens": 4}))
        assert (await store.prune(timedelta(seconds=1))).tasks == 1

    async def test_an_artifact_stored_again_is_wanted_again(self, store: StateStore, clock: ManualClock) -> None:
        """A caller that just stored it may rely on it."""
        artifact = await store.put_artifact(b"hello")
        clock.advance(100)
        await store.put_artifact(b"hello")
        assert (await store.prune(timedelta(seconds=50))).artifacts == 0
        assert await store.read_artifact(artifact.id) == b"hello"

    async def test_an_age_in_the_future_is_refused(self, store: StateStore) -> None:
        """It would delete things that were just made."""
        with pytest.raises(InvalidValue, match="older_than"):
            await store.prune(timedelta(seconds=-1))

    async def test_the_oldest_go_first_and_in_batches(self, store: StateStore, clock: ManualClock) -> None:
        """By when they ended."""
        for task_id in ("c", "a", "b"):
            await submit_one(store, task_id, state=TaskState.FAILED)
            clock.advance(1)
        clock.advance(2 * DAY)
        assert await store.prune(DAY, limit=2) == Pruned(tasks=2, events=0, artifacts=0, more=True)
        assert [task.id for task in await all_tasks(store)] == ["b"]
        assert await store.prune(DAY, limit=2) == Pruned(tasks=1, events=0, artifacts=0, more=False)

    async def test_old_events_go_and_numbers_go_on(self, store: StateStore, clock: ManualClock) -> None:
        """A reader that remembers a number never finds another event under it."""
        await store.emit("news", 1, key="k")
        clock.advance(2 * DAY)
        kept = await store.emit("news", 2)
        assert await store.prune(DAY) == Pruned(tasks=0, events=1, artifacts=0, more=False)
        assert await store.events("news") == [kept]
        clock.advance(2 * DAY)
        await store.prune(DAY)
        assert (await store.emit("news", 3, key="k")).number == 3

    async def test_events_of_a_task_stay_until_it_has_ended(self, store: StateStore, clock: ManualClock) -> None:
        """Its own channels are named ``<word>:<its id>``. No other channel with its id in the name is kept."""
        states = (TaskState.PENDING, TaskState.RUNNING, TaskState.WAITING, TaskState.REVIEW)
        own = []
        for state in states:
            await submit_one(store, f"x:{state}", state=state)  # an id may contain a colon too
            own += [f"inbox:x:{state}", f"task:x:{state}"]
        await submit_one(store, "ended", state=TaskState.COMPLETED)
        await submit_one(store, "open")
        others = ["open", "open:", "open:1", "inbox:open:1", "inboxopen", "inbox:ended", "inbox:nowhere", "inbox:", ":"]
        for channel in (*own, *others):
            await store.emit(channel, 1)
        clock.advance(2 * DAY)
        assert await store.prune(3 * DAY) == NOTHING
        # The kept events are the oldest, and take no place in a batch.
        assert await store.prune(DAY, limit=5) == Pruned(tasks=1, events=5, artifacts=0, more=True)
        assert await store.prune(DAY, limit=5) == Pruned(tasks=0, events=4, artifacts=0, more=False)
        assert [len(await store.events(channel)) for channel in own] == [1] * len(own)
        for state in states:
            await apply_outside(store, f"x:{state}", CANCEL)
        assert (await store.prune(DAY)).events == len(own), "as old as they are, however young the end"

    async def test_events_of_an_effect_stay_as_long_as_it(self, store: StateStore, clock: ManualClock) -> None:
        """Of an open or an ended task; they are deleted with the effect."""
        attempt = await running_task(store)
        await attempt.apply(WriteEffect(_effect(EffectState.DONE, "a:b")), move(TaskState.COMPLETED))
        for channel in ("taken:a:b", "taken:b", "a:b"):
            await store.emit(channel, 1, key="taken")
        clock.advance(DAY)
        assert await store.prune(timedelta(hours=36)) == NOTHING
        clock.advance(DAY)
        await submit_one(store, "other", state=TaskState.COMPLETED)
        await submit_one(store, "child of it", parent_id="task", state=TaskState.COMPLETED)
        assert await store.prune(DAY) == Pruned(tasks=0, events=2, artifacts=0, more=False)
        assert len(await store.events("taken:a:b")) == 1
        clock.advance(2 * DAY)
        assert await store.prune(DAY) == Pruned(tasks=3, events=1, artifacts=0, more=False)

    async def test_old_unused_artifacts_go(self, store: StateStore, clock: ManualClock) -> None:
        """A link from any task keeps them; they are deleted with the last such task."""
        used, unused = await store.put_artifact(b"used"), await store.put_artifact(b"unused")
        link = ArtifactLink(artifact_id=used.id, name="n", type="t", summary="", bytes=4)
        await submit_one(store)
        await apply_outside(store, "task", LinkArtifact(link))
        clock.advance(2 * DAY)
        young = await store.put_artifact(b"young")
        assert await store.prune(DAY) == Pruned(tasks=0, events=0, artifacts=1, more=False)
        assert await store.artifact(unused.id) is None
        assert await store.read_artifact(used.id) == b"used"
        await apply_outside(store, "task", CANCEL)
        clock.advance(timedelta(hours=23))
        assert (await store.prune(timedelta(hours=22))).artifacts == 2
        assert await store.artifact(used.id) is None
        assert await store.artifact(young.id) is None

    async def test_workers_as_long_dead_go(self, store: StateStore, clock: ManualClock) -> None:
        """Living workers stay, even if they are quiet."""
        await enter(store, "retired")
        await enter(store, "quiet", lease=86_400)
        await store.retire("retired")
        clock.advance(2 * DAY)
        await store.prune(DAY)
        assert [worker.id for worker in await store.workers()] == ["quiet"]

    async def test_a_dead_worker_stays_until_its_tasks_are_taken_back(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """Without its row, no sweep would find them."""
        await store.submit([new_task("a"), new_task("b")])
        await enter(store)
        await claim(store)
        clock.advance(2 * DAY)
        assert (await store.sweep(limit=1)).recovered == ("a",)
        await store.prune(DAY)
        assert [worker.id for worker in await store.workers()] == ["worker"]
        assert (await store.sweep(limit=1)).recovered == ("b",)
        await store.prune(DAY)
        assert await store.workers() == []

    async def test_a_shared_account_stays(self, store: StateStore, clock: ManualClock) -> None:
        """It belongs to no single task."""
        await submit_one(store)
        await apply_outside(store, "task", SetLimits(account="team", limits={"tokens": 5}), CANCEL)
        clock.advance(2 * DAY)
        await store.prune(DAY)
        assert len(await store.accounts("team")) == 1
