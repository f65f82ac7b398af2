"""Chapter 11: the theory, and its steps 0 to 6."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast import (
    AgentState,
    Context,
    GiveUp,
    Holdfast,
    IllegalMove,
    KnownFact,
    Retry,
    RetryAt,
    RiskLevel,
    StatePatch,
    StepFailed,
    StepState,
    Task,
    TaskFailed,
    TaskState,
    apply,
)
from holdfast.agent.scripted import call
from holdfast.model.retry import decide
from tests.agent.support import finished, register, shown
from tests.engine.support import crashing_worker, ended, moves_of
from tests.seeds.chapters import STATE_MANAGEMENT, section


@section(STATE_MANAGEMENT, "Real-World Case Study", ours="`ctx.step`, `hold.submit(key=)`")
async def test_real_world_case_study(hold: Holdfast) -> None:
    done: list[int] = []
    reached = asyncio.Event()

    async def do(number: int) -> None:
        done.append(number)
        if number == 8 and done.count(8) == 1:
            reached.set()
            await asyncio.Event().wait()  # minute 8: the server is about to reboot

    @hold.task
    async def deploy(ctx: Context, service: str) -> str:
        for number in range(1, 11):
            await ctx.step(f"step {number}", do, number)
        return f"{service} is up"

    first = await hold.submit(deploy, "billing", key="deploy-42")
    async with crashing_worker(hold):
        await reached.wait()
    again = await hold.submit(deploy, "billing", key="deploy-42")
    async with hold.worker():
        assert await ended(again) == "billing is up"
    assert again.id == first.id
    assert done == [1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10]


@section(STATE_MANAGEMENT, "What Is State Management?", ours="`Holdfast(url)`, `hold.store.steps`")
async def test_what_is_state_management(lasting_url: str) -> None:
    done: list[str] = []
    reached = asyncio.Event()

    def define(hold: Holdfast) -> None:
        @hold.task
        async def deploy(ctx: Context) -> str:
            await ctx.step("build", done.append, "build")
            await ctx.step("publish", publish)
            return "published"

    async def publish() -> None:
        done.append("publish")
        if done.count("publish") == 1:
            reached.set()
            await asyncio.Event().wait()

    hold = Holdfast(lasting_url)
    define(hold)
    async with hold:
        task_id = (await hold.submit("deploy")).id
        async with crashing_worker(hold):
            await reached.wait()

    hold = Holdfast(lasting_url)  # another process, as far as the store can tell
    define(hold)
    async with hold:
        progress = [step.key for step in await hold.store.steps(task_id) if step.state is StepState.COMPLETED]
        assert progress == ["build"]
        async with hold.worker():
            assert await ended(hold.handle(task_id)) == "published"
    assert done == ["build", "publish", "publish"]


@section(STATE_MANAGEMENT, "What Is Idempotency?", ours="`key=`, `effect_id`")
async def test_what_is_idempotency(hold: Holdfast, tmp_path: Path) -> None:
    ids: list[str] = []

    async def create_file_if_not_exists(effect_id: str) -> str:
        ids.append(effect_id)
        path = tmp_path / "report.txt"
        if not path.exists():
            path.write_text("data")
            raise ConnectionResetError("it was written, and the answer got lost")
        return path.name

    @hold.task
    async def report(ctx: Context) -> str:
        return await ctx.step("write", create_file_if_not_exists, retry=Retry(max_attempts=2, initial=0))

    handles = [await hold.submit(report, key="report") for _ in range(3)]
    async with hold.worker():
        assert [await ended(handle) for handle in handles] == ["report.txt"] * 3
    assert len({handle.id for handle in handles}) == 1
    assert len(ids) == 2
    assert len(set(ids)) == 1, "every try has the same idempotency key"


@section(STATE_MANAGEMENT, "Connection with Planning", ours="`AgentState.plan`, `update_plan`")
async def test_connection_with_planning(hold: Holdfast) -> None:
    plan = ["Check current status", "Apply changes"]
    planner, _ = register(
        hold,
        [
            call("update_plan", plan=plan, current_step=plan[0]),
            call("update_plan", plan=plan, current_step=plan[1], completed=[plan[0]]),
            "Done.",
        ],
    )
    task = await finished(hold, planner, "Deploy service X")
    state = await hold.state(task)
    assert (state.plan, state.current_step, state.completed_steps) == (tuple(plan), plan[1], (plan[0],))


AGENT_STATE = {
    "goal": "Deploy service X to staging",
    "constraints": {"human_in_the_loop": {"required_for_risk_levels": ["write_local", "external_action"]}},
    "budget": {
        "max_steps": 20,
        "max_wall_time_ms": 300000,
        "max_llm_tokens": 200000,
        "max_artifact_bytes_in_context": 8000,
    },
    "plan": ["Check current status", "Collect config", "Apply changes", "Verify again"],
    "known_facts": [{"key": "service", "value": "X", "source": "user"}],
    "open_questions": ["Which namespace should we deploy to?"],
    "artifacts": [{"artifact_id": "log_123", "type": "tool_result.logs", "summary": "nginx error log", "bytes": 48231}],
    "risk_flags": ["budget_pressure"],
}


@section(
    STATE_MANAGEMENT,
    "Step 0: Agent state as a contract (AgentState)",
    ours="`AgentState`, `StatePatch`, `hold.submit(state=)`",
)
async def test_step_0_agent_state_as_a_contract_agentstate(hold: Holdfast) -> None:
    state = AgentState.from_json(AGENT_STATE)
    assert state.to_json() == AGENT_STATE
    assert state.constraints.requires_approval(RiskLevel.EXTERNAL_ACTION)
    assert not state.constraints.requires_approval(RiskLevel.READ_ONLY)

    patch = StatePatch(
        append_facts=(KnownFact(key="namespace", value="staging-2", source="human:ann"),),
        replace_plan=("Apply changes", "Verify again"),
        add_questions=("Who is on call?",),
        resolve_questions=("Which namespace should we deploy to?",),
    )
    changed = apply(state, patch)
    assert [fact.key for fact in changed.known_facts] == ["service", "namespace"]
    assert changed.plan == ("Apply changes", "Verify again")
    assert changed.open_questions == ("Who is on call?",)
    assert state.to_json() == AGENT_STATE, "a state is never changed in place"

    agent, model = register(hold, ["Deployed."])
    task = await hold.submit(agent, state=state)
    assert (await hold.state(task)).to_json() == AGENT_STATE, "it is the start of a run"
    await hold.patch_state(task, patch, version=(await task.task()).version, by="ann")
    async with hold.worker():
        assert await ended(task) == "Deployed."
    assert (await hold.state(task)).plan == changed.plan
    assert "staging-2" in shown(model)[0][1], "the model sees the state"


@section(STATE_MANAGEMENT, "Step 1: Task Structure with State", ours="`Task`, `TaskState`")
async def test_step_1_task_structure_with_state(hold: Holdfast) -> None:
    task = await hold.store.save(Task(id="task-1", user_input="Fix it."))
    assert (task.state, task.result, task.error) == (TaskState.PENDING, None, None)
    assert task.created_at is not None
    assert task.created_at == task.updated_at
    assert {"pending", "running", "completed", "failed"} < set(TaskState)

    task = await hold.store.save(replace(task, state=TaskState.RUNNING))
    task = await hold.store.save(replace(task, state=TaskState.COMPLETED, result="Freed 20GB."))
    assert await hold.store.get("task-1") == task
    with pytest.raises(IllegalMove):
        await hold.store.save(replace(task, state=TaskState.RUNNING))


@section(STATE_MANAGEMENT, "Step 2: Operation Idempotency", ours="`hold.run`, `store.execute_step`")
async def test_step_2_operation_idempotency(hold: Holdfast) -> None:
    worked: list[str] = []

    @hold.task
    async def work(_: Context, text: str) -> str:
        worked.append(text)
        return text.upper()

    task = await hold.submit(work, "fix it")
    assert [await hold.run(task.id) for _ in range(3)] == ["FIX IT"] * 3, "a completed task is not run again"
    assert worked == ["fix it"]
    assert await hold.store.get("no such task") is None

    @hold.task(retry=Retry(max_attempts=1))
    async def fails_once(_: Context) -> str:
        worked.append("again")
        if worked.count("again") == 1:
            raise ConnectionError("no answer")
        return "done"

    failing = await hold.submit(fails_once)
    for _ in range(2):
        with pytest.raises(TaskFailed, match="no answer"):
            await hold.run(failing)  # a failed task is not run again by accident ...
    assert await hold.run(failing, resume=True) == "done"  # ... but when it is resumed


@section(STATE_MANAGEMENT, "Step 3: Retry with Exponential Backoff", ours='`Retry(jitter="none")`')
async def test_step_3_retry_with_exponential_backoff(hold: Holdfast) -> None:
    chapter = Retry(max_attempts=4, initial=1, factor=2, jitter="none")
    now, error = datetime.now(UTC), ConnectionError("no answer")
    answers = [decide(chapter, error, attempt, now, random=0.5) for attempt in (1, 2, 3, 4)]
    assert answers[:3] == [RetryAt(now + timedelta(seconds=seconds), seconds) for seconds in (1, 2, 4)]
    assert answers[3] == GiveUp("attempt 4 of 4 failed"), "there is no pause after the last try"

    tries = 0

    def fail() -> None:
        nonlocal tries
        tries += 1
        raise ConnectionError(f"try {tries}")

    @hold.task
    async def work(ctx: Context) -> list[datetime]:
        with pytest.raises(StepFailed, match="try 4") as failed:
            await ctx.step("call", fail, retry=replace(chapter, initial=0.01))
        return [one.at for one in failed.value.failure.tries]

    task = await hold.submit(work)
    async with hold.worker():
        times = await ended(task)
    pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(times)]
    assert tries == 4
    assert all(pause >= planned for pause, planned in zip(pauses, (0.01, 0.02, 0.04), strict=True)), pauses


@section(STATE_MANAGEMENT, "Step 4: Deadlines", ours="`deadline=`, `timeout=`")
async def test_step_4_deadlines(hold: Holdfast) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    @hold.task
    async def one_step(ctx: Context) -> str:
        with pytest.raises(StepFailed, match="timeout"):
            await ctx.step("hang", hang, timeout=0.05)
        return "went on"

    @hold.task(deadline=timedelta(seconds=0.5))
    async def whole_run(ctx: Context) -> None:
        while True:
            await ctx.sleep(0.05)

    task, run = await hold.submit(one_step), await hold.submit(whole_run)
    async with hold.worker():
        assert await ended(task) == "went on"
        with pytest.raises(TaskFailed) as failed:
            await ended(run)
    assert failed.value.failure.type_name == "holdfast.DeadlineExceeded"


@section(STATE_MANAGEMENT, "Step 5: State Persistence", ours="`store.save`, `store.get`")
async def test_step_5_state_persistence(lasting_url: str) -> None:
    async with Holdfast(lasting_url) as hold:
        saved = await hold.store.save(Task(id="task-1", user_input={"text": "Fix it."}, state=TaskState.RUNNING))
    async with Holdfast(lasting_url) as hold:
        assert await hold.store.get("task-1") == saved


@section(STATE_MANAGEMENT, "Step 6: Resume Execution", ours="`hold.resume`, `hold.retry`")
async def test_step_6_resume_execution(hold: Holdfast) -> None:
    done: list[str] = []
    repaired = False

    def publish() -> str:
        done.append("publish")
        if not repaired:
            raise PermissionError("no token")
        return "published"

    @hold.task(retry=Retry(max_attempts=1))
    async def deploy(ctx: Context) -> str:
        await ctx.step("build", done.append, "build")
        return await ctx.step("publish", publish)

    task = await hold.submit(deploy)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="no token"):
            await ended(task)
        repaired = True
        await hold.resume(task)
        assert await ended(task) == "published"
    assert done == ["build", "publish", "publish"], "what was completed is not done again"
    assert ("failed", "pending") in await moves_of(hold, task)
    assert await hold.run(task) == "published"
    assert len(done) == 3
