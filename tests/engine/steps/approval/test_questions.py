"""Open questions: any answer, no answer, and an answer that is refused."""

from datetime import timedelta

import pytest

from holdfast import ApprovalState, Conflict, Context, Holdfast, InvalidValue, Rejected, TaskFailed, TaskState
from holdfast.model.task import JsonValue
from holdfast.testing import Sandbox, crash_everywhere
from tests.engine.steps.approval.support import ONE_TRY, all_approvals, question_of, see_to, stored
from tests.engine.support import reaches

ANSWERS: list[JsonValue] = [
    "eu-west",
    "",
    0,
    -1.5,
    True,
    False,
    None,
    [],
    {},
    {"region": "eu", "zones": [1, None, {"name": "ä\0ö"}]},
]


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
async def test_an_answer_may_be_any_json(hold: Holdfast, answer: JsonValue) -> None:
    seen: list[JsonValue] = []

    @hold.task
    async def work(ctx: Context) -> JsonValue:
        seen.append(await ctx.ask("Where to?"))
        await ctx.step("note", lambda: None)
        return seen[-1]

    handle = await hold.submit(work)
    async with hold.worker():
        question = await question_of(hold, handle)
        await hold.answer(question.id, answer, by="anna", note="I think")
        assert await handle.result(timeout=60) == answer
    record = await stored(hold, question)
    assert (record.state, record.answer, record.decided_by, record.note) == (
        ApprovalState.ANSWERED,
        answer,
        "anna",
        "I think",
    )
    assert all(type(one) is type(answer) for one in seen)


async def test_the_record_of_a_question(hold: Holdfast) -> None:
    @hold.task
    async def work(ctx: Context) -> JsonValue:
        return await ctx.ask(
            "Where to?", details={"from": "here"}, deciders=["anna"], expires=3600, requested_by="planner"
        )

    handle = await hold.submit(work)
    async with hold.worker():
        question = await question_of(hold, handle)
        assert (question.kind, question.question, question.step_key) == ("question", "Where to?", "question")
        assert (question.arguments, question.requested_by) == ({"from": "here"}, "planner")
        assert (question.risk, question.deciders) == (None, ("anna",))
        assert question.expires_at is not None
        await reaches(handle, TaskState.WAITING)
        assert (await handle.task()).owner is None
        with pytest.raises(Conflict, match="anna"):
            await hold.answer(question.id, "there", by="eve")
        await hold.answer(question.id, "there", by="anna")
        with pytest.raises(Conflict, match=r"answered.* by anna"):
            await hold.answer(question.id, "elsewhere", by="anna")
        assert await handle.result(timeout=60) == "there"


async def test_an_answer_that_is_not_json_is_refused(box: Sandbox) -> None:
    @box.hold.task
    async def work(ctx: Context) -> JsonValue:
        return await ctx.ask("Where to?")

    handle = await box.hold.submit(work)
    question = await question_of(box.hold, handle)
    with pytest.raises(InvalidValue):
        await box.hold.answer(question.id, object(), by="anna")
    assert await stored(box.hold, question) == question


async def test_the_answer_is_optional(box: Sandbox) -> None:
    @box.hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> JsonValue:
        return await ctx.ask("Where to?")

    handle = await box.hold.submit(work)
    question = await question_of(box.hold, handle)
    await box.hold.reject(question.id, by="anna", note="none of your business")
    with pytest.raises(TaskFailed, match=r"'Where to\?': rejected by anna: none of your business") as failed:
        await handle.result(timeout=60)
    assert failed.value.type_name == "holdfast.Rejected"


async def test_a_question_without_an_answer_in_time_is_rejected(box: Sandbox) -> None:
    @box.hold.task
    async def work(ctx: Context) -> str:
        try:
            return str(await ctx.ask("Where to?", expires=timedelta(days=1)))
        except Rejected:
            return "nowhere"

    handle = await box.hold.submit(work)
    assert await handle.result(timeout=100_000) == "nowhere"
    assert box.elapsed == timedelta(days=1)
    [record] = await all_approvals(box.hold, handle)
    assert record.state is ApprovalState.EXPIRED


async def test_an_answer_survives_a_crash_at_every_commit() -> None:
    hold = Holdfast("memory://")

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context) -> JsonValue:
        first = await ctx.ask("First?")
        second = await ctx.ask("Second?", details=first)
        await ctx.sleep(60)
        return [first, second]

    async def scenario(box: Sandbox) -> tuple[JsonValue, int]:
        handle = await hold.submit(work)
        await see_to(box, handle, lambda one: hold.answer(one.id, {"to": one.question}, by="anna"))
        return await handle.result(), len(await all_approvals(hold, handle))

    survived = await crash_everywhere(hold, scenario)
    assert survived.result == ([{"to": "First?"}, {"to": "Second?"}], 2)
    assert survived.crashes >= 14


async def test_approvals_and_questions_under_the_same_names_do_not_meet(box: Sandbox) -> None:
    @box.hold.task
    async def work(ctx: Context) -> list[JsonValue]:
        decided = await ctx.approval("One?")
        answers = [await ctx.ask("Two?"), await ctx.ask("Three?")]
        again = await ctx.approval("Four?")
        return [decided.by, *answers, again.by]

    handle = await box.hold.submit(work)
    for expected in ("One?", "Two?", "Three?", "Four?"):
        asked = await question_of(box.hold, handle)
        assert asked.question == expected
        if asked.kind == "question":
            await box.hold.answer(asked.id, expected, by="anna")
        else:
            await box.hold.approve(asked.id, by=expected)
    assert await handle.result(timeout=60) == ["One?", "Two?", "Three?", "Four?"]
    keys = [one.step_key for one in await all_approvals(box.hold, handle)]
    assert sorted(keys) == ["approval", "approval#2", "question", "question#2"]
