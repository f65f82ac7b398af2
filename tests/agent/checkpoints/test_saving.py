"""Which checkpoints are saved when, what is durable when, and what is deleted in the same Commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from holdfast import (
    Agent,
    Budget,
    Checkpoints,
    Holdfast,
    InvalidValue,
    Request,
    ScriptedModel,
    StatePatch,
    StepState,
    ToolContext,
    tool,
)
from holdfast.agent.scripted import Answer, Line, call
from holdfast.model.canonical import parse
from holdfast.model.checkpoints import SMALL
from holdfast.model.operations import RotateCheckpoints, SaveCheckpoint
from holdfast.testing import sandbox
from tests.agent.budget.support import PATIENCE, asked, completed, register
from tests.agent.checkpoints.support import assert_exact, look, note
from tests.engine.support import Watched, until

EVERY_STEP, EVERY_ITERATION, ON_STATE_CHANGE = "every_step", "every_iteration", "on_state_change"
STRATEGIES = [EVERY_STEP, EVERY_ITERATION, ON_STATE_CHANGE]

SCRIPT: list[Line] = [[call("note", key="a"), call("note", key="b")], call("look"), call("note", key="c"), "done"]


# Which


@pytest.mark.parametrize(
    ("strategy", "versions"),
    [
        # The first patch makes the state; a, b and c each make another version of it.
        (EVERY_STEP, [1, 3, 4]),
        (EVERY_ITERATION, [3, 3, 4]),  # one an iteration, also after the look, which changed nothing
        (ON_STATE_CHANGE, [4]),
    ],
)
async def test_each_strategy_saves_when_it_says(either: Holdfast, strategy: str, versions: list[int]) -> None:
    agent, _ = register(either, SCRIPT, tools=[note, look], checkpoint=strategy)
    task = await completed(either, agent)
    saved = await either.store.checkpoints(task.id)
    assert [one.number for one in saved] == list(range(1, len(saved) + 1))
    assert [one.version for one in saved] == versions
    assert_exact(saved, await either.store.patches(task.id))


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_task_that_waits_has_saved_what_it_knows(hold: Holdfast, strategy: str) -> None:
    script: list[Line] = [call("note", key="a"), call("ask_question", question="Who?"), "done"]
    agent, _ = register(hold, script, tools=[note], builtins=True, checkpoint=strategy)
    task = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, task)
        saved = await hold.store.checkpoints(task.id)
        assert [fact["key"] for fact in parse(saved[-1].body)["known_facts"]] == ["a"]
        await hold.answer(question.id, "ann", by="ann")
        await task.result(timeout=PATIENCE)
    assert_exact(await hold.store.checkpoints(task.id), await hold.store.patches(task.id))


async def test_a_large_state_is_saved_again_when_as_much_has_changed(hold: Holdfast) -> None:
    script = [call("note", key=str(number), size=200) for number in range(60)]
    agent, _ = register(hold, [*script, "done"], tools=[note])
    task = await completed(hold, agent)
    saved = await hold.store.checkpoints(task.id)
    sizes = [len(one.body) for one in saved]
    large = [size for size in sizes if size > SMALL]
    # Each is at least nearly twice the one before: patches as large as that one came in between.
    assert len(large) < 10
    assert all(later > 1.6 * earlier for earlier, later in pairwise(large))
    assert sum(sizes) < 4 * sum(len(one.body) for one in await hold.store.patches(task.id))


# Rotation


async def test_rotation_rides_in_the_commit_that_saves(database_url: str, watch: Callable[[], list[Watched]]) -> None:
    watches = watch()
    async with Holdfast(database_url) as hold:
        agent, _ = register(hold, SCRIPT, tools=[note, look])
        await completed(hold, agent)
        commits = [commit.operations for batch in watches[-1].batches for commit in batch]
    saving = [one for one in commits if any(isinstance(operation, SaveCheckpoint) for operation in one)]
    assert len(saving) >= 3
    assert all(any(isinstance(operation, RotateCheckpoints) for operation in one) for one in saving)


async def test_what_is_both_too_many_and_too_old_is_deleted(app: Holdfast) -> None:
    kept: list[list[int]] = []

    @tool(risk="read_only")
    async def later(context: ToolContext, hours: float) -> tuple[str, StatePatch]:
        """Let time pass, and change the state."""
        kept.append([one.number for one in await app.store.checkpoints(context.task_id)])
        box.clock.advance(hours * 3_600)
        return "later", StatePatch(set_flags=(f"flag {len(kept)}",))

    hours = [0.1, 0.11, 0.12, 2, 0.13, 0.14]
    agent, _ = register(
        app,
        [*(call("later", hours=one) for one in hours), "done"],
        tools=[later],
        checkpoint=Checkpoints("every_step", max_age=timedelta(hours=1), max_count=2),
    )
    async with sandbox(app, lease=86_400) as box:
        with box.frozen():
            task = await app.submit(agent, "go")
            await task.result()
            at_last = [one.number for one in await app.store.checkpoints(task.id)]
    # Young ones stay, however many; once they are old, only those stay that are among the newest two.
    assert kept == [[], [1, 2], [1, 2, 3], [1, 2, 3, 4], [4, 5], [5, 6]]
    assert at_last == [5, 6, 7]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"strategy": "sometimes"}, "choose one of every_step, every_iteration, on_state_change"),
        ({"max_age": timedelta()}, "give a timedelta above 0, or None for no limit"),
        ({"max_age": 3600}, "max_age is 3600"),
        ({"max_count": 0}, "max_count"),
        ({"max_count": 1.5}, "max_count"),
    ],
)
def test_a_policy_that_could_not_be_followed_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Checkpoints(**wrong)
    assert message in str(refused.value)


def test_an_agent_takes_a_strategy_by_name() -> None:
    agent = Agent("a", model=ScriptedModel(["x"]), checkpoint="every_iteration")
    assert agent.checkpoints == Checkpoints("every_iteration")
    with pytest.raises(InvalidValue, match="checkpoint is 'never'"):
        Agent("a", model=ScriptedModel(["x"]), checkpoint="never")


# What is durable when


async def commits_of(url: str, watch: Callable[[], list[Watched]], strategy: str, budget: Budget | None = None) -> int:
    watches = watch()
    async with Holdfast(url) as hold:
        script = [call("look", place=str(number)) for number in range(5)]
        agent, _ = register(hold, [*script, "done"], name=strategy, tools=[look], checkpoint=strategy, budget=budget)
        task = await completed(hold, agent)
        steps = await hold.store.steps(task.id)
        assert len(steps) == 11
        mine = [commit for batch in watches[-1].batches for commit in batch if commit.task_id == task.id]
    return len(mine)


async def test_the_strategies_differ_in_how_often_they_commit(
    database_url: str, watch: Callable[[], list[Watched]]
) -> None:
    counts = {strategy: await commits_of(database_url, watch, strategy) for strategy in STRATEGIES}
    assert counts[EVERY_STEP] > counts[EVERY_ITERATION] > counts[ON_STATE_CHANGE]
    # One for the first state and one for the end; then one for each step, each iteration, or nothing.
    assert counts == {EVERY_STEP: 2 + 11, EVERY_ITERATION: 2 + 5, ON_STATE_CHANGE: 2}


async def test_a_limited_budget_makes_each_answer_durable_before_the_next(
    database_url: str, watch: Callable[[], list[Watched]]
) -> None:
    count = await commits_of(database_url, watch, ON_STATE_CHANGE, Budget(max_steps=50))
    assert count == 2 + 6  # a reservation for each model call takes along what was before it


async def steps_in_store(hold: Holdfast, task_id: str) -> list[str]:
    steps = await hold.store.steps(task_id)
    return [step.key for step in steps if step.state is StepState.COMPLETED and step.kind in {"llm", "tool"}]


@pytest.mark.parametrize(
    ("strategy", "durable"),
    [
        (EVERY_STEP, ["llm:1", "note:1.0", "llm:2"]),
        (EVERY_ITERATION, ["llm:1", "note:1.0"]),
        (ON_STATE_CHANGE, []),
    ],
)
async def test_only_what_was_thought_and_looked_up_ever_waits(
    either: Holdfast, strategy: str, durable: list[str]
) -> None:
    """What a pure tool finds in the store while it runs."""
    seen: list[list[str]] = []

    @tool(risk="read_only")
    async def peek(context: ToolContext) -> str:
        """Look into the store."""
        seen.append(await steps_in_store(either, context.task_id))
        return "fine"

    agent, _ = register(either, [call("note", key="a"), call("peek"), "done"], tools=[note, peek], checkpoint=strategy)
    await completed(either, agent)
    assert seen == [durable]


ALL = ["llm:1", "note:1.0", "llm:2"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_an_effect_finds_everything_before_it_durable(either: Holdfast, strategy: str, effect: str) -> None:
    seen: list[tuple[list[str], int]] = []

    @tool(risk="external_action", effect=effect)
    async def deploy(context: ToolContext) -> str:
        """Touch the world."""
        task = await either.store.get(context.task_id)
        seen.append((await steps_in_store(either, context.task_id), task.version if task else 0))
        armed = await either.store.effects(task_id=context.task_id)
        assert len(armed) == (effect == "once")
        return "deployed"

    agent, _ = register(
        either, [call("note", key="a"), call("deploy"), "done"], tools=[note, deploy], checkpoint=strategy
    )
    await completed(either, agent)
    assert seen == [(ALL, 2)]  # the patch of the note too


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_an_approval_and_a_question_find_everything_before_them_durable(hold: Holdfast, strategy: str) -> None:
    @tool(risk="external_action", effect="idempotent")
    async def deploy() -> str:
        """Touch the world."""
        return "deployed"

    for number, asking in enumerate((call("deploy"), call("ask_question", question="Who?"))):
        agent, _ = register(
            hold,
            [call("note", key="a"), asking, "done"],
            name=f"agent {number}",
            tools=[note, deploy],
            builtins=True,
            approve=["external_action"],
            checkpoint=strategy,
        )
        task = await hold.submit(agent, "go")
        async with hold.worker():
            question = await asked(hold, task)
            assert await steps_in_store(hold, task.id) == ALL
            await (hold.approve(question.id, by="ann") if number == 0 else hold.answer(question.id, "ann", by="ann"))
            await task.result(timeout=PATIENCE)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_child_finds_everything_before_it_durable(hold: Holdfast, strategy: str) -> None:
    seen: list[list[str]] = []

    async def peek(_: Request) -> Answer:
        tasks = (await hold.store.find()).items
        [parent] = [one for one in tasks if one.parent_id is None]
        seen.append(await steps_in_store(hold, parent.id))
        return "found"

    child = Agent("helper", model=ScriptedModel(peek), builtins=False, description="helps")
    agent, _ = register(
        hold, [call("note", key="a"), call("helper", request="x"), "done"], tools=[note, child], checkpoint=strategy
    )
    await completed(hold, agent)
    assert seen == [ALL]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_reservation_finds_everything_before_it_durable(hold: Holdfast, strategy: str) -> None:
    seen: list[list[str]] = []

    async def peek(_: Request) -> Answer:
        [task] = (await hold.store.find()).items
        seen.append(await steps_in_store(hold, task.id))
        return "done"

    agent, _ = register(
        hold, [call("note", key="a"), peek], tools=[note], checkpoint=strategy, budget=Budget(max_llm_tokens=10**6)
    )
    await completed(hold, agent)
    assert seen == [["llm:1", "note:1.0"]]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_patch_from_outside_makes_everything_before_it_durable(hold: Holdfast, strategy: str) -> None:
    """Before the model is asked with another caller's facts, its own facts are on disk."""
    seen: list[list[str]] = []

    @tool(risk="read_only")
    async def get_patched(context: ToolContext) -> str:
        """While this runs, another caller patches the state."""
        task = await hold.store.get(context.task_id)
        assert task is not None
        patch = StatePatch(set_flags=("reported",))
        await hold.patch_state(task.id, patch, version=task.version, by="ann", reason="because")
        return "fine"

    async def peek(request: Request) -> Answer:
        assert "reported" in request.messages[0].content
        [task] = (await hold.store.find()).items
        seen.append(await steps_in_store(hold, task.id))
        return "done"

    agent, _ = register(
        hold, [call("note", key="a"), call("get_patched"), peek], tools=[note, get_patched], checkpoint=strategy
    )
    await completed(hold, agent)
    assert seen == [[*ALL, "get_patched:2.0"]]


async def test_a_step_that_takes_long_flushes_what_was_before_it(hold: Holdfast) -> None:
    seen: list[list[str]] = []

    @tool(risk="read_only")
    async def dig(context: ToolContext) -> str:
        """Dig until everything before it is durable."""
        await until(lambda: _is_durable(context.task_id), patience=PATIENCE)
        seen.append(await steps_in_store(hold, context.task_id))
        return "nothing"

    async def _is_durable(task_id: str) -> bool:
        await asyncio.sleep(0.05)
        return len(await steps_in_store(hold, task_id)) == 3

    agent, _ = register(
        hold, [call("note", key="a"), call("dig"), "done"], tools=[note, dig], checkpoint=ON_STATE_CHANGE
    )
    await completed(hold, agent)
    assert seen == [ALL]
