"""Random programs, killed at random Commits: always the same result, and a journal where everything stands once."""

# ruff: noqa: ARG001 - a task takes its ctx, whether it needs it or not

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from holdfast import (
    Child,
    Context,
    Handle,
    Holdfast,
    ManualClock,
    Retry,
    StepFailed,
    StepState,
    StoreClosed,
    TaskFailed,
    Worker,
)
from holdfast.model.commit import Commit, Verdict
from holdfast.store.memory import MemoryStore
from tests.engine.support import settle, vanish

POLICY = Retry(max_attempts=4, initial=0.5, factor=4.0, jitter="none")  # waits in the slot first, then suspended
ENOUGH = 400
"""Seconds that no program needs."""


@dataclass(frozen=True)
class Do:
    """A step that fails so many times before it succeeds; from 4 on it gives up, and the program handles that."""

    failures: int = 0


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class Hear:
    """Wait for an event."""


@dataclass(frozen=True)
class Call:
    """Submit a child and wait for it."""

    fails: bool


@dataclass(frozen=True)
class Raise:
    """End the attempt, the first time: the task's own policy brings it back."""


@dataclass(frozen=True)
class InTurn:
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class AtOnce:
    parts: tuple[Any, ...]


leaves = st.one_of(
    st.builds(Do, st.sampled_from([0, 0, 0, 1, 2, 4])),
    st.builds(Sleep, st.sampled_from([0.5, 2.0, 10.0])),
    st.just(Hear()),
    st.builds(Call, st.booleans()),
)
programs = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(InTurn, st.lists(inner, min_size=1, max_size=4).map(tuple)),
        st.builds(AtOnce, st.lists(inner, min_size=1, max_size=4).map(tuple)),
    ),
    max_leaves=8,
)
crashes = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=4)
"""Before or after which Commit each process dies."""


def expected(node: Any, path: str) -> Any:  # noqa: ANN401
    match node:
        case Do(failures):
            return f"gave up {path}" if failures >= POLICY.max_attempts else path
        case Sleep():
            return "slept"
        case Hear():
            return f"heard {path}"
        case Call(fails):
            return f"child failed {path}" if fails else f"child {path}"
        case InTurn(parts) | AtOnce(parts):
            return [expected(part, f"{path}.{number}") for number, part in enumerate(parts)]


def channels(node: Any, path: str) -> list[str]:  # noqa: ANN401
    match node:
        case Hear():
            return [path]
        case InTurn(parts) | AtOnce(parts):
            return [name for number, part in enumerate(parts) for name in channels(part, f"{path}.{number}")]
        case _:
            return []


class World:
    """What outlives a process: the store, the clock, and the effects on the world."""

    def __init__(self, program: Any) -> None:  # noqa: ANN401
        self.program = program
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.runs: Counter[str] = Counter()
        self.raised = False

    def process(self) -> Holdfast:
        """The application as each process imports it."""
        hold = Holdfast("memory://", clock=self.clock)

        @hold.task(retry=Retry(max_attempts=1))
        async def child(ctx: Context, path: str, fails: bool) -> str:
            if fails:
                raise ConnectionError(path)
            return f"child {path}"

        @hold.task(retry=Retry(max_attempts=2, initial=0.5, jitter="none"))
        async def main(ctx: Context, raises: bool) -> Any:  # noqa: ANN401
            result = await self.interpret(ctx, self.program, "p")
            if raises and not self.raised:
                self.raised = True
                raise TimeoutError("once")
            return [result, await ctx.step("last", lambda: "end")]

        return hold

    async def interpret(self, ctx: Context, node: Any, path: str) -> Any:  # noqa: ANN401, C901, PLR0911
        match node:
            case Do(failures):

                async def do() -> str:
                    self.runs[path] += 1
                    await asyncio.sleep(0)
                    if self.runs[path] <= failures or failures >= POLICY.max_attempts:
                        raise ConnectionError(path)
                    return path

                try:
                    return await ctx.step("do", do, key=path, retry=POLICY)
                except StepFailed:
                    return f"gave up {path}"
            case Sleep(seconds):
                await ctx.sleep(seconds, key=path)
                return "slept"
            case Hear():
                return await ctx.wait_event(path, key=path)
            case Call(fails):
                submitted: Child[str] = await ctx.submit("child", path, fails, key=path)
                try:
                    return await submitted.result()
                except TaskFailed:
                    return f"child failed {path}"
            case InTurn(parts):
                return [await self.interpret(ctx, part, f"{path}.{number}") for number, part in enumerate(parts)]
            case AtOnce(parts):
                branches = (self.interpret(ctx, part, f"{path}.{number}") for number, part in enumerate(parts))
                return list(await asyncio.gather(*branches))


class Crash:
    """Ends a process at its n-th Commit, before or after it is applied."""

    def __init__(self, hold: Holdfast, worker: Worker, at: int, *, applied: bool) -> None:
        self.happened = asyncio.Event()
        self._worker = worker
        self._left, self._applied = at, applied
        self._send = hold.services.committer._send
        hold.services.committer._send = self._crash

    async def _crash(self, commits: Sequence[Commit]) -> list[Verdict]:
        if self.happened.is_set():
            raise StoreClosed("this process is dead")
        self._left -= 1
        if self._left:
            return await self._send(commits)
        self.happened.set()
        self._worker._host.abandon("the process died")  # nothing in it does anything more
        if self._applied:
            await self._send(commits)
        raise StoreClosed("this process is dead")


async def live(world: World, task_id: str, crash: tuple[int, bool] | None) -> bool:
    """Work in a process of its own until the task has ended, or the process; say whether the task has."""
    async with world.process() as hold:
        worker = await hold.worker(grace=0.0, lease=10_000).__aenter__()
        death = None if crash is None else Crash(hold, worker, crash[0], applied=crash[1])
        for second in range(ENOUGH):
            await settle(40)
            task = await world.store.get(task_id)
            assert second < ENOUGH - 1, f"the task is stuck: {task}"
            if (task is not None and task.state.is_terminal) or (death is not None and death.happened.is_set()):
                break
            world.clock.advance(1.0)
        await world.store.retire(await vanish(worker))
        await settle()
        task = await world.store.get(task_id)
    return task is not None and task.state.is_terminal


async def never() -> None: ...


async def run(program: Any, deaths: list[tuple[int, bool]], *, raises: bool) -> None:  # noqa: ANN401
    world = World(program)
    await world.store.open()
    close = world.store.close
    world.store.open = never  # type: ignore[assignment, method-assign]
    world.store.close = never  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.engine.api.async_holdfast.make_store", lambda *_, **__: world.store)
        async with world.process() as hold:
            handle: Handle[Any] = await hold.submit("main", raises)
            for channel in channels(program, "p"):
                await hold.emit(channel, f"heard {channel}")
        died = 0
        for death in [*deaths, None]:
            if await live(world, handle.id, death):
                break
            died += 1
    event(f"{died} deaths")
    task = await world.store.get(handle.id)
    assert task is not None
    assert task.result == [expected(program, "p"), "end"], task.error
    journal = [step for step in await world.store.steps(handle.id) if step.kind != "attempt"]
    assert len({step.key for step in journal}) == len(journal)
    assert {step.state for step in journal} <= {StepState.COMPLETED, StepState.FAILED}
    children = [step.key for step in journal if step.kind == "child"]
    assert sum((await world.store.count()).values()) == 1 + len(children)
    for step in journal:
        if step.kind == "step" and step.key in world.runs:
            # Whatever is not recorded runs again, once for each process that died; nothing else does.
            assert world.runs[step.key] <= step.attempts + died
            assert step.attempts <= world.runs[step.key]
    await close()


@given(program=programs, deaths=crashes, raises=st.booleans())
def test_random_programs_survive_random_deaths(program: Any, deaths: list[tuple[int, bool]], raises: bool) -> None:  # noqa: ANN401
    asyncio.run(run(program, deaths, raises=raises))
