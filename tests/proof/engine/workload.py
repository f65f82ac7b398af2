"""Tasks that use everything the engine offers, each with a result that is known beforehand.

Their steps do nothing to the world but leave evidence. Children go to the queue of their parent, so that a test can
keep one family to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from holdfast import Context, Holdfast, Retry, SyncContext, TaskDefinition
from tests.proof.engine.evidence import Evidence

Kind: TypeAlias = TaskDefinition[[int], int]

KINDS = {
    "steps": 4,
    "parallel": 6,
    "blocking": 4,
    "retried-step": 4,
    "retried-task": 5,
    "sleeping": 5,
    "listening": 6,
    "parenting": 8,
    "verified": 8,
}
"""Each kind, and the least number of Commits one undisturbed worker makes for such a task."""

CHILDREN = {"listening": 1, "parenting": 3}
"""How many children a task of this kind has."""

SLEEP = 0.4
"""Seconds: long enough to be suspended for, where HOLD_SLOT is shorter."""

SOON = Retry(max_attempts=3, initial=0.01, jitter="none")


def expected_result(name: str, number: int) -> int:
    """What a task of this name returns for this number."""
    factors = {"steps": 3, "parallel": 5, "blocking": 3, "parenting": 7, "leaf": 1, "calling": 0}
    return number * factors.get(name, 2)


def define(hold: Holdfast, evidence: Evidence) -> dict[str, Kind]:
    """Define one task of each kind, and return them by name."""
    kinds = (
        define_steps(hold, evidence),
        define_parallel(hold, evidence),
        define_blocking(hold, evidence),
        define_retried_step(hold, evidence),
        define_retried_task(hold, evidence),
        define_sleeping(hold, evidence),
        define_listening(hold, evidence),
        define_parenting(hold, evidence),
        define_verified(hold, evidence),
    )
    return {kind.name: kind for kind in kinds}


def step(ctx: Context, evidence: Evidence, key: str, value: int) -> Coroutine[Any, Any, int]:
    """Do a step that returns a value."""

    async def act() -> int:
        evidence.ran(ctx.task_id, ctx.task.round, key)
        return value

    return ctx.step(key, act)


def define_steps(hold: Holdfast, evidence: Evidence) -> Kind:
    @hold.task(name="steps")
    async def steps(ctx: Context, number: int) -> int:
        return sum([await step(ctx, evidence, key, number) for key in ("one", "two", "three")])

    return steps


def define_parallel(hold: Holdfast, evidence: Evidence) -> Kind:
    @hold.task(name="parallel")
    async def parallel(ctx: Context, number: int) -> int:
        found = await asyncio.gather(*(step(ctx, evidence, f"branch-{branch}", number) for branch in range(4)))
        return sum(found) + await step(ctx, evidence, "join", number)

    return parallel


def define_blocking(hold: Holdfast, evidence: Evidence) -> Kind:
    @hold.task(name="blocking")
    def blocking(ctx: SyncContext, number: int) -> int:
        def acting(key: str) -> Callable[[], int]:
            def act() -> int:
                evidence.ran(ctx.task_id, ctx.task.round, key)
                return number

            return act

        return sum(ctx.step(key, acting(key)) for key in ("one", "two", "three"))

    return blocking


def define_retried_step(hold: Holdfast, evidence: Evidence) -> Kind:
    @hold.task(name="retried-step")
    async def retried_step(ctx: Context, number: int) -> int:
        async def fail_twice() -> int:
            evidence.ran(ctx.task_id, ctx.task.round, "flaky")
            if evidence.runs()[ctx.task_id, ctx.task.round, "flaky"] <= 2:
                raise ConnectionError("not yet")
            return number

        return 2 * await ctx.step("flaky", fail_twice, retry=SOON)

    return retried_step


def define_retried_task(hold: Holdfast, evidence: Evidence) -> Kind:
    @hold.task(name="retried-task", retry=SOON)
    async def retried_task(ctx: Context, number: int) -> int:
        async def fail_first() -> int:
            evidence.ran(ctx.task_id, ctx.task.round, "flaky")
            if ctx.attempt == 1:
                raise ConnectionError("not in the first attempt")
            return number

        return await step(ctx, evidence, "before", number) + await ctx.step("flaky", fail_first)

    return retried_task


def define_sleeping(hold: Holdfast, evidence: Evidence) -> Kind:
    @hold.task(name="sleeping")
    async def sleeping(ctx: Context, number: int) -> int:
        before = await step(ctx, evidence, "before", number)
        await ctx.sleep(SLEEP)
        return before + await step(ctx, evidence, "after", number)

    return sleeping


def define_listening(hold: Holdfast, evidence: Evidence) -> Kind:
    @hold.task(name="calling")
    async def calling(ctx: Context, number: int) -> int:
        async def call() -> int:
            evidence.ran(ctx.task_id, ctx.task.round, "call")
            await hold.emit(f"from-{ctx.task_id}", number, key="once")
            return 0

        return await ctx.step("call", call)

    @hold.task(name="listening")
    async def listening(ctx: Context, number: int) -> int:
        before = await step(ctx, evidence, "before", number)
        caller = await ctx.submit(calling, number, queue=ctx.task.queue)
        heard = await ctx.wait_event(f"from-{caller.id}")
        assert heard == number
        return before + await caller.result() + await step(ctx, evidence, "after", number)

    return listening


def define_parenting(hold: Holdfast, evidence: Evidence) -> Kind:
    @hold.task(name="leaf")
    async def leaf(ctx: Context, number: int) -> int:
        return await step(ctx, evidence, "only", number)

    @hold.task(name="parenting")
    async def parenting(ctx: Context, number: int) -> int:
        children = [await ctx.submit(leaf, number * factor, queue=ctx.task.queue) for factor in (1, 2, 3)]
        results = await asyncio.gather(*(child.result() for child in children))
        return sum(results) + await step(ctx, evidence, "after", number)

    return parenting


def define_verified(hold: Holdfast, evidence: Evidence) -> Kind:
    """Define a task whose verifier wants a second round."""

    @hold.task(name="verified")
    async def verified(ctx: Context, number: int) -> int:
        return 2 * await step(ctx, evidence, "work", number)

    @verified.verify
    async def verify(ctx: Context, result: int) -> bool | str:
        async def look() -> int:
            evidence.ran(ctx.task_id, ctx.task.round, "verify/look")
            return result

        assert await ctx.step("look", look) == result
        return True if ctx.task.round > 1 else "once more, please"

    return verified
