"""Sub-agents draw on the accounts of all who called them, and together they never take more than those have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from holdfast import (
    Agent,
    Budget,
    Handle,
    Holdfast,
    InvalidValue,
    Price,
    Request,
    ScriptedModel,
    TaskFailed,
    TaskState,
    Usage,
    tool,
)
from holdfast.agent.budget_figures import Books
from holdfast.agent.prices import FREE
from holdfast.agent.scripted import Answer, call
from holdfast.model.commit import Commit, Verdict
from holdfast.model.operations import Reserve, Settle
from holdfast.model.records import Account
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.budget.support import PATIENCE, asked, books, completed, look, register, why
from tests.engine.conftest import watch
from tests.engine.support import Watched

__all__ = ["watch"]


def helper(script: Any, *, name: str = "helper", **options: Any) -> Agent:  # noqa: ANN401
    """An agent to be called by others."""
    model = (
        script
        if isinstance(script, ScriptedModel)
        else ScriptedModel(script, usage=Usage(input_tokens=10, output_tokens=5))
    )
    return Agent(name, model=model, builtins=False, description="helps", **options)


async def children_of(hold: Holdfast, task: Handle[Any]) -> list[str]:
    tasks = (await hold.store.find(limit=1_000)).items
    return [one.id for one in tasks if one.parent_id == task.id]


# Whose account


async def test_what_a_child_uses_is_on_both_accounts(either: Holdfast) -> None:
    child = helper([call("look"), "found"], tools=[look])
    agent, _ = register(
        either,
        [call("helper", request="find it"), "done"],
        tools=[child],
        usage=Usage(input_tokens=100, output_tokens=0),
        budget=Budget(max_steps=20, max_llm_tokens=50_000),
    )
    task = await completed(either, agent)
    [inner] = await children_of(either, task)
    assert await books(either, inner) == {"steps": (18, 3, 0), "llm_tokens": (49_900, 30, 0)}
    assert await books(either, task) == {"steps": (20, 6, 0), "llm_tokens": (50_000, 230, 0)}


async def test_nested_agents_draw_on_every_account_above(either: Holdfast) -> None:
    leaf = helper([call("look"), "found"], name="leaf", tools=[look])
    middle = helper([call("leaf", request="look"), "passed on"], name="middle", tools=[leaf])
    agent, _ = register(either, [call("middle", request="go"), "done"], tools=[middle], budget=Budget(max_steps=20))
    task = await completed(either, agent)
    [second] = await children_of(either, task)
    [third] = await children_of(either, either.handle(second))
    assert (await books(either, third))["steps"] == (16, 3, 0)
    assert (await books(either, second))["steps"] == (18, 3 + 3, 0)
    assert (await books(either, task))["steps"] == (20, 3 + 3 + 3, 0)


async def test_an_account_without_a_limit_is_left_alone(hold: Holdfast) -> None:
    child = helper(["found"])
    agent, _ = register(hold, [call("helper", request="x"), "done"], tools=[child])
    task = await completed(hold, agent)
    assert (await books(hold, task))["steps"] == (None, 3, 0)


# Shares


@pytest.mark.parametrize(
    ("own", "left", "share", "limits"),
    [
        (Budget(), {}, 1.0, {}),
        (Budget(max_steps=5), {}, 0.5, {"steps": 5}),
        (Budget(), {"steps": 11}, 0.5, {"steps": 5}),
        (Budget(max_steps=3), {"steps": 11}, 0.5, {"steps": 3}),
        (Budget(max_steps=9), {"steps": 11}, 0.5, {"steps": 5}),
        (
            Budget(max_llm_tokens=70),
            {"steps": 10, "wall_time_ms": 999},
            1.0,
            {"llm_tokens": 70, "steps": 10, "wall_time_ms": 999},
        ),
        (Budget(), {"steps": -3}, 0.5, {"steps": 0}),
        (Budget(), {"steps": 1}, 0.1, {"steps": 0}),
    ],
)
def test_a_childs_limits_are_its_own_and_its_share(
    own: Budget, left: dict[str, int], share: float, limits: dict[str, int]
) -> None:
    caller = Books("caller", FREE)
    caller.lines["caller"] = {
        meter: Account(account="caller", meter=meter, limit=100, spent=100 - amount, reserved=0)
        for meter, amount in left.items()
    }
    assert helper(["x"], budget=own).as_tool(share=share).limits(caller) == limits


@pytest.mark.parametrize("share", [0, -0.5, 1.01, 2])
def test_an_invalid_share_is_refused(share: float) -> None:
    with pytest.raises(InvalidValue, match="give more than 0, up to 1"):
        helper(["x"]).as_tool(share=share)


async def test_a_child_with_a_share_stops_at_it_and_its_caller_goes_on(either: Holdfast) -> None:
    seen: list[str] = []

    async def for_ever(request: Request) -> Answer:
        return call("look", place=str(request.turn))

    @tool(risk="read_only")
    async def look(place: str) -> str:
        """Look somewhere."""
        seen.append(place)
        return "nothing"

    child = helper(for_ever, tools=[look]).as_tool(share=0.5)
    agent, model = register(
        either, [call("helper", request="x"), "done without"], tools=[child], budget=Budget(max_steps=14)
    )
    task = await completed(either, agent)
    assert await task.result() == "done without"
    [result] = [message.content for message in model.requests[-1].messages if message.role == "tool"]
    assert "helper did not do it" in result
    assert "budget for steps is spent" in result
    assert len(seen) == 3  # six steps are half of the twelve that were left: three answers, three calls
    assert (await books(either, task))["steps"] == (14, 2 + 6 + 1, 0)


async def test_a_child_can_use_up_its_callers_account(either: Holdfast) -> None:
    async def for_ever(request: Request) -> Answer:
        return call("look", place=str(request.turn))

    child = helper(for_ever, tools=[look])
    agent, _ = register(
        either,
        [call("helper", request="x"), "done without"],
        tools=[child],
        budget=Budget(max_steps=9, on_exhausted="ask"),
    )
    task = await either.submit(agent, "go")
    async with either.worker():
        question = await asked(either, task)
        assert "9 steps of 9 steps" in question.question
        await either.approve(question.id, by="ann")
        assert await task.result(timeout=PATIENCE) == "done without"
    assert (await books(either, task))["steps"] == (18, 10, 0)


# Many at once


async def test_children_that_answer_at_once_cannot_count_the_same_steps(either: Holdfast) -> None:
    """Both have read that four steps are left when both answers, each with three calls, come in."""
    both = asyncio.Barrier(2)
    made: list[str] = []

    async def at_once(_: Request) -> Answer:
        await both.wait()
        return [call("look", place=str(number)) for number in range(3)]

    @tool(risk="read_only")
    async def look(place: str) -> str:
        """Look somewhere."""
        made.append(place)
        return "nothing"

    child = helper([at_once, "found"], tools=[look])
    agent, _ = register(
        either,
        [[call("helper", request="a"), call("helper", request="b")], "done"],
        tools=[child],
        budget=Budget(max_steps=8),
    )
    task = await either.submit(agent, "go")
    async with either.worker():
        await why(task)
    assert (await books(either, task))["steps"] == (8, 8, 0)
    assert len(made) == 3


CHILDREN = 8
LIMIT = 60


class Overlap:
    """Counts how many calls hold part of an account at the same time."""

    def __init__(self) -> None:
        self._holding: set[tuple[str, str]] = set()
        self.most = 0

    async def note(self, commits: Sequence[Commit], verdicts: list[Verdict]) -> None:
        for commit, verdict in zip(commits, verdicts, strict=True):
            for operation in commit.operations if verdict.applied else ():
                if isinstance(operation, Reserve):
                    self._holding.add((commit.task_id, operation.step_key))
                elif isinstance(operation, Settle):
                    self._holding.discard((commit.task_id, operation.step_key))
            self.most = max(self.most, len(self._holding))


async def test_many_children_on_many_workers_never_overspend(
    database_url: str, watch: Callable[[], list[Watched]]
) -> None:
    """Steps are exact; what was really asked and called is counted on the other side."""
    watches = watch()
    asked_model: list[int] = []
    made: list[str] = []
    overlap = Overlap()

    async def for_ever(request: Request) -> Answer:
        asked_model.append(1)
        await asyncio.sleep(0)
        return [call("look", place=f"{request.effect_id}.{number}") for number in range(1 + (request.turn or 0) % 3)]

    @tool(risk="read_only")
    async def look(place: str) -> str:
        """Look somewhere."""
        made.append(place)
        return "nothing"

    def office() -> tuple[Holdfast, Any]:
        hold = Holdfast(database_url)
        child = helper(for_ever, tools=[look])
        calls = [call("helper", request=f"part {number}") for number in range(CHILDREN)]
        agent, _ = register(hold, [calls, "done"], tools=[child], budget=Budget(max_steps=LIMIT))
        return hold, agent

    (one, agent), (other, _) = office(), office()
    async with one, other:
        for watched in watches:
            watched.after_commit = overlap.note
        task = await one.submit(agent, "go")
        async with one.worker(concurrency=20), other.worker(concurrency=20):
            await why(task)
        found = await books(one, task)
        children = [await books(one, child) for child in await children_of(one, task)]
        states = [(await one.handle(child).task()).state for child in await children_of(one, task)]
    assert overlap.most > 1, "no two calls overlapped: this proves nothing"
    assert len(children) == CHILDREN
    assert set(states) == {TaskState.FAILED}
    assert all(held["steps"][2] == 0 for held in children)
    inside = sum(held["steps"][1] for held in children)
    assert inside == len(asked_model) + len(made)
    limit, spent, reserved = found["steps"]
    assert (limit, reserved) == (LIMIT, 0)
    assert spent == 1 + CHILDREN + inside <= LIMIT
    assert spent > LIMIT - 4  # and they got all that there was room for


async def test_many_children_never_reserve_more_tokens_than_there_are(
    database_url: str, watch: Callable[[], list[Watched]]
) -> None:
    watches = watch()
    overlap = Overlap()
    answers: list[Usage] = []

    async def for_ever(request: Request) -> Answer:
        await asyncio.sleep(0)
        return call("look", place=f"{request.effect_id}")

    def honest(request: Request, _: object) -> Usage:
        """It takes all that it may."""
        answers.append(Usage(input_tokens=50, output_tokens=request.max_output_tokens or 0))
        return answers[-1]

    child = Agent(
        "helper",
        model=ScriptedModel(for_ever, usage=honest),
        builtins=False,
        description="helps",
        tools=[look],
        max_output_tokens=40,
        prices={"scripted": Price(1, 1)},
    )
    async with Holdfast(database_url) as hold:
        watches[-1].after_commit = overlap.note
        calls = [call("helper", request=f"part {number}") for number in range(CHILDREN)]
        agent, _ = register(
            hold,
            [calls, "done"],
            tools=[child],
            usage=Usage(input_tokens=50, output_tokens=50),
            prices={"scripted": Price(1, 1)},
            budget=Budget(max_llm_tokens=6_000, max_cost=1),
        )
        task = await hold.submit(agent, "go")
        async with hold.worker(concurrency=20):
            with suppress(TaskFailed):  # what they leave may not be enough for the last answer
                await task.result(timeout=PATIENCE)
        found = await books(hold, task)
    assert overlap.most > 1, "no two calls overlapped: this proves nothing"
    taken = sum(one.total for one in answers)
    limit, spent, reserved = found["llm_tokens"]
    assert reserved == found["cost_micros"][2] == 0
    assert spent in {taken + 100, taken + 200}  # its own answers are 100 tokens each
    assert spent <= (limit or 0)
    assert found["cost_micros"][1] == spent


# Crashes


async def test_a_childs_steps_are_counted_once_wherever_a_worker_dies(app: Holdfast) -> None:
    child = helper([call("look"), "found"], tools=[look])
    agent, _ = register(
        app, [call("helper", request="x"), "done"], tools=[child], budget=Budget(max_steps=20, max_llm_tokens=900_000)
    )

    async def scenario(box: Sandbox) -> list[tuple[int | None, int, int]]:
        task = await box.hold.submit(agent, "go")
        await task.result()
        [inner] = await children_of(box.hold, task)
        counted = [await books(box.hold, task), await books(box.hold, inner)]
        assert all(found["llm_tokens"][2] == 0 for found in counted)
        return [found["steps"] for found in counted]

    survived = await crash_everywhere(app, scenario)
    assert survived.result == [(20, 6, 0), (18, 3, 0)]
    assert survived.crashes >= 20
