"""An approval is for the exact arguments it was asked about, and for one effect. Nothing else is let through by it."""

# ruff: noqa: ARG001 - a function takes what it is given, whether it needs it or not

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from holdfast import (
    Absent,
    Approval,
    ApprovalState,
    Ask,
    Compensation,
    Context,
    Decided,
    EffectState,
    Holdfast,
    Intent,
    NotHappened,
    Rejected,
    Retry,
    TaskFailed,
    TaskState,
    decode,
)
from holdfast.model.operations import ConsumeApproval, WriteEffect
from holdfast.testing import Sandbox, crash_everywhere
from tests.engine.steps.approval.support import AT_ONCE, ONE_TRY, all_approvals, asked, question_of, see_to, stored
from tests.engine.support import Watched, crash, reaches, steps_of, until

EFFECTS = pytest.mark.parametrize("effect", ["once", "idempotent"])


class Till:
    """Pays, and remembers what was paid under which id."""

    def __init__(self) -> None:
        self.paid: list[tuple[int, str]] = []

    async def pay(self, amount: int, effect_id: str) -> int:
        self.paid.append((amount, effect_id))
        return amount

    @property
    def amounts(self) -> list[int]:
        return [amount for amount, _ in self.paid]


# Changed arguments


@pytest.mark.parametrize("deciders", [(), ("anna",)], ids=["anyone", "named deciders"])
async def test_a_question_about_other_details_voids_the_open_one(hold: Holdfast, deciders: tuple[str, ...]) -> None:
    """The code is deployed with other details while a person is being asked."""
    replicas = 3

    @hold.task
    async def work(ctx: Context) -> tuple[str, int]:
        details = {"replicas": replicas}
        decided: Decided
        decided, _ = await asyncio.gather(
            ctx.approval("Scale?", details=details, deciders=deciders), ctx.wait_event("deployed")
        )
        return decided.approval_id, details["replicas"]

    handle = await hold.submit(work)
    async with hold.worker():
        first = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
        replicas = 30
        await hold.emit("deployed")

        async def is_asked_again() -> bool:
            return [one.id for one in await hold.approvals(handle)] not in ([], [first.id])

        await until(is_asked_again)
        second = await question_of(hold, handle)
        assert (first.arguments, second.arguments) == ({"replicas": 3}, {"replicas": 30})
        assert second.arguments_hash != first.arguments_hash
        void = await stored(hold, first)
        assert (void.state, void.note) == (ApprovalState.VOID, "the arguments have changed")
        with pytest.raises(Exception, match="void"):
            await hold.approve(first.id, by="anna")
        await hold.approve(second.id, by="anna")
        assert await handle.result(timeout=60) == (second.id, 30)
    assert [one.state.value for one in await all_approvals(hold, handle)] == ["void", "approved"]


async def test_an_approval_that_was_given_for_other_details_lets_nothing_through(hold: Holdfast) -> None:
    """It was approved, and before a worker went on with it the code was deployed with other details."""
    replicas = 3
    scaled: list[int] = []

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> str:
        wanted = replicas
        decided = await ctx.approval("Scale?", details={"replicas": wanted})
        await ctx.step("scale", scaled.append, wanted)
        return decided.approval_id

    handle = await hold.submit(work)
    async with hold.worker():
        first = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
    await hold.approve(first.id, by="anna")
    replicas = 30
    async with hold.worker():
        second = await question_of(hold, handle)
        assert (second.id != first.id, second.arguments) == (True, {"replicas": 30})
        await reaches(handle, TaskState.WAITING)
        assert scaled == []
        await hold.reject(second.id, by="anna")
        with pytest.raises(TaskFailed, match="rejected by anna"):
            await handle.result(timeout=60)
    assert scaled == []
    states = [(one.state.value, one.consumed_by) for one in await all_approvals(hold, handle)]
    assert states == [("approved", None), ("rejected", None)]


async def test_an_approval_that_was_journaled_for_other_details_lets_nothing_through(box: Sandbox) -> None:
    replicas = 3
    scaled: list[int] = []

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> None:
        wanted = replicas
        await ctx.approval("Scale?", details={"replicas": wanted})
        await ctx.sleep(3600)
        await ctx.step("scale", scaled.append, wanted)

    with box.frozen():
        handle = await box.hold.submit(work)
        first = await question_of(box.hold, handle)
        await box.hold.approve(first.id, by="anna")
        await box.idle()
        assert "sleep" in await steps_of(box.hold, handle)
        replicas = 30
        await box.advance(3600)
    second = await question_of(box.hold, handle)
    assert second.id != first.id
    assert scaled == []
    await box.hold.approve(second.id, by="anna")
    await handle.result(timeout=5000)
    assert scaled == [30]


async def test_details_that_are_changed_back_are_asked_about_a_third_time(box: Sandbox) -> None:
    details = "a"

    @box.hold.task
    async def work(ctx: Context) -> str:
        decided: Decided
        decided, _, _ = await asyncio.gather(
            ctx.approval("Go on?", details=details), ctx.wait_event("first"), ctx.wait_event("second")
        )
        return decided.approval_id

    handle = await box.hold.submit(work)
    await question_of(box.hold, handle)
    await box.idle()
    for details, channel in (("b", "first"), ("a", "second")):  # noqa: B007 - the task's code sees it
        await box.hold.emit(channel)
        await box.idle()
    last = await question_of(box.hold, handle)
    await box.hold.approve(last.id, by="anna")
    assert await handle.result(timeout=60) == last.id
    records = [(one.arguments, one.state.value) for one in await all_approvals(box.hold, handle)]
    assert sorted(records) == [("a", "approved"), ("a", "void"), ("b", "void")]


async def test_another_wording_of_the_same_question_is_not_asked_again(box: Sandbox) -> None:
    wording = "Go on?"

    @box.hold.task
    async def work(ctx: Context) -> str:
        decided: Decided
        decided, _ = await asyncio.gather(ctx.approval(wording, details=1), ctx.wait_event("deployed"))
        return decided.approval_id

    handle = await box.hold.submit(work)
    first = await question_of(box.hold, handle)
    await box.idle()
    wording = "Shall we go on?"
    await box.hold.emit("deployed")
    await box.idle()
    assert await question_of(box.hold, handle) == first
    await box.hold.approve(first.id, by="anna")
    assert await handle.result(timeout=60) == first.id


@EFFECTS
async def test_a_steps_approval_is_bound_to_its_arguments(hold: Holdfast, effect: str) -> None:
    """Approved for 5; then the code wants to pay 500."""
    till = Till()
    amount = 5

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> int:
        return await ctx.step("pay", till.pay, amount, effect=effect, approval=Ask("Pay?"))

    handle = await hold.submit(work)
    async with hold.worker():
        first = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
        assert till.paid == []
    await hold.approve(first.id, by="anna")
    amount = 500
    async with hold.worker():
        second = await question_of(hold, handle)
        assert second.id != first.id
        assert second.arguments == [500]
        await reaches(handle, TaskState.WAITING)
        assert till.paid == []
        await hold.approve(second.id, by="anna")
        assert await handle.result(timeout=60) == 500
    assert till.amounts == [500]
    one, two = await all_approvals(hold, handle)
    assert (one.state, one.consumed_by) == (ApprovalState.APPROVED, None)
    assert (two.state, two.consumed_by) == (ApprovalState.APPROVED, till.paid[0][1])


@EFFECTS
async def test_a_function_that_changes_what_it_is_given_changes_no_try_and_no_undo(hold: Holdfast, effect: str) -> None:
    """Approved for 5; the first try leaves 50 in its object."""
    called: list[tuple[str, int]] = []

    def pay(order: dict[str, int]) -> str:
        called.append(("pay", order["amount"]))
        order["amount"] *= 10
        if len(called) == 1:
            raise NotHappened("busy")
        return "paid"

    def pay_back(result: str, order: dict[str, int]) -> None:
        called.append(("pay back", order["amount"]))
        order["amount"] *= 10
        if len(called) == 3:
            raise ConnectionError("away")

    undo = Compensation(pay_back, retry=Retry(max_attempts=2, initial=0.001))

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> None:
        await ctx.step("pay", pay, {"amount": 5}, effect=effect, approval=Ask("Pay?"), compensate=undo, retry=AT_ONCE)
        raise RuntimeError("the rest fails")

    handle = await hold.submit(work)
    async with hold.worker():
        approval = await question_of(hold, handle)
        await hold.approve(approval.id, by="anna")
        with pytest.raises(TaskFailed, match="the rest fails"):
            await handle.result(timeout=60)
    assert approval.arguments == [{"amount": 5}]
    assert called == [("pay", 5), ("pay", 5), ("pay back", 5), ("pay back", 5)]
    [effect_of_it] = await hold.store.effects(task_id=handle.id)
    assert decode(effect_of_it.arguments) == [{"amount": 5}]


# Used for one effect


@EFFECTS
async def test_a_step_with_an_approval_is_not_called_before_it(hold: Holdfast, effect: str) -> None:
    till = Till()

    @hold.task
    async def work(ctx: Context) -> int:
        return await ctx.step("pay", till.pay, 5, effect=effect, approval=Ask("Pay?"))

    handle = await hold.submit(work)
    async with hold.worker():
        approval = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
        assert till.paid == []
        assert await hold.store.effects(task_id=handle.id) == []  # nothing is armed, so nothing can be in doubt
        await hold.approve(approval.id, by="anna")
        assert await handle.result(timeout=60) == 5
    assert till.amounts == [5]
    assert (await stored(hold, approval)).consumed_by == till.paid[0][1]


@EFFECTS
async def test_a_step_whose_approval_is_refused_is_never_called(box: Sandbox, effect: str) -> None:
    till = Till()

    @box.hold.task(retry=AT_ONCE)
    async def work(ctx: Context) -> str:
        try:
            await ctx.step("pay", till.pay, 5, effect=effect, approval=Ask("Pay?"))
        except Rejected as rejected:
            await ctx.sleep(3600)
            return str(rejected)
        return "paid"

    handle = await box.hold.submit(work)
    await box.hold.reject((await question_of(box.hold, handle)).id, by="anna")
    assert await handle.result(timeout=5000) == "'Pay?': rejected by anna"
    assert till.paid == []
    assert len(await all_approvals(box.hold, handle)) == 1


async def test_an_approval_is_consumed_by_the_commit_that_arms_the_effect(
    watch: Callable[[], list[Watched]],
) -> None:
    watches = watch()
    till = Till()
    async with Holdfast("memory://") as hold:

        @hold.task
        async def work(ctx: Context) -> int:
            return await ctx.step("pay", till.pay, 5, effect="once", approval=Ask("Pay?"))

        handle = await hold.submit(work)
        async with hold.worker():
            approval = await question_of(hold, handle)
            await hold.approve(approval.id, by="anna")
            await handle.result(timeout=60)
    commits = [commit for batch in watches[-1].batches for commit in batch]
    [arming] = [
        commit
        for commit in commits
        if any(isinstance(op, WriteEffect) and op.effect.state is EffectState.ARMED for op in commit.operations)
    ]
    [consumed] = [op for op in arming.operations if isinstance(op, ConsumeApproval)]
    assert (consumed.approval_id, consumed.effect_id) == (approval.id, till.paid[0][1])
    assert consumed.arguments_hash == approval.arguments_hash


async def test_steps_with_the_same_arguments_each_need_their_own_approval(hold: Holdfast) -> None:
    till = Till()

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> None:
        await ctx.step("pay", till.pay, 5, effect="once", approval=Ask("Pay?"))
        await ctx.step("pay", till.pay, 5, effect="once", approval=Ask("Pay?"))
        await ctx.step("tip", till.pay, 5, approval=Ask("Pay?"))

    handle = await hold.submit(work)
    async with hold.worker():
        for already in range(2):
            approval = await question_of(hold, handle)
            await reaches(handle, TaskState.WAITING)
            assert len(till.paid) == already
            await hold.approve(approval.id, by="anna")
            await until(partial(lambda already: len(till.paid) == already + 1, already))
        approval = await question_of(hold, handle)
        await hold.reject(approval.id, by="anna")
        with pytest.raises(TaskFailed):
            await handle.result(timeout=60)
    assert till.amounts == [5, 5]
    used = [one.consumed_by for one in await all_approvals(hold, handle)]
    assert used == [till.paid[0][1], till.paid[1][1], None]
    assert till.paid[0][1] != till.paid[1][1]


@EFFECTS
async def test_one_approval_is_good_for_all_tries_of_its_effect(box: Sandbox, effect: str) -> None:
    tried: list[str] = []

    async def pay(amount: int, effect_id: str) -> int:
        tried.append(effect_id)
        if len(tried) < 4:
            raise NotHappened("out of order")
        return amount

    @box.hold.task(retry=AT_ONCE)
    async def work(ctx: Context) -> int:
        return await ctx.step(
            "pay", pay, 5, effect=effect, approval=Ask("Pay?"), retry=Retry(max_attempts=3, initial=60, jitter="none")
        )

    handle = await box.hold.submit(work)
    approval = await question_of(box.hold, handle)
    await box.hold.approve(approval.id, by="anna")
    assert await handle.result(timeout=5000) == 5
    assert len(tried) == 4  # three tries in the first attempt of the task, one in the second
    assert len({*tried}) == 1
    [record] = await all_approvals(box.hold, handle)
    assert record.consumed_by == tried[0]


async def test_one_approval_is_good_for_a_take_over_of_its_effect(hold: Holdfast) -> None:
    """The worker dies in the middle of the call; the tool says that nothing happened; the next worker makes it."""
    began = asyncio.Event()
    called: list[str] = []

    async def pay(amount: int, effect_id: str) -> int:
        called.append(effect_id)
        if len(called) == 1:
            began.set()
            await asyncio.sleep(60)
        return amount

    async def was_paid(effect_id: str, amount: int) -> Absent:
        return Absent()

    @hold.task
    async def work(ctx: Context) -> int:
        return await ctx.step(
            *("pay", pay, 5), effect="once", reconcile=was_paid, timeout=2.0, settle=0, approval=Ask("Pay?")
        )

    handle = await hold.submit(work)
    worker = await hold.worker().__aenter__()
    approval = await question_of(hold, handle)
    await hold.approve(approval.id, by="anna")
    await until(began.is_set)
    assert (await stored(hold, approval)).consumed_by == called[0]
    await crash(hold, worker)
    async with hold.worker():
        assert await handle.result(timeout=60) == 5
    assert called == [called[0]] * 2
    [record] = await all_approvals(hold, handle)
    assert (record.state, record.consumed_by) == (ApprovalState.APPROVED, called[0])


async def test_an_approved_effect_survives_a_crash_at_every_commit() -> None:
    hold = Holdfast("memory://")
    till = Till()

    async def was_paid(effect_id: str, amount: int) -> Absent:
        return Absent()

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> int:
        paid = await ctx.step("pay", till.pay, 5, effect="once", reconcile=was_paid, settle=1, approval=Ask("Pay?"))
        return paid + await ctx.step("tip", till.pay, 1, approval=Ask("And a tip?"))

    async def scenario(box: Sandbox) -> tuple[int, list[tuple[str, str, bool]]]:
        till.paid.clear()
        handle = await hold.submit(work)
        await see_to(box, handle, lambda approval: hold.approve(approval.id, by="anna"))
        result = await handle.result()
        ids = {identifier for _, identifier in till.paid}
        assert len(ids) == 2, "an effect got a second id"
        records = [(one.question, one.state.value, one.consumed_by in ids) for one in await all_approvals(hold, handle)]
        return result, sorted(records)

    survived = await crash_everywhere(hold, scenario)
    assert survived.result == (6, [("And a tip?", "approved", True), ("Pay?", "approved", True)])
    assert survived.crashes >= 16


async def test_an_intent_that_was_written_early_does_not_get_around_the_approval(box: Sandbox) -> None:
    """The step before arms the call; the call itself first asks for an approval."""
    till = Till()

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> int:
        amount = await ctx.step("choose", lambda: 5, returns=int, arms=lambda n: [Intent("pay", till.pay, n)])
        return await ctx.step("pay", till.pay, amount, effect="once", approval=Ask("Pay?"))

    handle = await box.hold.submit(work)
    approval = await question_of(box.hold, handle)
    await box.idle()
    assert till.paid == []
    assert await box.hold.doubts(handle) == []
    await box.hold.approve(approval.id, by="anna")
    assert await handle.result(timeout=5000) == 5
    assert till.amounts == [5]
    assert (await stored(box.hold, approval)).consumed_by == till.paid[0][1]


async def test_a_resume_after_a_refused_step_asks_again(hold: Holdfast) -> None:
    till = Till()

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> int:
        return await ctx.step("pay", till.pay, 5, effect="once", approval=Ask("Pay?"))

    handle = await hold.submit(work)
    async with hold.worker():
        first = await question_of(hold, handle)
        await hold.reject(first.id, by="anna")
        with pytest.raises(TaskFailed, match="rejected by anna"):
            await handle.result(timeout=60)
        await hold.resume(handle)
        second = await question_of(hold, handle)
        assert second.id != first.id
        await hold.approve(second.id, by="bert")
        assert await handle.result(timeout=60) == 5
    assert till.amounts == [5]
    assert [one.consumed_by for one in await all_approvals(hold, handle)] == [None, till.paid[0][1]]


async def test_a_step_that_failed_for_good_uses_its_approval_again_when_it_is_resumed(box: Sandbox) -> None:
    """The same effect, the same arguments: one approval is enough."""
    works = False
    paid: list[str] = []

    async def pay(amount: int, effect_id: str) -> int:
        if not works:
            raise NotHappened("out of order")
        paid.append(effect_id)
        return amount

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> int:
        return await ctx.step("pay", pay, 5, effect="once", approval=Ask("Pay?"))

    handle = await box.hold.submit(work)
    await box.hold.approve((await question_of(box.hold, handle)).id, by="anna")
    with pytest.raises(TaskFailed, match="out of order"):
        await handle.result(timeout=5000)
    works = True
    await box.hold.resume(handle)
    assert await handle.result(timeout=5000) == 5
    [record] = await all_approvals(box.hold, handle)
    assert record.consumed_by == paid[0]


async def test_approvals_of_steps_side_by_side_are_each_for_their_own(box: Sandbox) -> None:
    till = Till()

    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> list[object]:
        paid: list[object] = await asyncio.gather(
            *(
                ctx.step("pay", till.pay, n, key=f"pay-{n}", effect="once", approval=Ask(f"Pay {n}?"))
                for n in (1, 2, 3)
            ),
            return_exceptions=True,
        )
        return paid

    handle = await box.hold.submit(work)

    async def decide(approval: Approval) -> None:
        if approval.question == "Pay 2?":
            await box.hold.reject(approval.id, by="anna")
        else:
            await box.hold.approve(approval.id, by="anna")

    for approval in await asked(box.hold, handle, 3):
        await decide(approval)
    with pytest.raises(TaskFailed):  # a Rejected cannot be stored as a result
        await handle.result(timeout=5000)
    assert sorted(till.amounts) == [1, 3]
    assert {one.question: one.consumed_by is not None for one in await all_approvals(box.hold, handle)} == {
        "Pay 1?": True,
        "Pay 2?": False,
        "Pay 3?": True,
    }


async def test_arguments_that_are_not_data_cannot_be_approved(box: Sandbox) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> None:
        await ctx.step("pay", print, object(), approval=Ask("Pay?"))

    handle = await box.hold.submit(work)
    with pytest.raises(TaskFailed, match="pass the data") as failed:
        await handle.result(timeout=60)
    assert failed.value.step is None
    assert await all_approvals(box.hold, handle) == []
