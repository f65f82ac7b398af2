"""When a budget is spent: the task fails and can be given more, or a person is asked and decides how it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from holdfast import Budget, Conflict, Holdfast, InvalidValue, NotFound, Request, TaskState, Usage, tool
from holdfast.agent.scripted import Answer, Line, call
from holdfast.model.commit import Commit, Verdict
from holdfast.model.operations import OpenApproval
from holdfast.testing import sandbox
from tests.agent.budget.support import (
    PATIENCE,
    asked,
    books,
    completed,
    failed,
    flags,
    line,
    look,
    register,
    spent_ms,
    why,
)
from tests.engine.conftest import watch
from tests.engine.support import Watched, until

__all__ = ["watch"]

THREE_TURNS: list[Line] = [call("look", place="a"), call("look", place="b"), "done"]


# Fail, then more


async def test_a_task_that_failed_goes_on_where_it_was_once_it_has_more(either: Holdfast) -> None:
    agent, model = register(either, THREE_TURNS, tools=[look], budget=Budget(max_steps=2))
    task = await failed(either, agent)
    await either.extend_budget(task, Budget(max_steps=5), by="ann")
    assert (await task.task()).state is TaskState.FAILED  # more budget alone does not revive it
    await either.resume(task)
    async with either.worker():
        assert await task.result(timeout=PATIENCE) == "done"
    assert len(model.requests) == 3  # nothing was asked twice
    assert (await books(either, task))["steps"] == (5, 5, 0)
    assert (await either.state(task)).budget.max_steps == 5


async def test_resumed_without_more_it_fails_again_without_a_call(hold: Holdfast) -> None:
    agent, model = register(hold, THREE_TURNS, tools=[look], budget=Budget(max_steps=2))
    task = await failed(hold, agent)
    await hold.resume(task)
    await failed(hold, handle=task)
    assert len(model.requests) == 1
    assert (await books(hold, task))["steps"] == (2, 2, 0)


async def test_an_answer_whose_calls_do_not_fit_is_kept(either: Holdfast) -> None:
    agent, model = register(either, THREE_TURNS, tools=[look], budget=Budget(max_steps=3))
    task = await failed(either, agent)
    assert len(model.requests) == 2
    assert "look:2.0" not in {step.key for step in await either.store.steps(task.id)}
    await either.extend_budget(task, Budget(max_steps=9), by="ann")
    await either.resume(task)
    async with either.worker():
        await task.result(timeout=PATIENCE)
    assert len(model.requests) == 3
    assert (await books(either, task))["steps"] == (9, 5, 0)


async def test_a_call_that_must_not_happen_twice_waits_for_its_budget(hold: Holdfast) -> None:
    deployed: list[str] = []

    @tool(risk="external_action", effect="once")
    async def deploy(what: str) -> str:
        """Deploy it."""
        deployed.append(what)
        return "deployed"

    agent, model = register(hold, [call("deploy", what="it"), "done"], tools=[deploy], budget=Budget(max_steps=1))
    task = await failed(hold, agent)
    assert deployed == []
    assert await hold.store.effects(task_id=task.id) == []  # not even armed: it may not be paid for
    await hold.extend_budget(task, Budget(max_steps=3), by="ann")
    await hold.resume(task)
    async with hold.worker():
        await task.result(timeout=PATIENCE)
    assert deployed == ["it"]
    assert len(model.requests) == 2


# Ask


async def test_approving_grants_the_same_again(either: Holdfast) -> None:
    agent, _ = register(either, THREE_TURNS, tools=[look], budget=Budget(max_steps=4, on_exhausted="ask"))
    task = await either.submit(agent, "go")
    async with either.worker():
        question = await asked(either, task)
        assert question.kind == "budget"
        assert question.question == (
            "The budget is spent: 4 steps of 4 steps. Approve to grant 4 steps more, or answer with a new limit in the "
            "same unit."
        )
        await until(lambda: _waits(task), patience=PATIENCE)
        await either.approve(question.id, by="ann")
        assert await task.result(timeout=PATIENCE) == "done"
    assert (await books(either, task))["steps"] == (8, 5, 0)


async def _waits(task: object) -> bool:
    return (await task.task()).state is TaskState.WAITING  # type: ignore[attr-defined]


async def test_an_answer_sets_the_limit(hold: Holdfast) -> None:
    agent, _ = register(hold, THREE_TURNS, tools=[look], budget=Budget(max_steps=2, on_exhausted="ask"))
    task = await hold.submit(agent, "go")
    async with hold.worker():
        await hold.answer((await asked(hold, task)).id, 4, by="ann")
        second = await asked(hold, task, times=2)
        assert "4 steps of 4 steps" in second.question
        await hold.answer(second.id, 5, by="ann")
        await task.result(timeout=PATIENCE)
    assert (await books(hold, task))["steps"] == (5, 5, 0)


async def test_an_answer_that_grants_nothing_is_refused(hold: Holdfast) -> None:
    agent, _ = register(hold, THREE_TURNS, tools=[look], budget=Budget(max_steps=2, on_exhausted="ask"))
    task = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, task)
        for nothing in (1, 2, -5, 10**30, 5.5, True, None, "no, stop it!", [7]):
            with pytest.raises(InvalidValue, match="answer with"):
                await hold.answer(question.id, nothing, by="ann")
        await hold.answer(question.id, 5, by="ann")
        await task.result(timeout=PATIENCE)
    assert (await books(hold, task))["steps"] == (5, 5, 0)


async def test_extending_decides_the_open_question(either: Holdfast) -> None:
    agent, _ = register(either, THREE_TURNS, tools=[look], budget=Budget(max_steps=2, on_exhausted="ask"))
    task = await either.submit(agent, "go")
    async with either.worker():
        question = await asked(either, task)
        await either.extend_budget(task, Budget(max_steps=7), by="ann", note="fine")
        assert await task.result(timeout=PATIENCE) == "done"
    decided = await either.store.approval(question.id)
    assert decided is not None
    assert (decided.state, decided.decided_by, decided.note) == ("approved", "ann", "fine")
    assert (await books(either, task))["steps"] == (7, 5, 0)  # set, and not granted once more on top


async def test_extending_as_soon_as_it_asks_is_not_overruled_by_the_grant(
    database_url: str, watch: Callable[[], list[Watched]]
) -> None:
    """The agent has not even begun to wait: it sees the decision in the same attempt."""
    watches = watch()
    async with Holdfast(database_url) as hold:
        extended: list[str] = []

        async def after(commits: Sequence[Commit], _: list[Verdict]) -> None:
            for commit in commits:
                if not extended and any(isinstance(one, OpenApproval) for one in commit.operations):
                    extended.append(commit.task_id)
                    await hold.extend_budget(commit.task_id, Budget(max_steps=7), by="ann")

        watches[-1].after_commit = after
        agent, _ = register(hold, THREE_TURNS, tools=[look], budget=Budget(max_steps=2, on_exhausted="ask"))
        task = await completed(hold, agent)
        assert extended == [task.id]
        assert TaskState.WAITING not in {move.to_state for move in await hold.store.history(task.id)}
        assert len(await hold.store.approvals(task_id=task.id)) == 1
        assert (await books(hold, task))["steps"] == (7, 5, 0)


async def test_rejecting_ends_it(hold: Holdfast) -> None:
    agent, model = register(hold, THREE_TURNS, tools=[look], budget=Budget(max_steps=2, on_exhausted="ask"))
    task = await hold.submit(agent, "go")
    async with hold.worker():
        await hold.reject((await asked(hold, task)).id, by="ann", note="enough")
        assert "BudgetExceeded" in str(await why(task))
    assert len(model.requests) == 1
    assert (await books(hold, task))["steps"] == (2, 2, 0)


async def test_a_rejected_task_can_be_given_more_after_all(hold: Holdfast) -> None:
    agent, _ = register(hold, THREE_TURNS, tools=[look], budget=Budget(max_steps=2, on_exhausted="ask"))
    task = await hold.submit(agent, "go")
    async with hold.worker():
        await hold.reject((await asked(hold, task)).id, by="ann")
        await until(lambda: _failed(task), patience=PATIENCE)
        await hold.extend_budget(task, Budget(max_steps=5), by="ann")
        await hold.resume(task)
        assert await task.result(timeout=PATIENCE) == "done"


async def _failed(task: object) -> bool:
    return (await task.task()).state is TaskState.FAILED  # type: ignore[attr-defined]


async def test_calls_that_do_not_fit_are_made_after_the_grant(either: Holdfast) -> None:
    agent, model = register(either, THREE_TURNS, tools=[look], budget=Budget(max_steps=3, on_exhausted="ask"))
    task = await either.submit(agent, "go")
    async with either.worker():
        await either.approve((await asked(either, task)).id, by="ann")
        await task.result(timeout=PATIENCE)
    assert len(model.requests) == 3
    assert (await books(either, task))["steps"] == (6, 5, 0)


async def test_tokens_are_asked_for_like_steps(hold: Holdfast) -> None:
    agent, _ = register(hold, THREE_TURNS, tools=[look], budget=Budget(max_llm_tokens=90, on_exhausted="ask"))
    task = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, task)
        assert "tokens" in question.question
        await hold.answer(question.id, 100_000, by="ann")
        await task.result(timeout=PATIENCE)
    assert (await line(hold, task, "llm_tokens")).limit == 100_000


async def test_a_grant_is_at_least_what_is_asked_for(hold: Holdfast) -> None:
    """Otherwise a person would have to approve again and again before anything moves."""
    agent, _ = register(hold, ["done"], budget=Budget(max_llm_tokens=1, on_exhausted="ask"))
    task = await hold.submit(agent, "go " * 200)
    async with hold.worker():
        await hold.approve((await asked(hold, task)).id, by="ann")
        await task.result(timeout=PATIENCE)
    assert len(await hold.store.approvals(task_id=task.id)) == 1


async def test_a_grant_also_covers_what_was_overspent(hold: Holdfast) -> None:
    """The estimate of a prompt can be wrong; what was used beyond the limit has been used."""
    usage = Usage(input_tokens=5_000, output_tokens=5)
    budget = Budget(max_llm_tokens=100, on_exhausted="ask")
    agent, _ = register(hold, THREE_TURNS[1:], tools=[look], usage=usage, budget=budget)
    task = await hold.submit(agent, "go")
    async with hold.worker():
        await hold.approve((await asked(hold, task)).id, by="ann")
        await task.result(timeout=PATIENCE)
    assert len(await hold.store.approvals(task_id=task.id)) == 1
    assert (await line(hold, task, "llm_tokens")).spent == 10_010


# Pressure


async def test_pressure_is_a_flag_the_model_sees_and_more_budget_takes_it_away(either: Holdfast) -> None:
    async def on(request: Request) -> Answer:
        return "done" if request.turn == 6 else call("look", place=str(request.turn))

    agent, model = register(either, on, tools=[look], budget=Budget(max_steps=10, on_exhausted="ask"))
    task = await either.submit(agent, "go")
    async with either.worker():
        question = await asked(either, task)
        assert await flags(either, task) == ("budget_pressure",)
        await either.answer(question.id, 100, by="ann")
        await task.result(timeout=PATIENCE)
    assert await flags(either, task) == ()
    pressed = ["budget_pressure" in request.messages[0].content for request in model.requests]
    # The fourth answer and its call are steps 7 and 8 of 10; the sixth was the first after the grant.
    assert pressed == [False, False, False, False, True, True, False]
    changes = [
        (one.step_key, one.patch.set_flags, one.patch.clear_flags)
        for one in await either.state_history(task)
        if one.patch.set_flags or one.patch.clear_flags
    ]
    assert changes == [("llm:4", ("budget_pressure",), ()), ("llm:6", (), ("budget_pressure",))]


# Entry points


async def test_extending_says_what_is_wrong(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"], budget=Budget(max_steps=2))
    task = await completed(hold, agent)
    with pytest.raises(InvalidValue, match="the budget has no limit set"):
        await hold.extend_budget(task, Budget(), by="ann")
    with pytest.raises(Conflict):
        await hold.extend_budget(task, Budget(max_steps=5), by="ann")
    with pytest.raises(NotFound):
        await hold.extend_budget("unknown", Budget(max_steps=5), by="ann")
    with pytest.raises(NotFound):
        await hold.budget("unknown")


# The clock


async def test_the_clock_stands_still_while_a_person_decides(app: Holdfast) -> None:
    @tool(risk="external_action", effect="idempotent")
    async def deploy() -> str:
        """Deploy it."""
        box.clock.advance(1)
        return "deployed"

    agent, _ = register(
        app,
        [call("deploy"), "done"],
        tools=[deploy],
        approve=["external_action"],
        budget=Budget(max_wall_time_ms=5_000),
    )
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            question = await asked(app, task)
            await box.advance(3 * 24 * 3_600)
            assert await spent_ms(app, task) == 0
            await app.approve(question.id, by="ann")
            assert await task.result() == "done"
            assert await spent_ms(app, task) == 1_000


async def test_two_questions_at_once_stop_the_clock_once(app: Holdfast) -> None:
    agent, _ = register(
        app,
        [[call("ask_question", question="Who?"), call("ask_question", question="Where?")], "done"],
        builtins=True,
        budget=Budget(max_wall_time_ms=100_000),
    )
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            await until(lambda: _count(app, task, 2), patience=PATIENCE)
            await box.idle()
            await box.advance(1_000)
            one, other = await app.approvals(task)
            await app.answer(one.id, "ann", by="ann")
            await box.advance(500)  # the other one is still open
            await app.answer(other.id, "here", by="ann")
            assert await task.result() == "done"
            assert await spent_ms(app, task) == 0


async def _count(hold: Holdfast, task: object, number: int) -> bool:
    return len(await hold.approvals(task)) == number  # type: ignore[arg-type]


async def test_the_clock_stands_still_while_the_task_lies_failed(app: Holdfast) -> None:
    async def think(_: Request) -> Answer:
        box.clock.advance(2)
        return "done"

    agent, _ = register(app, [call("look"), think], tools=[look], budget=Budget(max_steps=2, max_wall_time_ms=3_000))
    async with sandbox(app) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            await why(task)
            await box.advance(24 * 3_600)
            assert await spent_ms(app, task) == 0
            await app.extend_budget(task, Budget(max_steps=3), by="ann")
            await app.resume(task)
            assert await task.result() == "done"
            assert await spent_ms(app, task) == 2_000


async def test_time_is_asked_for_too_and_a_grant_of_it_goes_on(app: Holdfast) -> None:
    async def think(_: Request) -> Answer:
        box.clock.advance(4)
        await asyncio.sleep(0.01)
        return call("look")

    agent, model = register(
        app, [think, "done"], tools=[look], budget=Budget(max_wall_time_ms=4_000, on_exhausted="ask")
    )
    async with sandbox(app) as box:
        task = await app.submit(agent, "go")
        question = await asked(app, task)
        assert "Approve to grant 4 s more" in question.question
        await app.answer(question.id, 10**9, by="ann")
        assert await task.result() == "done"
    assert len(model.requests) >= 2
