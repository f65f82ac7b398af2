"""Sub-agents over rounds of their caller: what one of them did once is not done again, however the work is divided."""

from collections.abc import Sequence

import pytest

from holdfast import Agent, Context, Handle, Holdfast, ScriptedModel, Task, TaskFilter
from holdfast import tool as make_tool
from holdfast.agent.scripted import Answer, Line, call
from tests.agent.support import Defined, finished, register, shown


class Bank:
    """A tool that counts payments by what they are for."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @make_tool(risk="external_action", effect="once")
        async def pay(amount: int) -> str:
            """Pay an amount."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.pay = pay


async def children_of(hold: Holdfast, handle: Handle[str]) -> list[Task]:
    page = await hold.store.find(TaskFilter(parent_id=handle.id))
    return sorted(page.items, key=lambda task: task.id)


def boss(
    hold: Holdfast, replies: Sequence[Line], helper: Sequence[Answer], bank: Bank
) -> tuple[Defined, ScriptedModel]:
    """Register an agent whose first answer is rejected, and a helper that can pay; return both."""
    left = list(helper)  # in the order of the requests: a conversation that begins anew has turns of its own
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
