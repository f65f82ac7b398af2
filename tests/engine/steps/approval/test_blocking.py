"""The same from code that blocks: hold.sync outside, SyncContext inside."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

import pytest

from holdfast import (
    Approval,
    ApprovalState,
    Ask,
    Conflict,
    Decided,
    EffectState,
    Holdfast,
    InvalidValue,
    NotFound,
    Rejected,
    SyncContext,
    SyncHoldfast,
    TaskFailed,
    TaskState,
)
from holdfast.model.task import JsonValue
from tests.engine.steps.approval.support import ONE_TRY
from tests.engine.support import PATIENCE

T = TypeVar("T")


def wait_for(look: Callable[[], T | None]) -> T:
    """Return what there is to be seen, as soon as it is there."""
    give_up_at = monotonic() + PATIENCE
    while (found := look()) is None:
        assert monotonic() < give_up_at, "it never came"
        sleep(0.002)
    return found


def question_of(h: SyncHoldfast, task_id: str) -> Approval:
    return wait_for(lambda: next(iter(h.approvals(task_id)), None))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_blocking_task_asks_and_a_blocking_program_decides(kind: str, tmp_path: Path) -> None:
    hold = Holdfast("memory://" if kind == "memory" else f"sqlite:///{tmp_path}/hold.db")
    paid: list[int] = []

    @hold.task(retry=ONE_TRY)
    def work(ctx: SyncContext, amount: int) -> tuple[Decided, JsonValue, str]:
        decided = ctx.approval(
            "Go on?",
            risk="external_action",
            details={"amount": amount},
            deciders=("anna",),
            expires=3600,
            default="approved",
            policy="policy-7",
            requested_by="planner",
        )
        account = ctx.ask("From which account?", details=amount, deciders=("anna",), expires=60, requested_by="me")
        ctx.step("pay", paid.append, amount, effect="once", approval=Ask("Pay?"))
        try:
            ctx.approval("And a tip?")
        except Rejected as rejected:
            return decided, account, str(rejected)
        return decided, account, "tip"

    with hold.sync as h:
        handle = h.submit(work, 5)
        with h.worker(concurrency=1):
            first = question_of(h, handle.id)
            assert (first.risk, first.deciders, first.policy) == ("external_action", ("anna",), "policy-7")
            wait_for(lambda: handle.task().state is TaskState.WAITING or None)  # no thread is kept for it
            with pytest.raises(Conflict):
                h.approve(first.id, by="eve")
            h.approve(first.id, by="anna", note="fine")
            account = wait_for(lambda: next((one for one in h.approvals(handle) if one.kind == "question"), None))
            with pytest.raises(InvalidValue):
                h.approve(account.id, by="anna")
            assert h.answer(account.id, {"iban": "X"}, by="anna").state is ApprovalState.ANSWERED
            paying = question_of(h, handle.id)
            assert paid == []
            h.approve(paying.id, by="bert")
            tip = wait_for(lambda: next((one for one in h.approvals(handle) if one.id != paying.id), None))
            h.reject(tip.id, by="bert", note="no")
            decided, answer, refusal = handle.result(timeout=60)
        assert (decided.by, decided.note, decided.approval_id) == ("anna", "fine", first.id)
        assert (answer, refusal, paid) == ({"iban": "X"}, "'And a tip?': rejected by bert: no", [5])
        assert h.approvals() == []
        assert len(h.approvals(handle.id, states=list(ApprovalState), limit=3)) == 3
        with pytest.raises(NotFound):
            h.approve("unknown", by="anna")


def test_a_blocking_program_clears_up_a_doubt() -> None:
    hold = Holdfast("memory://")

    def pay(amount: int) -> str:
        raise TimeoutError(f"{amount}: no answer")

    @hold.task(retry=ONE_TRY)
    def work(ctx: SyncContext) -> str:
        return ctx.step("pay", pay, 5, effect="once", settle=0.01)

    with hold.sync as h, h.worker():
        handle = h.submit(work)
        doubt = wait_for(lambda: next((one for one in h.doubts(handle) if one.decisions), None))
        assert doubt.arguments == [5]
        assert h.resolve(doubt, "happened", result="paid", by="anna").state is EffectState.DONE
        assert handle.result(timeout=60) == "paid"
        assert h.doubts() == []


def test_a_blocking_task_that_is_refused_fails() -> None:
    hold = Holdfast("memory://")

    @hold.task
    def work(ctx: SyncContext) -> None:
        ctx.approval("Go on?")

    with hold.sync as h, h.worker():
        handle = h.submit(work)
        h.reject(question_of(h, handle.id).id, by="anna")
        with pytest.raises(TaskFailed, match="rejected by anna"):
            handle.result(timeout=60)
