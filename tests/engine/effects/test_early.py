"""Deciding before a call has settled: by reconcile after a proven death, and by a person."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Absent,
    Conflict,
    Context,
    Decision,
    EffectState,
    Handle,
    Happened,
    Holdfast,
    Retry,
    TaskFailed,
    TaskState,
    Unknown,
)
from holdfast.engine.effects.doubt import ASKED_EARLY, LOST, NO_RECONCILE
from holdfast.model.commit import Commit, Verdict
from holdfast.testing import Sandbox, sandbox
from tests.engine.effects.support import World, effect_of, stand_between, stands, writes
from tests.engine.support import crashing_worker, ended, reaches, until

S = EffectState
LONG = 600.0
"""Seconds until a call has settled: what comes sooner did not wait for that."""
ONE_ATTEMPT = Retry(max_attempts=1)


async def die_in_the_call(hold: Holdfast, world: World, handle: Handle[Any], *, is_proven: bool) -> None:
    """Have a worker die while the call is under way, with or without proof that it did."""
    async with crashing_worker(hold) as worker:
        await until(lambda: bool(world.calls))
        dead = worker._host.lease.worker_id
    hold.services.is_gone = lambda worker_id, _: is_proven and worker_id == dead
    assert (await handle.task()).state is TaskState.PENDING


# By reconcile


async def test_after_a_proven_death_it_is_asked_at_once(hold: Holdfast, world: World) -> None:
    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", reconcile=world.was_paid, timeout=LONG)

    handle = await hold.submit(work)
    await die_in_the_call(hold, world, handle, is_proven=True)
    async with hold.worker():
        assert await ended(handle) == "paid 5"
    assert len(world.calls) == len(world.asked) == 1


async def test_without_proof_it_waits(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", reconcile=world.was_paid, timeout=LONG)

    handle = await quick.submit(work)
    await die_in_the_call(quick, world, handle, is_proven=False)
    async with quick.worker():
        await reaches(handle, TaskState.WAITING)
    assert world.asked == []
    assert (await effect_of(quick, handle)).state is S.IN_DOUBT


async def fails(effect_id: str, *args: object) -> Absent:
    raise OSError(effect_id, *args)


async def unknown(effect_id: str, *args: object) -> Unknown:
    return Unknown(f"{effect_id} {args}")


async def absent(effect_id: str, *args: object) -> Absent:  # noqa: ARG001
    return Absent()


@pytest.mark.parametrize("early", [fails, unknown, absent])
async def test_an_early_answer_but_happened_decides_nothing_and_it_is_asked_again(
    app: Holdfast, world: World, early: Callable[..., Awaitable[object]]
) -> None:
    """The request of the dead process arrives later."""
    asked: list[timedelta] = []

    async def was_paid(effect_id: str, amount: int) -> object:
        asked.append(box.elapsed)
        return Happened(f"paid {amount}") if len(asked) > 1 else await early(effect_id, amount)

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", reconcile=was_paid, timeout=LONG)

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await crash_in_the_call(box, handle)
            assert len(asked) == 1
            waiting = await effect_of(app, handle)
            assert waiting.state is S.IN_DOUBT
            said = "it did not happen so far" if early is absent else "it does not know ("
            assert (waiting.note or "").startswith(f"{LOST}; {ASKED_EARLY}: {said}")
        assert await handle.result() == "paid 5"
    assert len(asked) == 2
    assert asked[0] <= timedelta(seconds=60)
    assert asked[1] >= timedelta(seconds=LONG)
    assert len(world.calls) == 1


async def test_a_person_is_asked_without_what_was_only_true_before_it_had_settled(app: Holdfast, world: World) -> None:
    @app.task
    async def ask(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", reconcile=unknown, timeout=LONG)

    @app.task
    async def no_reconcile(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", timeout=LONG)

    for task, early, late in (
        (ask, f"{LOST}; {ASKED_EARLY}: it does not know (", f"{LOST}; "),
        (no_reconcile, f"{LOST}; {NO_RECONCILE}", f"{LOST}; {NO_RECONCILE}"),
    ):
        async with sandbox(app) as box:
            with box.frozen():
                handle = await app.submit(task)
                await crash_in_the_call(box, handle)
                assert ((await effect_of(app, handle)).note or "").startswith(early)
                await box.advance(LONG)
                [doubt] = await app.doubts(handle)
                assert doubt.effect.state is S.NEEDS_HUMAN
                assert late in doubt.question
                assert ASKED_EARLY not in doubt.question
                assert doubt.question.count(NO_RECONCILE) == (task is no_reconcile)


# By a person


async def decided_early(hold: Holdfast, world: World, handle: Handle[Any], decision: Decision, **named: Any) -> None:  # noqa: ANN401
    await die_in_the_call(hold, world, handle, is_proven=False)
    [doubt] = await hold.doubts(handle)
    assert (doubt.effect.state, doubt.decisions) == (S.ARMED, ())
    assert decision in doubt.early
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
    [doubt] = await hold.doubts(handle)
    assert (doubt.effect.state, doubt.early) == (S.IN_DOUBT, tuple(map(Decision, ("happened", "absent", "abandon"))))
    await hold.resolve(doubt, decision, by="ada", note="seen", **named)


async def test_a_person_is_heard_at_once_who_says_that_it_happened(hold: Holdfast, world: World) -> None:
    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", timeout=LONG)

    handle = await hold.submit(work)
    await decided_early(hold, world, handle, Decision.HAPPENED, result="receipt")
    with pytest.raises(Conflict, match="not in doubt"):
        await hold.resolve((await effect_of(hold, handle)).effect_id, Decision.ABANDON, by="ben")
    async with hold.worker():
        assert await ended(handle) == "receipt"
    assert (len(world.calls), await hold.doubts(handle)) == (1, [])


async def test_a_person_is_heard_at_once_who_abandons_it(hold: Holdfast, world: World) -> None:
    @hold.task(retry=ONE_ATTEMPT)
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", timeout=LONG)

    handle = await hold.submit(work)
    await decided_early(hold, world, handle, Decision.ABANDON)
    async with hold.worker():
        with pytest.raises(TaskFailed, match="given up"):
            await ended(handle)
    assert len(world.calls) == 1


async def test_a_decision_before_a_worker_took_the_task_over(hold: Holdfast, world: World) -> None:
    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", timeout=LONG)

    handle = await hold.submit(work)
    await die_in_the_call(hold, world, handle, is_proven=False)
    await hold.resolve((await effect_of(hold, handle)).effect_id, "happened", result="receipt", by="ada")
    async with hold.worker():
        assert await ended(handle) == "receipt"


async def test_a_person_decides_while_a_worker_is_at_another_branch(hold: Holdfast, world: World) -> None:
    busy, go_on, paid = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        busy.set()
        await go_on.wait()

    @hold.task
    async def work(ctx: Context) -> str:
        async def pay() -> str:
            receipt = await ctx.step("pay", world.hang, 5, effect="once", timeout=LONG)
            paid.set()
            return receipt

        receipt, _ = await asyncio.gather(pay(), ctx.step("wait", wait))
        return receipt

    handle = await hold.submit(work)
    await die_in_the_call(hold, world, handle, is_proven=False)
    busy.clear()
    async with hold.worker():
        await asyncio.wait_for(busy.wait(), 60)
        effect = await stands(hold, handle, S.IN_DOUBT)
        assert (await handle.task()).state is TaskState.RUNNING
        await hold.resolve(effect.effect_id, "happened", result="receipt", by="ada")
        await asyncio.wait_for(paid.wait(), 60)
        go_on.set()
        assert await ended(handle) == "receipt"


async def test_a_person_who_is_faster_than_the_worker_that_took_over(hold: Holdfast, world: World) -> None:
    """The worker knows the effect as armed, and a person decides before it has written that it is in doubt."""

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang, 5, effect="once", timeout=LONG)

    handle = await hold.submit(work)
    await die_in_the_call(hold, world, handle, is_proven=False)
    decided = False

    async def decide_first(
        commits: Sequence[Commit], send: Callable[[Sequence[Commit]], Awaitable[list[Verdict]]]
    ) -> list[Verdict]:
        nonlocal decided
        if not decided and writes(commits, S.IN_DOUBT):
            decided = True
            await hold.resolve((await effect_of(hold, handle)).effect_id, "happened", result="receipt", by="ada")
        return await send(commits)

    stand_between(hold, decide_first)
    async with hold.worker():
        assert await ended(handle) == "receipt"
    assert decided
    assert (await effect_of(hold, handle)).note == "happened, by ada"


async def test_no_decision_while_the_calling_worker_has_the_task(quick: Holdfast, world: World) -> None:
    go_on = asyncio.Event()

    @quick.task
    async def work(ctx: Context) -> str:
        step = ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=world.was_paid, settle=LONG)
        receipt, _ = await asyncio.gather(step, ctx.step("wait", go_on.wait))
        return receipt

    handle = await quick.submit(work)
    async with quick.worker():
        effect = await stands(quick, handle, S.IN_DOUBT)
        [doubt] = await quick.doubts(handle)
        assert (doubt.decisions, doubt.early) == ((), ())
        with pytest.raises(Conflict, match="the worker that made the call still clears it up"):
            await quick.resolve(effect.effect_id, "happened", by="ada")
        go_on.set()
        await reaches(handle, TaskState.WAITING)  # from here on its fence has ended
        await quick.resolve(effect.effect_id, "happened", result="receipt", by="ada")
        assert await ended(handle) == "receipt"


# What has to wait all the same


async def crash_in_the_call(box: Sandbox, handle: Handle[Any]) -> str:
    """Kill the worker, and return the effect once it is in doubt and its task waits; time stands still."""
    await box.idle()
    box.crash_now()
    await box.advance(60)
    assert (await handle.task()).state is TaskState.WAITING
    [effect] = [one for one in await box.hold.store.effects(task_id=handle.id) if one.step_key == "pay"]
    return effect.effect_id


async def test_what_a_person_says_did_not_happen_is_called_again_when_it_has_settled(
    app: Holdfast, world: World
) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        call = world.hang if not world.calls else world.pay
        return await ctx.step("pay", call, 5, effect="once", timeout=LONG, settle=10)

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            effect_id = await crash_in_the_call(box, handle)
            settled = await app.resolve(effect_id, "absent", by="ada")
            assert settled.settle_at is not None
            ahead = (settled.settle_at - box.clock.now()).total_seconds()
            assert ahead > LONG - 60
            await box.advance(ahead - 1)
            assert (len(world.calls), (await handle.task()).state) == (1, TaskState.WAITING)
            await box.advance(2)
            assert world.calls == [effect_id, effect_id]
        assert await handle.result() == "paid 5"


async def test_a_new_round_waits_for_a_call_that_was_taken_for_absent_early(app: Holdfast, world: World) -> None:
    @app.task(deadline=90)
    async def work(ctx: Context) -> str:
        call = world.hang if not world.calls else world.pay
        return await ctx.step("pay", call, 5, effect="once", timeout=LONG)

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            effect_id = await crash_in_the_call(box, handle)
            await box.advance(60)
            assert (await handle.task()).state is TaskState.FAILED
            settled = await app.resolve(effect_id, "absent", by="ada")
            await app.retry(handle, by="ada", deadline=10 * LONG)
            assert settled.settle_at is not None
            await box.advance((settled.settle_at - box.clock.now()).total_seconds() - 1)
            assert len(world.calls) == 1
            await box.advance(2)
            assert len(world.calls) == 2
        assert await handle.result() == "paid 5"
    assert len(set(world.calls)) == 2, "it is another call, in a round of its own"


@pytest.mark.parametrize("decision", ["happened", "compensate", "absent", "reconcile"])
async def test_an_undo_waits_until_its_effect_has_settled(app: Holdfast, world: World, decision: str) -> None:
    undone: list[timedelta] = []

    async def refund(result: object, amount: int) -> None:  # noqa: ARG001
        undone.append(box.elapsed)

    async def note(result: object) -> None:  # noqa: ARG001
        undone.append(timedelta())

    @app.task(retry=ONE_ATTEMPT)
    async def work(ctx: Context) -> None:
        await ctx.step("note", lambda: None, compensate=note)
        reconcile = world.was_paid if decision == "reconcile" else None
        await ctx.step(
            "pay", world.hang, 5, effect="once", timeout=LONG, reconcile=reconcile, compensate=refund, settle=10
        )
        raise RuntimeError("on")

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            if decision == "reconcile":
                await box.idle()
                box.crash_now()
                await box.advance(60)
            else:
                effect_id = await crash_in_the_call(box, handle)
                await app.resolve(effect_id, decision, by="ada")
                if decision == "absent":
                    await app.cancel(handle, "no more")
                await box.advance(60)
            effects = {effect.step_key: effect for effect in await app.store.effects(task_id=handle.id)}
            settles = effects["pay"].settle_at
            assert settles is not None
            assert undone == []
            await box.advance((settles - box.clock.now()).total_seconds() - 1)
            assert undone == []
            assert not (await handle.task()).state.is_terminal
            await box.advance(2)
        await until(lambda: timedelta() in undone)
        await reaches(handle, TaskState.FAILED, TaskState.CANCELLED)
    assert len(undone) == (1 if decision == "absent" else 2)
    assert len(world.calls) == 1


async def test_what_its_own_call_returned_is_undone_at_once(app: Holdfast, world: World) -> None:
    undone: list[timedelta] = []

    async def refund(result: object, amount: int) -> None:  # noqa: ARG001
        undone.append(box.elapsed)

    @app.task(retry=ONE_ATTEMPT)
    async def work(ctx: Context) -> None:
        await ctx.step("pay", world.pay, 5, effect="once", timeout=LONG, compensate=refund)
        raise RuntimeError("on")

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await box.idle()
            assert undone == [timedelta()]
            assert (await handle.task()).state is TaskState.FAILED
