"""Random programs against a world that keeps count: nothing happens twice, nothing is lost, no doubt is hidden.

Calls fail, hang, and lose their answers; processes die at random Commits and in the middle of calls; tools and people
answer for what happened. True answers never lead to a wrong result.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from holdfast import (
    Absent,
    Context,
    Decision,
    Doubt,
    EffectState,
    Handle,
    Happened,
    Holdfast,
    Intent,
    ManualClock,
    NotHappened,
    Retry,
    StepFailed,
    StoreClosed,
    Unknown,
    Worker,
)
from holdfast.model.commit import Commit, Verdict
from holdfast.store.memory import MemoryStore
from tests.conftest import SOAK
from tests.engine.support import settle, vanish
from tests.everyday import FULL

S = EffectState
ENOUGH = 300
"""Seconds that no program needs."""

TURNS = 60
"""Of the loop, before time goes on."""


# Programs


@dataclass(frozen=True)
class Pay:
    """A ``once`` step: what becomes of its calls, one after the other, and who can tell afterwards."""

    calls: tuple[str, ...] = ()
    tool: str = "honest"
    person: str = "honest"
    carried: bool = False
    """Its intent rides in the Commit of a step before."""


@dataclass(frozen=True)
class Again:
    """A step that may be called again: it fails so many times first."""

    failures: int = 0


@dataclass(frozen=True)
class Stumble:
    """End the attempt, the first time, whatever goes on beside it."""


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class InTurn:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class AtOnce:
    parts: tuple[Any, ...]


CALLS = ("ok", "proof", "lost before", "lost after", "hangs before", "hangs after", "dies before", "dies after")
"""What becomes of a call; before and after is before and after it takes effect."""

pays = st.builds(
    Pay,
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=4).map(tuple),
    st.sampled_from(["honest", "honest", "honest", "unknown", "shaky", "none", "liar"]),
    st.sampled_from(["honest", "honest", "honest", "gives up", "liar"]),
    st.booleans(),
)
leaves = st.one_of(
    pays,
    pays,
    st.builds(Again, st.sampled_from([0, 1, 2])),
    st.just(Stumble()),
    st.builds(Pause, st.sampled_from([0.5, 10.0])),
)
programs = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(InTurn, st.lists(inner, min_size=1, max_size=4).map(tuple)),
        st.builds(AtOnce, st.lists(inner, min_size=1, max_size=4).map(tuple)),
    ),
    max_leaves=6,
)
deaths = st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["before", "after", "handed back"])), max_size=4)
"""Before or after which Commit each process dies, or at which it is stopped in an orderly way."""


# The world


@dataclass
class World:
    """What outlives a process: the store, the clock, and what really happened."""

    program: Any
    rejections: int
    clock: ManualClock = field(default_factory=ManualClock)
    calls: Counter[str] = field(default_factory=Counter)
    """By step."""
    made: list[tuple[str, str, str]] = field(default_factory=list)
    """Step, effect id, and what the call really did, of each that took effect."""
    lied: set[str] = field(default_factory=set)
    """The steps with a false answer."""
    stumbled: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    steps: dict[str, Pay] = field(default_factory=dict)
    decisions: Counter[Decision] = field(default_factory=Counter)
    deaths: int = 0
    kill: Any = None
    """Ends the process that runs now."""

    def __post_init__(self) -> None:
        self.store = MemoryStore(clock=self.clock)

    def truth(self, step: str, effect_id: str) -> Happened | Absent:
        for made_by, made_as, result in self.made:
            if (made_by, made_as) == (step, effect_id):
                return Happened(result)
        return Absent()

    def happen(self, step: str, effect_id: str) -> str:
        result = f"{step}, call {self.calls[step]}"
        self.made.append((step, effect_id, result))
        return result

    async def call(self, step: str, script: tuple[str, ...], effect_id: str) -> str:
        """Be called: do what the script says, and what comes behind it is fine."""
        self.calls[step] += 1
        what = script[self.calls[step] - 1] if self.calls[step] <= len(script) else "ok"
        kind, _, when = what.partition(" ")
        await asyncio.sleep(0)
        if when == "after" or kind == "ok":
            result = self.happen(step, effect_id)
            if kind == "ok":
                return result
        match kind:
            case "proof":
                raise NotHappened(step)
            case "lost":
                raise ConnectionResetError(step)
            case "dies":
                self.kill()
        await asyncio.Event().wait()
        raise AssertionError("this event is never set")

    async def ask_tool(self, step: str, effect_id: str) -> Any:  # noqa: ANN401
        self.asked[step] += 1
        match self.steps[step].tool:
            case "unknown":
                return Unknown("it cannot tell")
            case "liar":
                return self.lie(step, effect_id)
            case "shaky" if self.asked[step] % 2:
                raise OSError("down")
        return self.truth(step, effect_id)

    def lie(self, step: str, effect_id: str) -> Happened | Absent:
        self.lied.add(step)
        return Absent() if isinstance(self.truth(step, effect_id), Happened) else Happened("a lie")

    def decide(self, doubt: Doubt) -> tuple[Decision, Any]:
        """Say what the person in charge of a step says."""
        step, effect_id = doubt.effect.step_key, doubt.effect.effect_id
        person = self.steps[step].person
        if person == "gives up":
            return Decision.ABANDON, None
        answer = self.lie(step, effect_id) if person == "liar" else self.truth(step, effect_id)
        return (Decision.HAPPENED, answer.result) if isinstance(answer, Happened) else (Decision.ABSENT, None)

    # The application, as each process imports it

    def process(self) -> Holdfast:
        hold = Holdfast("memory://", clock=self.clock)

        @hold.task(retry=Retry(max_attempts=6, initial=0.5, jitter="none"))
        async def main(ctx: Context) -> Any:  # noqa: ANN401
            return await self.interpret(ctx, self.program, "p")

        @main.verify
        async def check(ctx: Context, result: Any) -> bool:  # noqa: ANN401, ARG001
            return ctx.task.round > self.rejections

        return hold

    async def interpret(self, ctx: Context, node: Any, path: str) -> Any:  # noqa: ANN401
        match node:
            case Pay():
                return await self.pay(ctx, node, path)
            case Again(failures):
                return await self.do_again(ctx, failures, path)
            case Stumble():
                if path not in self.stumbled:
                    self.stumbled.add(path)
                    await asyncio.sleep(0)
                    raise TimeoutError(path)
                return "went on"
            case Pause(seconds):
                await ctx.sleep(seconds, key=path)
                return "paused"
            case InTurn(parts):
                return [await self.interpret(ctx, part, f"{path}.{n}") for n, part in enumerate(parts)]
            case AtOnce(parts):
                async with asyncio.TaskGroup() as group:
                    branches = [
                        group.create_task(self.interpret(ctx, part, f"{path}.{n}")) for n, part in enumerate(parts)
                    ]
                return [branch.result() for branch in branches]

    async def pay(self, ctx: Context, node: Pay, path: str) -> str:
        self.steps[path] = node

        async def call(step: str, effect_id: str) -> str:
            return await self.call(step, node.calls, effect_id)

        async def look(effect_id: str, step: str) -> Any:  # noqa: ANN401
            return await self.ask_tool(step, effect_id)

        if node.carried:
            intent = Intent(path, call, path, timeout=1.0, settle=0.1)
            await ctx.step("choose", lambda: path, key=f"{path}:choose", arms=lambda _: [intent])
        try:
            return await ctx.step(
                "pay",
                call,
                path,
                key=path,
                effect="once",
                timeout=1.0,
                settle=0.1,
                retry=Retry(max_attempts=2, initial=0.5, jitter="none"),
                reconcile=None if node.tool == "none" else look,
            )
        except StepFailed as failed:
            return f"failed: {failed.type_name}"

    async def do_again(self, ctx: Context, failures: int, path: str) -> str:
        async def call() -> str:
            self.calls[path] += 1
            if self.calls[path] <= failures:
                raise ConnectionError(path)
            return f"{path} done"

        return await ctx.step("again", call, key=path, retry=Retry(max_attempts=3, initial=0.5, jitter="none"))

    # What has to be true, whenever no worker is at work

    async def check(self, hold: Holdfast) -> None:
        """Compare what is recorded with what happened."""
        listed = {doubt.effect.effect_id for doubt in await hold.doubts(limit=1000)}
        happened = Counter(effect_id for _, effect_id, _ in self.made)
        for effect in await self.store.effects(limit=1000):
            if effect.step_key in self.lied:
                continue
            times = happened[effect.effect_id]
            assert times <= 1, f"{effect} happened {times} times"
            match effect.state:
                case EffectState.FAILED | EffectState.INTENDED:
                    assert times == 0, f"{effect} happened, and is recorded as if it had not"
                case EffectState.DONE:
                    assert times == 1, f"{effect} did not happen, and is recorded as if it had"
                case EffectState.ABANDONED:
                    assert self.steps[effect.step_key].person == "gives up"
                case _:
                    assert effect.effect_id in listed, f"{effect} is in doubt, and not listed"
        known = {effect.effect_id for effect in await self.store.effects(limit=1000)}
        assert happened.keys() <= known, "something happened that was not recorded"
        by_step = Counter(step for step, _, _ in self.made if step not in self.lied)
        assert all(times == 1 for times in by_step.values()), f"done again in a later round: {by_step}"

    def check_result(self, node: Any, path: str, result: Any) -> None:  # noqa: ANN401
        """Compare what the task returned with what happened."""
        match node:
            case Pay() if path in self.lied:
                pass
            case Pay():
                made = [what for step, _, what in self.made if step == path]
                if result.startswith("failed: "):
                    assert result != "failed: holdfast.EffectGivenUp" or node.person == "gives up"
                    assert not made or result == "failed: holdfast.EffectGivenUp", f"{path} happened: {result}"
                else:
                    assert made == [result]
            case Again():
                assert result == f"{path} done"
            case InTurn(parts) | AtOnce(parts):
                for n, (part, one) in enumerate(zip(parts, result, strict=True)):
                    self.check_result(part, f"{path}.{n}", one)


# Lives of processes


class Death:
    """Ends a process at its n-th Commit: before or after it is applied, or in an orderly way."""

    def __init__(self, hold: Holdfast, worker: Worker, plan: tuple[int, str] | None) -> None:
        self.happened = False
        self.orderly = False
        self._worker = worker
        self._left, self._how = plan if plan is not None else (0, "")
        self._send = hold.services.committer._send
        hold.services.committer._send = self._around

    def kill(self) -> None:
        """Die, in the middle of whatever is going on."""
        self.happened = True
        self._worker._host.abandon("the process died")  # nothing in it does anything more

    async def _around(self, commits: Sequence[Commit]) -> list[Verdict]:
        if self.happened and not self.orderly:
            raise StoreClosed("this process is dead")
        self._left -= 1
        if self._left != 0:
            return await self._send(commits)
        if self._how == "handed back":
            self.happened = self.orderly = True
            return await self._send(commits)
        self.kill()
        if self._how == "after":
            await self._send(commits)
        raise StoreClosed("this process is dead")


async def live(world: World, task_id: str, plan: tuple[int, str] | None) -> bool:
    """Work in a process of its own until the task has ended, or the process; say whether the task has."""
    async with world.process() as hold:
        worker = await hold.worker(grace=0.0, lease=10_000).__aenter__()
        death = Death(hold, worker, plan)
        world.kill = death.kill
        for second in range(ENOUGH):
            await settle(TURNS)
            task = await world.store.get(task_id)
            assert task is not None
            assert second < ENOUGH - 1, f"the task is stuck: {task} {await hold.doubts()}"
            if task.state.is_terminal or death.happened:
                break
            for doubt in await hold.doubts():
                if doubt.approval_id is not None:
                    decision, result = world.decide(doubt)
                    world.decisions[decision] += 1
                    await hold.resolve(doubt, decision, result=result, by="anna")
            world.clock.advance(1.0)
        if death.orderly:
            await worker.stop(grace=0.0)
        else:
            await world.store.retire(await vanish(worker))
        await settle()
        await world.check(hold)
        task = await world.store.get(task_id)
    return task is not None and task.state.is_terminal


async def never() -> None: ...


async def run(program: Any, plans: list[tuple[int, str]], rejections: int) -> World:  # noqa: ANN401
    world = World(program, rejections)
    await world.store.open()
    close = world.store.close
    world.store.open = never  # type: ignore[assignment, method-assign]
    world.store.close = never  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.engine.api.async_holdfast.make_store", lambda *_, **__: world.store)
        async with world.process() as hold:
            handle: Handle[Any] = await hold.submit("main")
        while not await live(world, handle.id, plans[world.deaths] if world.deaths < len(plans) else None):
            world.deaths += 1
            assert world.deaths < 100, "it dies for ever"
    task = await world.store.get(handle.id)
    assert task is not None
    assert task.error is None, task.error
    world.check_result(program, "p", task.result)
    await close()
    return world


@settings(max_examples=5000 if SOAK else 300 if FULL else 100)
@given(program=programs, plans=deaths, rejections=st.sampled_from([0, 0, 1]))
@example(Pay(("lost after",)), [], 0)
@example(Pay(("dies after",), tool="none"), [], 0)
@example(Pay(("dies before", "dies after"), carried=True), [(1, "after")], 1)
@example(AtOnce((Pay(("hangs after",)), Stumble())), [(2, "handed back")], 1)
def test_random_programs(program: Any, plans: list[tuple[int, str]], rejections: int) -> None:  # noqa: ANN401
    world = asyncio.run(run(program, plans, rejections))
    event(f"{min(world.deaths, 5)} deaths")
    for decision in world.decisions:
        event(f"a person says {decision}")
    for tool in {world.steps[step].tool for step in world.asked}:
        event(f"a tool is asked that is {tool}")


@pytest.mark.parametrize("who", ["tool", "person"])
def test_the_world_notices_a_lie(who: str) -> None:
    """What the random programs prove is owed to the truth: after a lie the same call happens twice, or never."""
    lying = Pay(("lost after",), tool="liar") if who == "tool" else Pay(("lost after",), tool="none", person="liar")
    world = asyncio.run(run(lying, [], 0))
    assert len(world.made) == 2
    assert world.lied == {"p"}
