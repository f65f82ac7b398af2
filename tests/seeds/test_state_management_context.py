"""Chapter 11: what of a state the model is shown, and checkpoints."""

import itertools
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Agent,
    AgentState,
    ArtifactRef,
    Budget,
    CheckpointExpired,
    CheckpointManager,
    Checkpoints,
    CheckpointStrategy,
    Conflict,
    Handle,
    Holdfast,
    KnownFact,
    ManualClock,
    ModelRefused,
    NotFound,
    Request,
    Retry,
    ScriptedModel,
    StatePatch,
    Task,
    TaskFailed,
    TaskState,
    filter_relevant_state,
    tool,
)
from holdfast.agent.scripted import ScriptedCall, call
from tests.agent.support import finished, tool_results
from tests.engine.support import ended
from tests.seeds.chapters import STATE_MANAGEMENT, section

HOUR = timedelta(hours=1)


@tool(risk="read_only")
def read_log(number: int) -> str:
    "Read a log of 48 KB."
    return f"log {number}: " + "all is well; " * 4_000


@tool(risk="read_only")
def probe(host: str) -> str:
    "Probe a host."
    return f"{host} is up"


def observe(name: str, _arguments: object, result: object, _state: object) -> StatePatch:
    return StatePatch(append_facts=(KnownFact(key=name, value=str(result)[:100], source=name),))


@section(STATE_MANAGEMENT, "Problem: Not Everything Fits in the Context", ours="`hold.artifacts`, `save_artifact`")
async def test_problem_not_everything_fits_in_the_context(hold: Holdfast) -> None:
    model = ScriptedModel([call("read_log", number=1), "All is well."])
    agent = hold.register(Agent("reader", model=model, tools=[read_log]))
    task = await finished(hold, agent)
    [excerpt] = tool_results(model)
    assert len(excerpt) < 10_000, "the model is shown an excerpt"
    [kept] = (await hold.state(task)).artifacts
    assert kept.bytes > 48_000
    assert await hold.artifacts.read_text(kept.artifact_id) == read_log.function(number=1)
    assert kept.artifact_id in excerpt, "and the id, to look further"

    ten = ScriptedModel([*(call("read_log", number=number) for number in range(10)), "All is well."])
    limited = Agent("limited", model=ten, tools=[read_log], budget=Budget(max_artifact_bytes_in_context=8_000))
    task = await finished(hold, hold.register(limited))
    assert len((await hold.state(task)).artifacts) == 10
    assert sum(map(len, tool_results(ten))) <= 8_000, "ten logs of 48 KB, and the chapter's limit for all of them"


@section(STATE_MANAGEMENT, "Filtering by Relevance", ours="`filter_relevant_state`, `ContextSlice`")
def test_filtering_by_relevance() -> None:
    state = AgentState(
        goal="Deploy",
        plan=("look", "apply"),
        known_facts=tuple(KnownFact(key=f"fact {n}", value="x" * 50, source="s") for n in range(100)),
        open_questions=("Where?",),
        artifacts=(
            ArtifactRef(artifact_id="old", type="logs", summary="of another step", bytes=10, step="look"),
            ArtifactRef(artifact_id="now", type="logs", summary="of this step", bytes=10, step="apply"),
        ),
    )
    piece = filter_relevant_state(state, "apply", max_bytes=500)
    assert (piece.goal, piece.current_step, piece.open_questions) == ("Deploy", "apply", ("Where?",))
    assert [one.artifact_id for one in piece.artifacts] == ["now"]
    shown = [fact.key for fact in piece.facts]
    assert shown == [f"fact {99 - n}" for n in range(len(shown))], "the freshest first, and none is left out between"
    assert 0 < len(shown) < 10


@section(STATE_MANAGEMENT, "When You Need This", ours="`Budget(max_artifact_bytes_in_context=)`")
async def test_when_you_need_this(hold: Holdfast) -> None:
    seen: list[int] = []
    hosts = itertools.count()

    def think(request: Request) -> ScriptedCall | str:
        seen.append(len(request.messages[0].content))  # the state is shown there
        return call("probe", host=f"host-{number}") if (number := next(hosts)) < 30 else "All are up."

    budget = Budget(max_artifact_bytes_in_context=1_000)
    agent = hold.register(Agent("guard", model=ScriptedModel(think), tools=[probe], observe=observe, budget=budget))
    task = await finished(hold, agent)
    assert len((await hold.state(task)).known_facts) > 20, "the state keeps every fact"
    assert max(seen[20:]) < seen[0] + 2_000, "and the model is shown what has room"


def guard(name: str, model: ScriptedModel, strategy: str) -> Agent:
    kept = Checkpoints(strategy, max_age=HOUR)
    return Agent(name, model=model, tools=[probe], observe=observe, checkpoint=kept, retry=Retry(max_attempts=1))


@section(STATE_MANAGEMENT, "When to Save: Checkpoint Granularity", ours='`Agent(checkpoint="every_step")`')
async def test_when_to_save_checkpoint_granularity(hold: Holdfast) -> None:
    counts: dict[str, int] = {}
    for strategy in CheckpointStrategy:
        two = [[call("probe", host="a"), call("probe", host="b")], [call("probe", host="c"), call("probe", host="d")]]
        agent = hold.register(guard(f"guard-{strategy}", ScriptedModel([*two, "Up."]), strategy))
        counts[strategy] = len(await hold.store.checkpoints((await finished(hold, agent)).id))
    assert counts["every_step"] > counts["every_iteration"]
    assert counts["every_iteration"] == 2, "one for each iteration"
    assert counts["on_state_change"] == 1


async def interrupted(hold: Holdfast) -> Handle[Any]:
    """Return an agent's task that found something out and then failed."""
    model = ScriptedModel([call("probe", host="a"), ModelRefused("out of service"), "It is up."])
    task = await hold.submit(hold.register(guard("guard", model, "every_step")), "Is host a up?")
    async with hold.worker():
        with suppress(TaskFailed):
            await ended(task)
    return task


@section(STATE_MANAGEMENT, "CheckpointManager", ours="`CheckpointManager.maybe_save`")
async def test_checkpointmanager(hold: Holdfast) -> None:
    task = await interrupted(hold)
    manager = CheckpointManager(hold.store, "every_iteration", max_age=HOUR, max_count=3)
    assert await manager.maybe_save(task.id, "every_step") is None, "not its trigger"
    saved = await manager.maybe_save(task.id, "every_iteration")
    assert saved is not None
    assert (await hold.store.checkpoints(task.id))[-1].number == saved.number

    by_hand = await hold.store.save(Task(id="by hand", user_input="Fix it.", state=TaskState.RUNNING))
    await hold.patch_state("by hand", StatePatch(goal="Fix it."), version=by_hand.version, by="loop")
    assert await manager.maybe_save(replace(by_hand, result="half"), "every_step") is None
    await manager.maybe_save(replace(by_hand, result="half"), "every_iteration")
    found = await manager.validate_and_resume("by hand")
    assert (found.task.result, found.state.goal) == ("half", "Fix it."), "also of a task that is driven by hand"


@section(STATE_MANAGEMENT, "Validation Before Resume", ours="`CheckpointManager.validate_and_resume`")
async def test_validation_before_resume(url: str) -> None:
    clock = ManualClock()
    async with Holdfast(url, clock=clock) as hold:
        manager = CheckpointManager(hold.store, max_age=HOUR)
        with pytest.raises(NotFound):
            await manager.validate_and_resume("no such task")

        task = await interrupted(hold)
        clock.advance(2 * 3600)
        with pytest.raises(CheckpointExpired, match="2:00:00 old"):
            await manager.validate_and_resume(task.id)
        assert (await task.task()).state is TaskState.FAILED
        found = await manager.validate_and_resume(task.id, accept_stale=True, requeue=False)
        assert (found.task.state, found.requeued) == (TaskState.FAILED, False), "as in the chapter, it only looks"
        found = await manager.validate_and_resume(task.id, accept_stale=True)
        assert found.requeued
        assert found.task.state is TaskState.PENDING
        assert [fact.value for fact in found.state.known_facts] == ["a is up"]
        async with hold.worker():
            assert await ended(task) == "It is up."
        assert (await manager.validate_and_resume(task.id)).task.state is TaskState.COMPLETED, "already done"

        unwanted = await hold.submit("guard", "Is host b up?")
        await hold.cancel(unwanted)
        with pytest.raises(Conflict):
            await manager.validate_and_resume(unwanted.id)


@section(STATE_MANAGEMENT, "Checkpoint Rotation", ours="`CheckpointManager.cleanup`")
async def test_checkpoint_rotation(url: str) -> None:
    clock = ManualClock()
    async with Holdfast(url, clock=clock) as hold:
        task = await interrupted(hold)
        manager = CheckpointManager(hold.store, max_age=HOUR, max_count=2)
        for _ in range(4):
            await manager.maybe_save(task.id, "every_step")
        before = [one.number for one in await hold.store.checkpoints(task.id)]
        assert await manager.cleanup(task.id) == 0, "none is old enough"
        clock.advance(2 * 3600)
        assert await manager.cleanup(task.id) == len(before) - 2
        assert [one.number for one in await hold.store.checkpoints(task.id)] == before[-2:]
