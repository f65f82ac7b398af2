"""Bad input: it raises an InvalidValue that names what is wrong, and changes nothing."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.commit import Commit, Expect, Refusal
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import (
    ConsumeApproval,
    Emit,
    Move,
    OpenApproval,
    Reserve,
    SetLimits,
    SubmitChild,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.patch import StatePatch
from holdfast.model.size import LARGEST_BYTES
from holdfast.model.task import NewTask, Submitted
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import new_task, outside, row, running_task, send, step, submit_one
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot

DECIDED = Approval(
    task_id="task", question="?", step_key="s", id="ask", state=ApprovalState.APPROVED, decided_by="stranger"
)

UNSENDABLE: dict[str, tuple[Any, ...]] = {
    "patch without its operation": (StatePatch(),),
    "letters for operations": ("abc",),
    "a result that is no JSON": (WriteOutcome(result=float("nan")),),
    "a payload that is no JSON": (Emit(channel="c", payload=object()),),
    "an input that is no JSON": (SubmitChild(NewTask(name="n", user_input={1: 2})),),
    "a limit that is no number": (SetLimits(account="a", limits={"tokens": float("nan")}),),  # type: ignore[dict-item]
    "a limit below nothing": (SetLimits(account="a", limits={"tokens": -5}),),
    "an amount below nothing": (Reserve(account="a", step_key="s", amounts={"tokens": -5}),),
    "an approval decided before it was asked": (OpenApproval(DECIDED),),
    "an approval that approves itself": (
        OpenApproval(DECIDED),
        ConsumeApproval(approval_id="ask", effect_id="e", arguments_hash=""),
    ),
    "a key no index could hold": (Emit(channel="c", payload=1, key="x" * 6000),),
    "a worker no text could name": (
        WriteEffect(
            Effect(
                effect_id="e",
                step_key="s",
                effect_class=EffectClass.ONCE,
                state=EffectState.ARMED,
                thread_of="worker\x00",
            )
        ),
    ),
    "a step key no index could hold": (Reserve(account="a", step_key="x" * 6000, amounts={"tokens": 1}),),
}


class DoorsContract(ContractBase):
    """Bad input to every method."""

    async def test_what_cannot_be_sent(self, store: StateStore) -> None:
        """Rejected before anything is written, also of the other Commits in the call."""
        attempt = await running_task(store)
        await submit_one(store, "other")
        before = await snapshot(store)
        good = outside("other", Move(to=TaskState.CANCELLED, reason="fine"))
        for name, operations in UNSENDABLE.items():
            with row(name):
                with pytest.raises(InvalidValue):
                    await store.commit([good, Commit(task_id="task", guard=attempt.guard(1), operations=operations)])
                assert await snapshot(store) == before

    async def test_a_bad_payload_is_refused_by_every_verb(self, store: StateStore) -> None:
        """With its place in the value."""
        before = await snapshot(store)
        with pytest.raises(InvalidValue, match=r"user_input\.a\[0\]"):
            await store.submit([new_task(user_input={"a": [float("inf")]})])
        with pytest.raises(InvalidValue, match="payload"):
            await store.emit("channel", {1, 2})
        assert await snapshot(store) == before

    @pytest.mark.parametrize("name", ["\ud800", "a\ud800b"])
    async def test_no_question_breaks_on_an_odd_id(self, store: StateStore, name: str) -> None:
        """The answer is empty, or the id is rejected: never an error of the driver."""
        for ask in (store.get, store.history, store.steps, store.artifact, store.owned, store.accounts):
            with suppress(InvalidValue):
                assert not await ask(name)

    @pytest.mark.parametrize(("offset", "length"), [(-1, None), (0, -1), (1.5, None)])
    async def test_a_range_that_is_none(self, store: StateStore, offset: int, length: int | None) -> None:
        """It is rejected, and no other bytes are returned."""
        artifact = await store.put_artifact(b"hello")
        with pytest.raises(InvalidValue):
            await store.read_artifact(artifact.id, offset=offset, length=length)

    @pytest.mark.parametrize("operation", [WriteOutcome(result=1), WriteStep(step())], ids=["outcome", "step"])
    async def test_what_only_the_holder_may_write(self, store: StateStore, operation: WriteOutcome | WriteStep) -> None:
        """While a worker holds a task, no other caller writes its outcome or its journal."""
        attempt = await running_task(store)
        assert (await send(store, outside("task", operation))).refusal is Refusal.LEASED
        await attempt.apply(operation)

    async def test_a_resent_commit_names_its_children_again(self, store: StateStore) -> None:
        """Also a child that existed before, under its key."""
        await submit_one(store, "old", name="job", key="k")
        attempt = await running_task(store)
        commit = attempt.commit(SubmitChild(new_task("kid", key="k")), SubmitChild(new_task("new")))
        first = await send(store, commit)
        assert first.children == (Submitted(task_id="old", created=False), Submitted(task_id="new", created=True))
        again = await send(store, commit)
        assert again.duplicate
        assert again.children == (Submitted(task_id="old", created=False), Submitted(task_id="new", created=False))

    async def test_times_of_any_zone_are_kept_as_moments(self, store: StateStore) -> None:
        """They are returned in UTC."""
        deadline = datetime.fromisoformat("2030-01-01T12:00:00+05:30")
        task = await submit_one(store, deadline=deadline)
        assert task.deadline == deadline
        assert task.deadline is not None
        assert task.deadline.tzinfo is UTC

    async def test_an_outsider_needs_a_request_that_can_be_remembered(self, store: StateStore) -> None:
        """It has to be a valid name, like everything that is looked up."""
        await submit_one(store)
        commit = Commit(task_id="task", guard=Expect(request=""), operations=())
        with pytest.raises(InvalidValue, match="request"):
            await store.commit([commit])

    async def test_what_is_too_large_together_is_refused_with_its_size(self, store: StateStore) -> None:
        """It is too large for a database, and sending it again would not help; the other Commits may be sent again."""
        attempt = await running_task(store)
        body = b"1" * (LARGEST_BYTES // 40)  # one object, used many times
        lines = [WriteStep(step(f"k{n}", position=n, output=body)) for n in range(1, 42)]
        before = await snapshot(store)
        with pytest.raises(InvalidValue, match=r"task takes \d{3},\d{3},\d{3} bytes in 41 operations.*artifacts"):
            await store.commit([attempt.commit(*lines)])
        with pytest.raises(InvalidValue, match=r"41 tasks take \d{3},\d{3},\d{3} bytes.*in parts"):
            await store.submit([new_task(f"t{n}", user_input=body.decode()) for n in range(41)])
        assert await snapshot(store) == before
