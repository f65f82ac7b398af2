"""Chapter 11, "Advanced Checkpoint Strategies": the three strategies; save, validate, resume, rotate."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from holdfast import (
    Agent,
    CheckpointExpired,
    CheckpointManager,
    Checkpoints,
    CheckpointStrategy,
    Holdfast,
    KnownFact,
    ManualClock,
    ModelRefused,
    Retry,
    ScriptedModel,
    StatePatch,
    TaskFailed,
    tool,
)
from holdfast.agent.scripted import Line, call

clock = ManualClock()
hold = Holdfast("memory://", clock=clock)


@tool(risk="read_only")
def probe(host: str) -> str:
    "Probe a host."
    return f"{host} is up"


def observe(name: str, arguments: object, result: str, state: object) -> StatePatch:
    return StatePatch(append_facts=(KnownFact(key=name, value=result, source=name),))


TWO_ITERATIONS: list[Line] = [
    [call("probe", host="a"), call("probe", host="b")],
    [call("probe", host="c"), call("probe", host="d")],
]


def guard(name: str, script: Sequence[Line], strategy: str) -> Agent:
    kept = Checkpoints(strategy, max_age=timedelta(hours=1), max_count=10)
    return Agent(name, tools=[probe], observe=observe, model=ScriptedModel(script), checkpoint=kept, retry=ONE_TRY)


ONE_TRY = Retry(max_attempts=1)
agents = {
    strategy: hold.register(guard(f"guard-{strategy}", [*TWO_ITERATIONS, "All are up."], strategy))
    for strategy in CheckpointStrategy
}
interrupted = hold.register(
    guard("interrupted", [call("probe", host="a"), ModelRefused("out of service"), "It is up."], "every_step")
)


async def main() -> None:
    async with hold:
        tasks = {strategy: await hold.submit(agent, "Are the hosts up?") for strategy, agent in agents.items()}
        async with hold.worker():
            for strategy, task in tasks.items():
                await task.result(timeout=60)
                print(f"{strategy}: {len(await hold.store.checkpoints(task.id))}")
            failed = await hold.submit(interrupted, "Is host a up?")
            with suppress(TaskFailed):
                await failed.result(timeout=60)

        manager = CheckpointManager(hold.store, "every_step", max_age=timedelta(hours=1), max_count=2)
        task = tasks[CheckpointStrategy.EVERY_STEP]
        print("another trigger saves", await manager.maybe_save(task.id, "on_state_change"))
        for _ in range(4):
            await manager.maybe_save(task.id, "every_step")
        clock.advance(2 * 3600)
        print("rotated away, all but", len(await hold.store.checkpoints(task.id)) - await manager.cleanup(task.id))

        try:
            await manager.validate_and_resume(failed.id)
        except CheckpointExpired as expired:
            print("too old:", str(expired).partition(": ")[2].partition(". ")[0])
        found = await manager.validate_and_resume(failed.id, accept_stale=True)
        print(f"accepted: {found.task.state}, {len(found.state.known_facts)} fact known")
        async with hold.worker():
            print(await failed.result(timeout=60))


if __name__ == "__main__":
    asyncio.run(main())
