"""A worker that is stopped after a blocking call was handed to its thread, and before the thread began."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Context, EffectState, Holdfast
from holdfast.engine.attempt.stop_reasons import HandedBack
from holdfast.engine.runtime.threads import DaemonThreads
from tests.engine.effects.support import World, effect_of
from tests.engine.support import until


async def test_a_call_that_waits_for_its_thread_is_not_made_by_a_worker_that_stops(
    quick: Holdfast, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread cannot be cancelled on its way: it has to look for itself."""
    stopped: list[bool] = []
    run = DaemonThreads.run

    async def stop_first(self: DaemonThreads, function: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        if "late" in options and not stopped:
            stopped.append(True)
            [attempt] = worker._host.attempts.values()  # to meet it in that very moment
            attempt.stop(HandedBack())
        return await run(self, function, *args, **options)

    monkeypatch.setattr(DaemonThreads, "run", stop_first)

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_blocking, 5, effect="once", timeout=10, settle=1)

    worker = quick.worker(concurrency=1)
    async with worker:
        handle = await quick.submit(work)
        await until(lambda: bool(stopped))
        assert await handle.result(timeout=30) == "paid 5"
    effect = await effect_of(quick, handle)
    assert (effect.state, effect.attempt) == (EffectState.DONE, 2)
    assert len(world.calls) == 1
