"""The AgentState of a plain task, as its own code sees and patches it."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import (
    ArtifactRef,
    Budget,
    BudgetExceeded,
    CheckpointManager,
    Context,
    DuplicateName,
    Goto,
    Holdfast,
    InvalidValue,
    KnownFact,
    Machine,
    Retry,
    StatePatch,
    SyncContext,
    TaskFailed,
    TaskState,
    filter_relevant_state,
)
from holdfast.engine.attempt import state_view
from holdfast.model.budget import Meter
from holdfast.model.codec import decode
from holdfast.testing import sandbox
from tests.engine.support import crashing_worker, ended, reaches

AT_ONCE = Retry(max_attempts=3, initial=0.001, jitter="none")


def flag(*flags: str) -> StatePatch:
    return StatePatch(set_flags=flags)


def _patch(ctx: SyncContext, name: str) -> None:
    ctx.patch(flag(name), key=name)


async def version_of(hold: Holdfast, task_id: str) -> int:
    task = await hold.store.get(task_id)
    assert task is not None
    return task.version


async def test_code_keeps_a_state_and_everything_that_reads_one_reads_it(hold: Holdfast) -> None:
    """On every store: the chapter's whole AgentState, artifacts and context slice included."""

    @hold.task
    async def loop(ctx: Context, text: str) -> str:
        assert (ctx.state.goal, ctx.state.plan) == ("", ())
        await ctx.patch(StatePatch(goal=text, replace_plan=("look", "mend"), current_step="look"))
        log = await hold.artifacts.write(b"E" * 100)
        found = KnownFact(key="disk", value="full", source="check")
        kept = ArtifactRef(artifact_id=log.id, type="log", summary="the log", bytes=100)
        state = await ctx.patch(StatePatch(append_facts=(found,), add_artifacts=(kept,)), reason="seen")
        assert state == ctx.state
        assert state.known_facts[0].step == "look"
        assert state.known_facts[0].at is not None
        sliced = filter_relevant_state(ctx.state, "look", 1000)
        return f"{sliced.goal}: {sliced.facts[0].value}, {sliced.artifacts[0].summary}"

    async with hold.worker():
        handle = await hold.submit(loop, "Fix it.")
        assert await ended(handle) == "Fix it.: full, the log"
    history = await hold.state_history(handle)
    assert [(one.version, one.step_key, one.author) for one in history] == [
        (1, "holdfast:patch", "loop"),
        (2, "holdfast:patch#2", "loop"),
    ]
    assert (await hold.state(handle, at="holdfast:patch")).known_facts == ()
    assert (await hold.state(handle)).known_facts[0].value == "full"
    assert [link.summary for link in await hold.store.artifact_links(handle.id)] == ["the log"]


async def test_blocking_code_has_the_same(hold: Holdfast) -> None:
    @hold.task
    def loop(ctx: SyncContext) -> list[str]:
        assert ctx.state.risk_flags == ()
        ctx.patch(flag("one"))
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(ctx.branch(partial(_patch, ctx)), ["two", "three"]))
        ctx.charge(steps=1)
        return sorted(ctx.refresh_state().risk_flags)

    async with hold.worker():
        handle = await hold.submit(loop)
        assert await ended(handle) == ["one", "three", "two"]
    assert await version_of(hold, handle.id) == 3


async def test_branches_need_keys_and_each_sees_its_own_patch(hold: Holdfast) -> None:
    @hold.task(retry=AT_ONCE)
    async def fan_out(ctx: Context) -> list[bool]:
        async def one(name: str) -> bool:
            return name in (await ctx.patch(flag(name), key=name)).risk_flags

        seen = await asyncio.gather(*(one(f"flag {number}") for number in range(5)))
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return [*seen, len(ctx.state.risk_flags) == 5]

    @hold.task(retry=Retry(max_attempts=1))
    async def nameless(ctx: Context) -> None:
        await asyncio.gather(ctx.patch(flag("a")), asyncio.create_task(_later(ctx)))

    async def _later(ctx: Context) -> None:
        await ctx.patch(flag("b"))

    async with hold.worker():
        handle = await hold.submit(fan_out)
        assert await ended(handle) == [True] * 6
        with pytest.raises(TaskFailed, match=DuplicateName.__name__):
            await ended(await hold.submit(nameless))
    assert await version_of(hold, handle.id) == 5


async def test_inside_a_once_step(hold: Holdfast) -> None:
    """Patched before the call failed, seen after it was made; a replay of the whole step shows the same."""
    calls: list[str] = []

    @hold.task(retry=AT_ONCE)
    async def pay(ctx: Context) -> list[str]:
        async def call(effect_id: str) -> str:
            await ctx.patch(flag("paid"))
            calls.append(effect_id)
            return "ok"

        assert ctx.state.risk_flags == ()
        await ctx.step("pay", call, effect="once", timeout=5)
        looks: list[str] = list(ctx.state.risk_flags)
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return looks

    async with hold.worker():
        handle = await hold.submit(pay)
        assert await ended(handle) == ["paid"]
    assert (len(calls), await version_of(hold, handle.id)) == (1, 1)


async def test_another_patch_at_the_same_place_is_not_applied_and_the_log_says_so(
    quick: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @quick.task(retry=AT_ONCE)
    async def job(ctx: Context) -> list[str]:
        await ctx.patch(flag(f"attempt {ctx.attempt}"))
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return list(ctx.state.risk_flags)

    with caplog.at_level(logging.WARNING, "holdfast"):
        async with quick.worker():
            assert await ended(await quick.submit(job)) == ["attempt 1"]
    assert "recorded with other arguments" in caplog.text


async def test_a_patch_that_does_not_fit_is_refused_and_the_code_can_go_on(hold: Holdfast) -> None:
    @hold.task
    async def job(ctx: Context) -> list[str]:
        said = []
        for patch in (StatePatch(resolve_questions=("Which?",)), StatePatch(set_flags=("x" * 9_000,)), "goal"):
            try:
                await ctx.patch(patch)  # type: ignore[arg-type]
            except InvalidValue as error:
                said.append(str(error))
        await ctx.patch(flag("fine"))
        return said

    async with hold.worker():
        handle = await hold.submit(job)
        said = await ended(handle)
    assert [word in text for word, text in zip(("not open", "8,000", "StatePatch"), said, strict=True)] == [True] * 3
    assert (await hold.state(handle)).risk_flags == ("fine",)


async def test_another_worker_and_another_process_patch_in_between(hold: Holdfast) -> None:
    """A patch from outside, between two of the code, is part of what the second returns, also when that replays."""

    @hold.task
    async def job(ctx: Context) -> list[list[str]]:
        assert ctx.state.risk_flags == ()
        await ctx.patch(StatePatch(add_questions=("Which?",), set_flags=("first",)))
        await ctx.wait_event("go")
        before: list[str] = list(ctx.state.risk_flags)
        # A user has answered the question meanwhile; the code has seen it open.
        after = list((await ctx.patch(StatePatch(resolve_questions=("Which?",), set_flags=("second",)))).risk_flags)
        await ctx.wait_event("end")
        return [before, after, list(ctx.state.open_questions)]

    async with hold.worker():
        handle = await hold.submit(job)
        await reaches(handle, TaskState.WAITING)
        await hold.patch_state(
            handle, StatePatch(resolve_questions=("Which?",), set_flags=("outside",)), version=1, by="ann"
        )
    await hold.emit("go")
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
    await hold.emit("end")
    async with hold.worker():
        assert await ended(handle) == [["first"], ["first", "outside", "second"], []]
    assert await version_of(hold, handle.id) == 3


async def test_a_worker_that_lost_its_task_patches_nothing(hold: Holdfast) -> None:
    """Fenced: the one that took over applies the patch, and it is there once."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    lost: list[bool] = []

    @hold.task
    async def job(ctx: Context) -> int:
        is_first = not begun.is_set()
        begun.set()
        if is_first:
            await go_on.wait()
        lost.append(is_first)
        await ctx.patch(flag("own"))
        return len(ctx.state.risk_flags)

    async with crashing_worker(hold) as worker:
        handle = await hold.submit(job)
        await begun.wait()
        await hold.store.retire(worker.id)
        go_on.set()
        async with hold.worker():
            assert await ended(handle) == 1
    assert await version_of(hold, handle.id) == 1


async def test_a_state_saved_as_a_checkpoint_is_gone_through_again_from_its_beginning(hold: Holdfast) -> None:
    """What the code saw before the checkpoint it sees again, although the checkpoint holds more."""

    @hold.task
    async def job(ctx: Context) -> list[list[str]]:
        looks = [list(ctx.state.risk_flags)]
        for name in ("one", "two"):
            await ctx.patch(flag(name))
            looks.append(list(ctx.state.risk_flags))
        await ctx.wait_event("go")
        return looks

    async with hold.worker():
        handle = await hold.submit(job)
        await reaches(handle, TaskState.WAITING)
        assert await CheckpointManager(hold.store).maybe_save(handle.id, "every_step") is not None
        await hold.emit("go")
        assert await ended(handle) == [[], ["one"], ["one", "two"]]


async def test_a_damaged_checkpoint_is_passed_over(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    @hold.task(retry=Retry(max_attempts=1))
    async def job(ctx: Context) -> list[str]:
        if ctx.task.round == 2:
            return list(ctx.state.risk_flags)
        await ctx.patch(flag("one"))
        raise ConnectionError("again")

    async with hold.worker():
        handle = await hold.submit(job)
        with pytest.raises(TaskFailed):
            await ended(handle)
        await CheckpointManager(hold.store).maybe_save(handle.id, "every_step")
        monkeypatch.setattr(state_view, "damage_of", lambda _: "its checksum does not match")
        await hold.retry(handle)
        assert await ended(handle) == ["one"]


async def test_a_verifier_sees_what_the_work_has_patched(hold: Holdfast) -> None:
    """Also in an attempt of its own, where the work does not run."""

    @hold.task
    async def work(ctx: Context) -> str:
        assert ctx.state.risk_flags == ()
        await ctx.patch(flag("worked"))
        return "done"

    looks: list[tuple[str, ...]] = []

    @work.verify
    async def check(ctx: Context, _: str) -> bool:
        looks.append(ctx.state.risk_flags)
        await ctx.patch(flag("checked"))
        if len(looks) == 1:
            raise ConnectionError("again")
        return True

    async with hold.worker():
        handle = await hold.submit(work)
        await ended(handle)
    assert looks == [("worked",), ("worked",)]
    assert (await hold.state(handle)).risk_flags == ("worked", "checked")


async def test_a_machine_that_goes_on_in_a_later_state_sees_what_earlier_ones_patched(hold: Holdfast) -> None:
    looks: list[tuple[str, tuple[str, ...]]] = []
    machine: Machine[dict[str, Any]] = Machine("m", initial="a", transitions={"a": ["b"], "b": ["c"]}, final=["c"])

    @machine.state("a")
    async def first(ctx: Context, data: dict[str, Any]) -> Any:  # noqa: ANN401
        looks.append(("a", ctx.state.risk_flags))
        await ctx.patch(flag("a"))
        return Goto("b", data)

    @machine.state("b")
    async def second(ctx: Context, data: dict[str, Any]) -> Any:  # noqa: ANN401
        looks.append(("b", ctx.state.risk_flags))
        await ctx.patch(flag("b"))
        await ctx.wait_event("go")
        return Goto("c", data)

    definition = hold.register(machine)
    async with hold.worker():
        handle = await hold.submit(definition, {})
        await reaches(handle, TaskState.WAITING)
    await hold.emit("go")
    async with hold.worker():
        await ended(handle)
    assert looks == [("a", ()), ("b", ("a",)), ("b", ("a",))]
    assert await version_of(hold, handle.id) == 2


async def test_a_fork_has_the_patches_inside_a_step_that_stands_before_its_point(hold: Holdfast) -> None:
    """And its code sees them without running that step."""

    @hold.task
    async def job(ctx: Context) -> list[list[str]]:
        async def inner() -> None:
            await ctx.patch(flag("inner"))

        assert ctx.state.risk_flags == ()
        await ctx.step("outer", inner)
        between: list[str] = list(ctx.state.risk_flags)
        await ctx.patch(flag("behind"))
        return [between, list(ctx.state.risk_flags)]

    async with hold.worker():
        origin = await hold.submit(job)
        await ended(origin)
        assert (await hold.state(origin, at="outer")).risk_flags == ("inner",)
        fork = await hold.fork(origin, at="outer")
        assert await ended(fork) == [["inner"], ["inner", "behind"]]
        assert await version_of(hold, fork.id) == 2
        whole = await hold.fork(origin, patch=flag("forked"))
        assert await ended(whole) == [["inner"], ["inner", "behind", "forked"]]


async def test_a_fork_looks_at_the_patches_it_shares(hold: Holdfast) -> None:
    """A look inside a step that is shared may have seen a patch that is not: the fork's own patches get its number."""

    @hold.task
    async def job(ctx: Context) -> None:
        patched = asyncio.Event()

        async def look() -> None:
            await patched.wait()
            await ctx.refresh_state()

        async def other() -> None:
            await ctx.step("point", lambda: None)
            await ctx.patch(flag("behind"))
            patched.set()

        await asyncio.gather(ctx.step("outer", look), other())  # in this order

    async with hold.worker():
        origin = await hold.submit(job)
        await ended(origin)
        fork = await hold.fork(origin, at="point")
        await ended(fork)
    looks = []
    for handle in (origin, fork):
        [line] = [step for step in await hold.store.steps(handle.id) if step.kind == state_view.LOOK]
        looks.append(decode(line.output or b""))
    assert looks == [1, 0]
    assert (await hold.state(fork)).risk_flags == ("behind",)


# What it may use


async def test_a_task_has_a_budget_that_its_code_charges(hold: Holdfast) -> None:
    """Each charge counts once, however often the code comes by; what does not fit counts nothing."""

    @hold.task(budget=Budget(max_steps=3, max_llm_tokens=100, max_cost=1), retry=AT_ONCE)
    async def loop(ctx: Context) -> str:
        for _ in range(3):
            await ctx.charge(steps=1, llm_tokens=10, cost=0.25)
        if ctx.attempt == 1:
            raise ConnectionError("again")
        try:
            await ctx.charge(steps=1, llm_tokens=1)
        except BudgetExceeded as error:
            return f"{error.meter}"
        return "nothing limits it"

    async with hold.worker():
        handle = await hold.submit(loop)
        assert await ended(handle) == "steps"
    lines = (await hold.budget(handle)).lines
    assert [lines[meter].spent for meter in (Meter.STEPS, Meter.LLM_TOKENS, Meter.COST_MICROS)] == [3, 30, 750_000]
    assert all(line.reserved == 0 for line in lines.values())


async def test_a_child_draws_on_the_budget_of_its_parent(hold: Holdfast) -> None:
    @hold.task(retry=Retry(max_attempts=1))
    async def child(ctx: Context) -> None:
        await ctx.charge(steps=2)

    @hold.task(budget=Budget(max_steps=3), retry=Retry(max_attempts=1))
    async def parent(ctx: Context) -> str:
        await (await ctx.submit(child, key="first")).result()
        try:
            await (await ctx.submit(child, key="second")).result()
        except TaskFailed as error:
            return error.failure.type_name
        return "both"

    async with hold.worker():
        handle = await hold.submit(parent)
        assert "BudgetExceeded" in await ended(handle)
    assert (await hold.budget(handle)).lines[Meter.STEPS].spent == 2


async def test_wall_time_that_is_over_refuses_a_charge(hold: Holdfast) -> None:
    @hold.task(budget=Budget(max_wall_time_ms=0), retry=Retry(max_attempts=1))
    async def loop(ctx: Context) -> None:
        await ctx.charge(steps=1)

    async with hold.worker():
        handle = await hold.submit(loop)
        with pytest.raises(TaskFailed, match="wall_time_ms"):
            await ended(handle)
    assert (await hold.budget(handle)).lines[Meter.STEPS].spent == 0


def test_a_budget_that_could_not_be_kept_is_refused() -> None:
    hold = Holdfast("memory://")
    with pytest.raises(InvalidValue, match="is for agents"):
        hold.task(budget=Budget(max_steps=1, on_exhausted="ask"))(_nothing)
    with pytest.raises(InvalidValue, match="give a Budget"):
        hold.task(budget={"max_steps": 1})(_nothing)  # type: ignore[call-overload]


async def _nothing(ctx: Context) -> None:
    assert isinstance(ctx, Context)


async def test_a_plain_task_is_stopped_when_its_wall_time_is_spent() -> None:
    hold = Holdfast("memory://")
    begun: list[int] = []

    async def hang() -> None:
        begun.append(1)
        await asyncio.Event().wait()

    @hold.task(budget=Budget(max_wall_time_ms=60_000), retry=Retry(max_attempts=4))
    async def loop(ctx: Context) -> None:
        await ctx.step("hang", hang)

    async with sandbox(hold) as box:
        handle = await hold.submit(loop)
        with pytest.raises(TaskFailed, match="wall_time_ms"):
            await handle.result(timeout=3600)  # of the sandbox's time
        assert (await box.trace(handle)).took < timedelta(minutes=5)
    assert begun == [1]
