"""Patches from outside while the agent works: seen by its next model call, never lost, and every checkpoint exact."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import (
    Agent,
    Handle,
    Holdfast,
    KnownFact,
    Request,
    ScriptedModel,
    StateConflict,
    StatePatch,
    ToolContext,
    tool,
)
from holdfast.agent.scripted import Answer, Line, call
from holdfast.engine.manage.past_state import fold
from holdfast.model.canonical import canonical
from holdfast.model.commit import Commit
from holdfast.model.operations import ApplyPatch
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.budget.support import PATIENCE, completed, register
from tests.agent.checkpoints.support import assert_exact, facts_of, look, note
from tests.engine.support import Watched

STRATEGIES = ["every_step", "every_iteration", "on_state_change"]


def fact(key: str) -> StatePatch:
    return StatePatch(append_facts=(KnownFact(key=key, value="outside", source="ann"),))


async def patch_now(hold: Holdfast, task_id: str, patch: StatePatch) -> None:
    """Patch a state that changes: the loser of the race looks again."""
    while True:
        task = await hold.store.get(task_id)
        assert task is not None
        try:
            await hold.patch_state(task_id, patch, version=task.version, by="ann", reason="reported")
        except StateConflict:
            continue
        return


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_next_model_call_sees_it(either: Holdfast, strategy: str) -> None:
    @tool(risk="read_only")
    async def get_patched(context: ToolContext) -> str:
        """While this runs, another caller patches the state."""
        await patch_now(either, context.task_id, fact("from outside"))
        return "fine"

    agent, model = register(
        either, [call("note", key="own"), call("get_patched"), "done"], tools=[note, get_patched], checkpoint=strategy
    )
    task = await completed(either, agent)
    assert "from outside" not in model.requests[1].messages[0].content
    assert "from outside" in model.requests[2].messages[0].content
    assert sorted(await facts_of(either, task)) == ["from outside", "own"]
    assert_exact(await either.store.checkpoints(task.id), await either.store.patches(task.id))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("between", ["note:1.0", "note:1.1", "note:2.0"])
async def test_a_patch_that_arrives_between_a_tools_patch_and_its_commit_is_not_lost(
    database_url: str, watch: Callable[[], list[Watched]], strategy: str, between: str
) -> None:
    """The agent has changed its own view already, and the store gets another caller's change first."""
    watches = watch()
    arrived: list[str] = []
    async with Holdfast(database_url) as hold:

        async def before(commits: Sequence[Commit]) -> None:
            for commit in commits:
                carried = [one for one in commit.operations if isinstance(one, ApplyPatch) and one.step_key == between]
                if carried and not arrived:
                    arrived.append(between)
                    await patch_now(hold, commit.task_id, fact("from outside"))

        watches[-1].before_commit = before
        script: list[Line] = [
            [call("note", key="a"), call("note", key="b")],
            call("note", key="c"),
            call("look"),
            "done",
        ]
        agent, model = register(hold, script, tools=[note, look], checkpoint=strategy)
        task = await completed(hold, agent)
        assert arrived == [between]
        assert sorted(await facts_of(hold, task)) == ["a", "b", "c", "from outside"]
        patches = await hold.store.patches(task.id)
        assert canonical((await hold.state(task)).to_json()) == canonical(fold(patches).to_json())
        assert_exact(await hold.store.checkpoints(task.id), patches)
        # On disk at the latest when it waits or ends; what is on disk is in the next model call.
        if strategy != "on_state_change":
            assert "from outside" in model.requests[-1].messages[0].content


async def test_two_who_resolve_the_same_question_are_both_right(hold: Holdfast) -> None:
    @tool(risk="read_only")
    async def answer(context: ToolContext) -> tuple[str, StatePatch]:
        """Another caller resolves it at the same time."""
        await patch_now(hold, context.task_id, StatePatch(resolve_questions=("Who?",), set_flags=("reported",)))
        return "fine", StatePatch(resolve_questions=("Who?",), set_flags=("found",))

    @tool(risk="read_only")
    async def wonder() -> tuple[str, StatePatch]:
        """Have a question."""
        return "fine", StatePatch(add_questions=("Who?",))

    agent, _ = register(hold, [call("wonder"), call("answer"), "done"], tools=[answer, wonder])
    task = await completed(hold, agent)
    state = await hold.state(task)
    assert state.open_questions == ()
    assert set(state.risk_flags) == {"reported", "found"}
    assert_exact(await hold.store.checkpoints(task.id), await hold.store.patches(task.id))


async def test_a_takeover_goes_on_with_both_sides_patches(app: Holdfast) -> None:
    @tool(risk="read_only")
    async def get_patched(context: ToolContext, key: str) -> tuple[str, StatePatch]:
        """While this runs, another caller patches the state."""
        await patch_now(app, context.task_id, StatePatch(set_flags=(f"flag-{key}",)))
        return "fine", fact(key)

    script: list[Line] = [[call("get_patched", key="a"), call("note", key="b")], call("get_patched", key="c"), "done"]
    agent, _ = register(app, script, tools=[note, get_patched])

    async def scenario(box: Sandbox) -> tuple[list[str], list[str]]:
        task = await box.hold.submit(agent, "go")
        await task.result()
        state = await box.hold.state(task)
        assert_exact(await box.hold.store.checkpoints(task.id), await box.hold.store.patches(task.id))
        return sorted(one.key for one in state.known_facts), sorted(state.risk_flags)

    survived = await crash_everywhere(app, scenario)
    assert survived.result == (["a", "b", "c"], ["flag-a", "flag-c"])
    assert survived.crashes >= 10


@settings(max_examples=15)
@given(
    strategy=st.sampled_from(STRATEGIES),
    rounds=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    outside=st.dictionaries(st.integers(1, 14), st.integers(1, 3), max_size=6),
    size=st.sampled_from([1, 600]),
)
def test_every_checkpoint_ever_saved_is_the_fold_of_its_patches(
    strategy: str, rounds: list[int], outside: dict[int, int], size: int
) -> None:
    """Whenever others patch: between any two Commits, several at once, with calls side by side."""
    asyncio.run(_run_disturbed(strategy, rounds, outside, size))


async def _run_disturbed(strategy: str, rounds: list[int], outside: dict[int, int], size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold = Holdfast(f"sqlite:///{folder}/hold.db")
        expected: set[str] = set()
        said: set[str] = set()
        handles: list[Handle[str]] = []

        async def disturb(number: int) -> None:
            task = await handles[0].task()
            for one in range(outside.get(number, 0) if task.version else 0):
                said.add(f"outside {number}.{one}")
                await patch_now(hold, handles[0].id, fact(f"outside {number}.{one}"))

        async def answer(request: Request) -> Answer:
            turn = request.turn or 0
            if turn >= len(rounds):
                return "done"
            calls = [call("note", key=f"own {turn}.{number}", size=size) for number in range(rounds[turn])]
            expected.update(one.arguments["key"] for one in calls if isinstance(one.arguments, dict))
            return [*calls, call("look", place=str(turn))]

        agent = hold.register(
            Agent("agent", model=ScriptedModel(answer), tools=[note, look], builtins=False, checkpoint=strategy)
        )
        async with hold:
            _before_each_commit(hold, disturb)
            handles.append(await hold.submit(agent, "go"))
            async with hold.worker():
                await handles[0].result(timeout=PATIENCE)
            task = handles[0]
            patches = await hold.store.patches(task.id)
            saved = await hold.store.checkpoints(task.id)
            assert saved or outside  # the state of an agent that is always interrupted may be in the journal alone
            assert_exact(saved, patches)
            assert canonical((await hold.state(task)).to_json()) == canonical(fold(patches).to_json())
            assert set(await facts_of(hold, task)) == expected | said


def _before_each_commit(hold: Holdfast, do: Callable[[int], Any]) -> None:
    """Have something done before the worker's n-th batch of Commits reaches the store."""
    committer = hold.services.committer
    send, counted = committer._send, 0

    async def disturbed(commits: Sequence[Commit]) -> Any:  # noqa: ANN401
        nonlocal counted
        counted += 1
        await do(counted)
        return await send(commits)

    committer._send = disturbed
