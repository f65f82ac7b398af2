"""Sub-agents over rounds of their caller: what one of them did once is not done again, however the work is divided."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from holdfast import (
    Agent,
    Context,
    Handle,
    Holdfast,
    NotHappened,
    Retry,
    ScriptedModel,
    Task,
    TaskCancelled,
    TaskFilter,
)
from holdfast import tool as make_tool
from holdfast.agent.model import Request
from holdfast.agent.scripted import Answer, Line, ScriptedCall, call
from holdfast.agent.tool_calls import Dispatcher
from tests.agent.support import Defined, finished, register, shown, tool_results
from tests.engine.support import until


class Bank:
    """A tool that counts payments by what they are for."""

    def __init__(self, *, answers: bool = True) -> None:
        self.paid: list[int] = []

        @make_tool(risk="external_action", effect="once", settle=0)
        async def pay(amount: int) -> str:
            """Pay an amount."""
            self.paid.append(amount)
            if not answers:
                raise ConnectionResetError
            return f"paid {amount}"

        self.pay = pay


async def children_of(hold: Holdfast, handle: Handle[str]) -> list[Task]:
    page = await hold.store.find(TaskFilter(parent_id=handle.id))
    return sorted(page.items, key=lambda task: task.id)


def boss(
    hold: Holdfast, replies: Sequence[Line], helper: Sequence[Answer], bank: Bank
) -> tuple[Defined, ScriptedModel]:
    """Register an agent whose first answer is rejected, and a helper that can pay; return both."""
    left = list(helper)  # in the order of the requests: a new conversation has turns of its own
    model = ScriptedModel(lambda _: left.pop(0))
    sub = Agent("helper", model=model, description="Helps.", tools=[bank.pay])

    async def is_good(_: Context, answer: str) -> bool | str:
        return "good" in answer or "do it better"

    agent, _ = register(hold, replies, tools=[sub], verify=is_good)
    return agent, model


async def test_the_same_request_goes_on_with_the_same_sub_agent(hold: Holdfast) -> None:
    bank = Bank()
    agent, model = boss(
        hold,
        [call("helper", request="Pay 500."), "bad", call("helper", request="Pay 500."), "good"],
        [call("pay", amount=500), "done", call("pay", amount=500), "done again"],
        bank,
    )
    handle = await finished(hold, agent)
    assert bank.paid == [500]
    [child] = await children_of(hold, handle)
    assert (child.round, child.feedback) == (2, "do it better")
    assert any("do it better" in content for _, content in shown(model))


async def test_another_request_goes_on_with_the_next_one_and_its_calls_are_known_by_their_arguments(
    hold: Holdfast,
) -> None:
    bank = Bank()
    agent, model = boss(
        hold,
        [call("helper", request="Pay 500."), "bad", call("helper", request="Pay 500 and 7."), "good"],
        [call("pay", amount=500), "done", call("pay", amount=7), call("pay", amount=500), "done again"],
        bank,
    )
    handle = await finished(hold, agent)
    assert bank.paid == [500, 7]
    [child] = await children_of(hold, handle)
    assert child.user_input == ["Pay 500 and 7."]
    assert shown(model)[0] == ("user", "Pay 500 and 7."), "it is a new piece of work"
    assert (await hold.state(child.id)).goal == "Pay 500 and 7."


async def test_calls_of_sub_agents_that_are_not_needed_any_more_are_taken_over_once(hold: Holdfast) -> None:
    bank = Bank()
    agent, _ = boss(
        hold,
        [
            call("helper", request="Pay 500."),
            call("helper", request="Pay 7."),
            "bad",
            call("helper", request="Pay 500."),  # this one goes on; it also pays what the other one paid, twice
            "good",
        ],
        [
            *(call("pay", amount=500), "done"),
            *(call("pay", amount=7), "done"),
            *(call("pay", amount=7), call("pay", amount=7), call("pay", amount=500), "all done"),
        ],
        bank,
    )
    handle = await finished(hold, agent)
    assert bank.paid == [500, 7, 7], "one of the two is the payment of the earlier round, the other one is new"
    first, second = await children_of(hold, handle)
    assert (first.round, second.round) == (2, 1)


@pytest.mark.parametrize("parallel", [False, True])
async def test_each_earlier_sub_agent_is_continued_once(hold: Holdfast, *, parallel: bool) -> None:
    bank = Bank()
    requests = [call("helper", request="Say hello."), call("helper", request="Say hello.")]
    asked: list[Line] = [requests] if parallel else list(requests)
    agent, _ = boss(hold, [*asked, "bad", *asked, "good"], ["hello"] * 4, bank)
    handle = await finished(hold, agent)
    assert [child.round for child in await children_of(hold, handle)] == [2, 2]


async def is_good(_: Context, answer: str) -> bool | str:
    return "good" in answer or "do it better"


def pays(*amounts: int) -> ScriptedCall:
    return call("helper", request=f"Pay {' and '.join(map(str, amounts))}.")


def pay_what_is_asked(request: Request) -> Answer:
    """Answer as a model that makes the payments of its request, in every round."""
    said = [(message.role, message.content) for message in request.messages]
    last = max(at for at, (role, _) in enumerate(said) if role == "user")
    asked = next(content for role, content in reversed(said) if role == "user" and not content.startswith("Your work"))
    amounts = re.findall(r"\d+", asked)
    made = sum(role == "tool" for role, _ in said[last:])
    return call("pay", amount=int(amounts[made])) if made < len(amounts) else "done"


async def test_a_call_that_is_proven_absent_does_not_hide_the_one_that_was_made(hold: Holdfast) -> None:
    closed, paid = [True], []

    @make_tool(risk="external_action", effect="once")
    async def pay(amount: int) -> str:
        """Pay an amount."""
        if closed:
            closed.clear()
            raise NotHappened("the bank is closed")
        paid.append(amount)
        return "paid"

    once = call("pay", amount=5)
    agent, _ = register(hold, [once, once, "bad", once, "good"], tools=[pay], verify=is_good)
    await finished(hold, agent)
    assert paid == [5]


async def test_however_the_work_is_divided_each_earlier_call_stands_for_one_of_this_round() -> None:
    rounds: list[tuple[list[Line], list[int]]] = [
        ([pays(5), "bad", pays(7), pays(5), "good"], [5, 7]),  # the one that paid 5 is at work, on something else
        ([pays(5), "bad", [pays(7), pays(5)], "good"], [5, 7]),
        ([[pays(5, 6)], "bad", [pays(6), pays(5)], "good"], [5, 6]),
        ([pays(5), pays(6), "bad", pays(5, 6), "bad", pays(5), pays(6), "good"], [5, 6]),
        ([pays(5), "bad", pays(7, 5), pays(5), "good"], [5, 5, 7]),
        ([pays(5), "bad", [pays(7, 5), pays(5)], "good"], [5, 5, 7]),  # the first to come has it, the other one pays
        ([pays(5), "bad", pays(7, 5), pays(5), "bad", pays(5), pays(5), pays(5), "good"], [5, 5, 5, 7]),
    ]
    for replies, wanted in rounds:
        async with Holdfast("memory://") as hold:
            bank = Bank()
            sub = Agent("helper", model=ScriptedModel(pay_what_is_asked), description="Helps.", tools=[bank.pay])
            agent, _ = register(hold, replies, tools=[sub], verify=is_good)
            await finished(hold, agent)
            assert sorted(bank.paid) == wanted, replies


async def test_a_sub_agent_whose_call_another_one_has_taken_makes_its_own(hold: Holdfast) -> None:
    booked: list[str] = []
    full = [True]

    @make_tool(risk="external_action", effect="once")
    async def book(flight: str) -> str:
        """Book a seat."""
        booked.append(flight)
        return f"seat {len(booked)}"

    def think(request: Request) -> Answer:
        if full and "Ann" in request.messages[-1].content:
            full.clear()
            return "There is no seat."
        last = request.messages[-1]
        return f"booked {last.content}" if last.role == "tool" else call("book", flight="LH1")

    sub = Agent("helper", model=ScriptedModel(think), description="Books.", tools=[book])
    both = [call("helper", request="A seat for Ann."), call("helper", request="A seat for Bob.")]
    agent, _ = register(hold, [*both, "bad", *both, "good"], tools=[sub], verify=is_good)
    handle = await finished(hold, agent)
    assert len(booked) == 2, "two passengers"
    assert {child.result for child in await children_of(hold, handle)} == {"booked seat 1", "booked seat 2"}


@pytest.mark.parametrize("is_decided", [False, True])
async def test_a_call_in_doubt_at_a_sibling_is_not_made_before_it_is_decided(
    hold: Holdfast, *, is_decided: bool
) -> None:
    bank, go_on = Bank(answers=False), asyncio.Event()

    def think(request: Request) -> Answer:
        said = [message.content for message in request.messages if message.role == "user"]
        tries = {"Say hello.": 0, "Pay 5.": 1}.get(said[-1], 1 if is_decided else 2)
        made = sum(message.role == "tool" for message in request.messages)
        return call("pay", amount=5) if made < tries else "done"

    async def is_accepted(ctx: Context, answer: str) -> bool | str:
        await go_on.wait()
        return await is_good(ctx, answer)

    async def is_for_a_person() -> bool:
        return any(doubt.decisions for doubt in await hold.doubts())

    model = ScriptedModel(think)
    sub = Agent("helper", model=model, description="Helps.", tools=[bank.pay])
    requests = [call("helper", request=text) for text in ("Say hello.", "Pay 5.", "Say hello and pay 5.")]
    agent, _ = register(hold, [*requests[:2], "bad", requests[2], "good"], tools=[sub], verify=is_accepted)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        await until(is_for_a_person, patience=60)
        [doubt] = await hold.doubts()
        await hold.cancel(doubt.effect.task_id, "stuck")
        with suppress(TaskCancelled):
            await hold.handle(doubt.effect.task_id).result(timeout=60)
        if is_decided:
            await hold.resolve(doubt.effect.effect_id, "happened", result="paid 5", by="ann")
        go_on.set()
        await handle.result(timeout=60)
    assert bank.paid == [5]
    if is_decided:
        assert tool_results(model) == ["paid 5"], "taken over with the result that a person named"
    else:
        assert len(tool_results(model)) == 2, "the second try is refused as the first one was"
        assert all("not known yet" in content for content in tool_results(model))


async def test_a_call_that_was_taken_and_not_recorded_is_taken_again_in_the_next_round(
    hold: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, dies = Bank(), [True]
    take_over = Dispatcher._take_over

    async def die_first(self: Dispatcher, *args: Any) -> Any:  # noqa: ANN401
        if dies:
            dies.clear()
            raise RuntimeError("died between taking and recording")
        return await take_over(self, *args)

    monkeypatch.setattr(Dispatcher, "_take_over", die_first)
    model = ScriptedModel(pay_what_is_asked)
    sub = Agent("helper", model=model, description="Helps.", tools=[bank.pay], retry=Retry(max_attempts=1))
    replies: list[Line] = [call("helper", request="Hello."), pays(5), "bad", pays(5, 7), "bad", pays(5, 7), "good"]
    agent, _ = register(hold, replies, tools=[sub], verify=is_good, retry=Retry(max_attempts=3))
    await finished(hold, agent)
    assert not dies
    assert bank.paid == [5, 7]


async def test_a_sub_agent_that_is_rejected_itself_still_has_what_it_took(hold: Holdfast) -> None:
    bank, left = Bank(), ["good", "bad", "good", "good"]

    def think(request: Request) -> Answer:
        answer = pay_what_is_asked(request)
        return left.pop(0) if answer == "done" else answer

    sub = Agent("helper", model=ScriptedModel(think), description="Helps.", tools=[bank.pay], verify=is_good)
    agent, _ = register(hold, [pays(5), "bad", pays(5), pays(5), "good"], tools=[sub], verify=is_good)
    handle = await finished(hold, agent)
    assert bank.paid == [5, 5], "the second sub-agent of the new round pays for itself"
    assert [child.round for child in await children_of(hold, handle)] == [3, 1]


async def test_parallel_requests_of_a_new_round_continue_a_sub_agent_each(hold: Holdfast) -> None:
    bank = Bank()
    sub = Agent("helper", model=ScriptedModel(pay_what_is_asked), description="Helps.", tools=[bank.pay])
    agent, _ = register(hold, [[pays(5), pays(6)], "bad", [pays(7), pays(8)], "good"], tools=[sub], verify=is_good)
    handle = await hold.submit(agent, "go")
    get = hold.store.get

    async def get_slowly(task_id: str) -> Task | None:
        """Let what parallel calls look up about earlier sub-agents overlap."""
        task = await get(task_id)
        if task is not None and task.parent_id == handle.id:
            await asyncio.sleep(0.05)
        return task

    hold.store.get = get_slowly  # type: ignore[method-assign]
    async with hold.worker():
        await handle.result(timeout=60)
    assert sorted(bank.paid) == [5, 6, 7, 8]
    assert [child.round for child in await children_of(hold, handle)] == [2, 2]
