"""The record of an approval: what it holds, who may decide it, and what is refused."""

import asyncio
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from holdfast import (
    Approval,
    ApprovalState,
    Ask,
    Conflict,
    Context,
    Decided,
    EffectState,
    Holdfast,
    InvalidValue,
    NotFound,
    TaskFailed,
    TaskState,
)
from holdfast.model.canonical import canonical, digest
from holdfast.testing import Sandbox
from tests.engine.steps.approval.support import ONE_TRY, all_approvals, asked, question_of, stored
from tests.engine.support import reaches, until


async def test_the_record_holds_all_that_was_asked_and_all_that_was_decided(hold: Holdfast) -> None:
    details = {"service": "billing", "replicas": 3, "images": ["a", "b"]}

    @hold.task
    async def deploy(ctx: Context) -> Decided:
        return await ctx.approval(
            "Deploy to production?",
            risk="external_action",
            details=details,
            deciders=("anna", "bert"),
            expires=timedelta(hours=1),
            default="approved",
            policy="policy-7",
            requested_by="devops",
        )

    handle = await hold.submit(deploy)
    before = await hold.store.now()
    async with hold.worker():
        approval = await question_of(hold, handle)
        after = await hold.store.now()
        assert approval.created_at is not None
        assert before <= approval.created_at <= after
        assert approval.expires_at is not None
        assert before <= approval.expires_at - timedelta(hours=1) <= after
        assert approval == Approval(
            id=approval.id,
            task_id=handle.id,
            kind="approval",
            question="Deploy to production?",
            step_key="approval",
            risk="external_action",
            arguments_bytes=canonical(details),
            arguments_hash=digest(canonical(details)),
            policy="policy-7",
            requested_by="devops",
            deciders=("anna", "bert"),
            expires_at=approval.expires_at,
            default=ApprovalState.APPROVED,
            state=ApprovalState.OPEN,
            created_at=approval.created_at,
        )
        answered = await hold.approve(approval.id, by="bert", note="go on then")
        decided = await handle.result(timeout=60)
    record = await stored(hold, approval)
    assert answered == record
    assert (record.state, record.decided_by, record.note) == (ApprovalState.APPROVED, "bert", "go on then")
    assert record.decided_at is not None
    assert after <= record.decided_at
    assert (record.arguments_bytes, record.arguments_hash, record.question) == (
        approval.arguments_bytes,
        approval.arguments_hash,
        approval.question,
    )
    assert decided == Decided(
        approval_id=approval.id,
        state=ApprovalState.APPROVED,
        by="bert",
        note="go on then",
        at=record.decided_at,
    )


async def test_what_is_asked_about_is_plain_data_as_in_a_doubt(hold: Holdfast) -> None:
    """Also what the codec tags in the store: an approver compares dates, not tags."""

    async def book(day: date, price: Decimal) -> None:
        del day, price

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("book", book, date(2026, 11, 16), Decimal("9.50"), effect="once", approval=Ask("Book?"))

    handle = await hold.submit(work)
    async with hold.worker():
        approval = await question_of(hold, handle)
        assert approval.arguments == ["2026-11-16", "9.50"]
        assert approval.arguments_hash == digest(approval.arguments_bytes)
        await hold.reject(approval.id, by="bert")


async def test_the_record_of_a_steps_approval_holds_the_steps_exact_arguments(hold: Holdfast) -> None:
    async def pay(amount: int, to: str) -> str:
        return f"{amount} to {to}"

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, "anna", effect="once", approval=Ask("Pay?", risk="external_action"))

    handle = await hold.submit(work, agent_id="bookkeeper")
    async with hold.worker():
        approval = await question_of(hold, handle)
        assert approval.arguments == [5, "anna"]
        assert approval.arguments_hash == digest(approval.arguments_bytes)
        assert (approval.step_key, approval.risk, approval.requested_by) == ("pay", "external_action", "bookkeeper")
        await hold.approve(approval.id, by="bert")
        assert await handle.result(timeout=60) == "5 to anna"
    [effect] = await hold.store.effects(task_id=handle.id)
    assert (effect.approval_id, effect.arguments_hash) == (approval.id, approval.arguments_hash)
    assert (await stored(hold, approval)).consumed_by == effect.effect_id


@pytest.mark.parametrize(
    "mistake",
    [
        {"question": " "},
        {"default": "maybe"},
        {"risk": "enormous"},
        {"expires": -1},
        {"deciders": "anna"},
        {"deciders": ("anna", "")},
        {"details": {"at": object()}},
    ],
    ids=lambda mistake: next(iter(mistake)),
)
async def test_what_could_not_be_asked_is_refused_before_a_person_is_asked(
    box: Sandbox, mistake: dict[str, Any]
) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> None:
        await ctx.approval(**{"question": "Go on?", **mistake})

    handle = await box.hold.submit(work)
    with pytest.raises(TaskFailed) as failed:
        await handle.result(timeout=60)
    assert failed.value.type_name in {"holdfast.InvalidValue", "holdfast.CodecError"}
    assert await all_approvals(box.hold, handle) == []


# Who may decide


async def test_only_its_deciders_decide(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> str | None:
        return (await ctx.approval("Go on?", deciders=["anna"])).by

    handle = await hold.submit(work)
    async with hold.worker():
        approval = await question_of(hold, handle)
        await reaches(handle, TaskState.WAITING)
        before = await handle.task()
        for decide in (hold.approve, hold.reject):
            with pytest.raises(Conflict, match=r"decide.* anna"):
                await decide(approval.id, by="eve")
        assert await stored(hold, approval) == approval
        assert await handle.task() == before
        await hold.approve(approval.id, by="anna")
        assert await handle.result(timeout=60) == "anna"


@pytest.mark.parametrize("by", ["", " \0", "x" * 10_000])
async def test_a_decision_has_an_author(box: Sandbox, by: str) -> None:
    @box.hold.task
    async def work(ctx: Context) -> None:
        await ctx.approval("Go on?")

    approval = await question_of(box.hold, await box.hold.submit(work))
    with pytest.raises(InvalidValue):
        await box.hold.approve(approval.id, by=by)
    with pytest.raises(InvalidValue):
        await box.hold.reject(approval.id, by=by)
    with pytest.raises(InvalidValue):
        await box.hold.answer(approval.id, "yes", by=by)
    assert await stored(box.hold, approval) == approval


async def test_a_decision_is_final(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> str | None:
        return (await ctx.approval("Go on?")).by

    handle = await hold.submit(work)
    async with hold.worker():
        approval = await question_of(hold, handle)
        decided = await hold.approve(approval.id, by="anna")
        for decide in (hold.approve, hold.reject):
            with pytest.raises(Conflict, match=r"approved.* by anna"):
                await decide(approval.id, by="bert", note="no, wait")
        assert await stored(hold, approval) == decided
        assert await handle.result(timeout=60) == "anna"
    assert await stored(hold, approval) == decided


async def test_an_unknown_approval_is_not_found(hold: Holdfast) -> None:
    for decide in (hold.approve("unknown", by="anna"), hold.reject("unknown", by="anna")):
        with pytest.raises(NotFound, match="no approval 'unknown'"):
            await decide
    with pytest.raises(NotFound, match="no approval 'unknown'"):
        await hold.answer("unknown", 1, by="anna")


# Of the wrong kind


async def test_a_decision_of_the_wrong_kind_says_what_to_do_and_changes_nothing(box: Sandbox) -> None:
    hold = box.hold

    async def pay() -> None:
        raise TimeoutError("no answer")

    @hold.task
    async def approving(ctx: Context) -> None:
        await ctx.approval("Go on?")

    @hold.task
    async def asking(ctx: Context) -> None:
        await ctx.ask("Where to?")

    @hold.task
    async def doubting(ctx: Context) -> None:
        await ctx.step("pay", pay, effect="once", settle=1)

    approval = await question_of(hold, await hold.submit(approving))
    question = await question_of(hold, await hold.submit(asking))
    in_doubt = await hold.submit(doubting)

    async def is_asked() -> bool:
        return any(doubt.approval_id for doubt in await hold.doubts(in_doubt))

    await until(is_asked)
    [doubt] = await hold.doubts(in_doubt)
    asked_about = await stored(hold, doubt.approval_id or "")
    await box.idle()
    tasks = [await hold.store.get(one.task_id) for one in (approval, question, asked_about)]

    with pytest.raises(InvalidValue, match=r"asks for a yes or no; use hold\.approve"):
        await hold.answer(approval.id, "yes", by="anna")
    with pytest.raises(InvalidValue, match=r"is an open question; answer it with hold\.answer"):
        await hold.approve(question.id, by="anna")
    with pytest.raises(InvalidValue, match=rf"use hold\.resolve\('{doubt.effect.effect_id}'"):
        await hold.approve(asked_about.id, by="anna")
    with pytest.raises(InvalidValue, match=r"use hold\.resolve"):
        await hold.reject(asked_about.id, by="anna")
    with pytest.raises(InvalidValue, match=r"use hold\.resolve"):
        await hold.answer(asked_about.id, "happened", by="anna")

    assert [await stored(hold, one) for one in (approval, question, asked_about)] == [approval, question, asked_about]
    assert [await hold.store.get(one.task_id) for one in (approval, question, asked_about)] == tasks
    [effect] = await hold.store.effects(task_id=in_doubt.id)
    assert effect.state is EffectState.NEEDS_HUMAN


# Listing


async def test_approvals_are_listed_by_task_and_by_state(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context, name: str) -> None:
        await ctx.approval(f"{name}?")

    first, second, third = await hold.submit_many(work, [("first",), ("second",), ("third",)])
    async with hold.worker():
        one, two = await question_of(hold, first), await question_of(hold, second)
        await question_of(hold, third)
        assert {approval.question for approval in await hold.approvals()} == {"first?", "second?", "third?"}
        assert len(await hold.approvals(limit=2)) == 2
        await hold.approve(one.id, by="anna")
        await hold.reject(two.id, by="anna")
        assert [approval.question for approval in await hold.approvals()] == ["third?"]
        assert await hold.approvals(first) == []
        assert [one.question for one in await hold.approvals(first.id, states=["approved"])] == ["first?"]
        over = await hold.approvals(states=[ApprovalState.APPROVED, "rejected"])
        assert {approval.question for approval in over} == {"first?", "second?"}
        assert (await hold.summary()).open_approvals == 1


async def test_questions_about_effects_are_not_listed_as_approvals(box: Sandbox) -> None:
    """They are in hold.doubts(), and must not displace what is to be approved from its list."""
    hold = box.hold

    async def pay() -> None:
        raise TimeoutError("no answer")

    @hold.task
    async def doubting(ctx: Context) -> None:
        await ctx.step("pay", pay, effect="once", settle=1)

    @hold.task
    async def approving(ctx: Context) -> None:
        await ctx.approval("Go on?")

    many = await hold.submit_many(doubting, [()] * 5)

    async def are_asked() -> bool:
        return len([doubt for doubt in await hold.doubts() if doubt.approval_id]) == len(many)

    await until(are_asked)
    handle = await hold.submit(approving)
    [approval] = await asked(hold, handle)
    assert await hold.approvals(limit=1) == [approval]
    assert await hold.approvals() == [approval]


async def test_calls_under_way_do_not_hide_doubts(box: Sandbox) -> None:
    """A call under way looks like a doubt to the store; only its task shows that a worker is making it."""
    hold = box.hold
    go = asyncio.Event()
    calling = 0

    async def pay(*, answers: bool = True) -> None:
        nonlocal calling
        calling += 1
        if not answers:
            raise TimeoutError("no answer")
        await go.wait()

    @hold.task
    async def busy(ctx: Context) -> None:
        await ctx.step("pay", pay, effect="once")

    @hold.task
    async def doubting(ctx: Context) -> None:
        await ctx.step("pay", partial(pay, answers=False), effect="once", settle=1)

    with box.frozen():
        many = await hold.submit_many(busy, [()] * 5)
        await until(lambda: calling == 5)
        handle = await hold.submit(doubting)
        await until(lambda: hold.doubts(handle))
        [doubt] = await hold.doubts(limit=1)
        assert doubt.effect.task_id == handle.id
        assert len(await hold.doubts()) == 1
        go.set()
    for one in many:
        await one.result(timeout=60)
