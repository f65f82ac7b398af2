"""What a person agreed to is what is done: the same question, the same terms, the same arguments."""

import asyncio
import json

import pytest

from holdfast import Ask, Context, TaskState
from holdfast.testing import Sandbox
from tests.engine.steps.approval.support import all_approvals, question_of
from tests.engine.support import ended, reaches, until


async def test_an_approval_without_details_is_for_its_question(box: Sandbox) -> None:
    hold, version = box.hold, ["v1"]

    @hold.task
    async def deploy(ctx: Context) -> str:
        now = version[0]
        await ctx.approval(f"Deploy {now} to production?")
        return f"deployed {now}"

    handle = await hold.submit(deploy)
    asked = await question_of(hold, handle)
    await reaches(handle, TaskState.WAITING)
    version[0] = "v2"
    await hold.approve(asked.id, by="anna")
    asked = await question_of(hold, handle)
    assert asked.question == "Deploy v2 to production?"
    assert not (await handle.task()).state.is_terminal
    await hold.approve(asked.id, by="anna")
    assert await ended(handle) == "deployed v2"


async def test_an_approval_with_details_is_for_those(box: Sandbox) -> None:
    """However the question is worded."""
    hold, wording = box.hold, ["Deploy?"]

    @hold.task
    async def deploy(ctx: Context) -> str:
        await ctx.approval(wording[0], details={"version": 1})
        return "deployed"

    handle = await hold.submit(deploy)
    asked = await question_of(hold, handle)
    await reaches(handle, TaskState.WAITING)
    wording[0] = "Deploy to production?"
    await hold.approve(asked.id, by="anna")
    assert await ended(handle) == "deployed"
    assert len(await all_approvals(hold, handle)) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Ask("Wipe?", deciders=("intern",)), Ask("Wipe?", deciders=("boss",))),
        (Ask("Wipe?", deciders=("intern",)), Ask("Wipe?", risk="external_action", deciders=("intern",))),
        (Ask("Wipe?", deciders=("intern",)), Ask("Wipe?", deciders=("intern",), policy="two years")),
    ],
    ids=["other deciders", "another risk", "another policy"],
)
@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_an_approval_on_other_terms_lets_nothing_through(
    box: Sandbox, before: Ask, after: Ask, effect: str
) -> None:
    hold, ask, wiped = box.hold, [before], list[str]()

    async def wipe(what: str) -> str:
        wiped.append(what)
        return "wiped"

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("wipe", wipe, "database", effect=effect, approval=ask[0])

    handle = await hold.submit(work)
    first = await question_of(hold, handle)
    await reaches(handle, TaskState.WAITING)
    ask[0] = after
    await hold.approve(first.id, by="intern")

    async def is_asked_again() -> bool:
        return {one.id for one in await hold.approvals(handle)} - {first.id} != set()

    await until(is_asked_again)
    assert wiped == []
    second = await question_of(hold, handle)
    assert (second.deciders, second.risk, second.policy) == (after.deciders, after.risk, after.policy)
    await hold.approve(second.id, by=after.deciders[0])
    assert await ended(handle) == "wiped"
    assert wiped == ["database"]


async def test_what_was_agreed_to_is_called_whatever_became_of_the_callers_objects(box: Sandbox) -> None:
    hold, paid = box.hold, list[list[str]]()
    asked, changed, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def pay(payees: list[str]) -> str:
        paid.append(list(payees))
        return "paid"

    @hold.task
    async def work(ctx: Context) -> str:
        payees = ["anna"]

        async def change() -> None:
            await asked.wait()
            payees.append("mallory")
            changed.set()
            await go_on.wait()  # the task stays in this attempt, with this list

        step = asyncio.create_task(ctx.step("pay", pay, payees, effect="once", approval=Ask("Pay these?")))
        await ctx.step("change", change)
        return await step

    handle = await hold.submit(work)
    question = await question_of(hold, handle)
    assert json.loads(question.arguments_bytes)["data"] == [["anna"]]
    asked.set()
    await changed.wait()
    await hold.approve(question.id, by="boss")
    await until(lambda: paid)
    go_on.set()
    assert await ended(handle) == "paid"
    assert paid == [["anna"]]
