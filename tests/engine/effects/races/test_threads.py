"""Calls in threads, which no timeout stops: what they still do, and what they say when they are through."""

from collections.abc import Sequence
from typing import Any

from holdfast import Absent, Context, Decision, EffectState, Happened, Holdfast, TaskState
from holdfast.model.commit import Commit, Verdict
from holdfast.testing import Sandbox, sandbox
from tests.engine.effects.races.support import AT_ONCE
from tests.engine.effects.support import (
    Send,
    World,
    effect_of,
    effects_in,
    open_doubt,
    stand_between,
    stands,
    writes,
)
from tests.engine.support import ended, reaches, settle, until

S = EffectState


async def test_absent_is_older_than_what_a_thread_did_while_the_tool_was_asked(app: Holdfast, world: World) -> None:
    """It acts, and comes to its end with an error, after the tool has looked and before it has answered."""

    def pay(amount: int, effect_id: str) -> str:
        world.hang_blocking(amount, effect_id)
        raise ConnectionResetError("the answer was lost")

    async def was_paid(effect_id: str, amount: int) -> Happened | Absent:
        answer = await world.was_paid(effect_id, amount)
        world.release()
        await until(lambda: app.store.evidence(handle.id, effect_id))
        return answer

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", reconcile=was_paid, timeout=600, settle=1, retry=AT_ONCE)

    async with sandbox(app) as box:
        handle = await app.submit(work)
        with box.frozen():
            await until(lambda: world.calls)
            await box.advance(600)
            await stands(app, handle, S.IN_DOUBT)
        doubt = await open_doubt(app, handle)
    assert len(world.asked) == 1
    assert len(world.happened) == 1
    assert len(world.calls) == 1
    assert "thread" in (doubt.effect.note or "")


async def test_the_engines_own_timeout_is_not_a_timeout_error_of_the_tool(box: Sandbox, world: World) -> None:
    """``absent_on`` is about what the function raises: the thread goes on."""
    hold = box.hold

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.hang_blocking, 5, effect="once", timeout=20, settle=1, absent_on=(TimeoutError,), retry=AT_ONCE
        )

    handle = await hold.submit(work)
    await open_doubt(hold, handle)
    assert len(world.calls) == 1
    world.release()


async def test_a_timeout_error_of_the_tool_itself_is_believed(box: Sandbox, world: World) -> None:
    hold = box.hold
    world.raises.append(TimeoutError("no connection in time"))

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.pay, 5, effect="once", timeout=20, settle=1, absent_on=(TimeoutError,), retry=AT_ONCE
        )

    handle = await hold.submit(work)
    assert await ended(handle) == "paid 5"
    assert len(world.calls) == 2


async def test_a_late_result_that_cannot_be_kept_is_not_replaced_by_its_looks(box: Sandbox, world: World) -> None:
    """A person says what the step returned; the text for the object is only for people."""
    hold = box.hold

    def pay(amount: int, effect_id: str) -> Any:  # noqa: ANN401
        world.hang_blocking(amount, effect_id)
        return object()

    @hold.task
    async def work(ctx: Context) -> object:
        return await ctx.step("pay", pay, 5, effect="once", timeout=20, settle=600)

    handle = await hold.submit(work)
    await stands(hold, handle, S.IN_DOUBT)
    world.release()
    doubt = await open_doubt(hold, handle)
    assert "object object" in (doubt.effect.note or "")
    await hold.resolve(doubt, "happened", result="paid", by="anna")
    assert await ended(handle) == "paid"


async def test_a_report_between_the_look_for_it_and_the_next_call_prevents_that(app: Holdfast, world: World) -> None:
    """A person said that it had not happened; the thread comes to its end just as the call is being armed again."""

    def pay(amount: int, effect_id: str) -> str:
        return world.pay_blocking(amount, effect_id) if world.calls else world.hang_blocking(amount, effect_id)

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", timeout=20, settle=1)

    fired: list[bool] = []

    async def tell(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        if writes(commits, S.ARMED) and effects_in(commits)[0].attempt == 2 and not fired:
            fired.append(True)
            world.release()
            [effect] = await app.store.effects(task_id=handle.id)
            await until(lambda: app.store.evidence(handle.id, effect.effect_id))
            await settle(1000)
        return await send(commits)

    async with sandbox(app):
        stand_between(app, tell)
        handle = await app.submit(work)
        await app.resolve(await open_doubt(app, handle), "absent", by="anna")
        assert await ended(handle) == "paid 5 late"
        assert (await effect_of(app, handle)).state is S.DONE
        assert await app.doubts() == []
    assert fired
    assert len(world.calls) == 1
    assert len(world.happened) == 1


async def test_a_person_who_knows_of_the_report_is_not_overruled_by_it(box: Sandbox, world: World) -> None:
    """A person sees the evidence and still decides that it did not happen: it bounced, say, and is sent again."""
    hold = box.hold

    def pay(amount: int, effect_id: str) -> str:
        return world.pay_blocking(amount, effect_id) if world.calls else world.hang_blocking(amount, effect_id)

    @hold.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", timeout=20, settle=1)

    handle = await hold.submit(work)
    doubt = await open_doubt(hold, handle)
    assert doubt.evidence == ()
    world.release()
    await until(lambda: hold.store.evidence(handle.id, doubt.effect.effect_id))
    doubt = await open_doubt(hold, handle)
    assert len(doubt.evidence) == 1
    await hold.resolve(doubt, "absent", by="anna", note="it bounced; send it again")
    assert await ended(handle) == "paid 5"
    assert len(world.calls) == 2
    assert await hold.doubts() == []


async def test_what_a_report_reopens_while_its_task_goes_on_can_be_decided(box: Sandbox, world: World) -> None:
    """The call was made again meanwhile, and only the report asks about it."""
    hold = box.hold

    def pay(amount: int, effect_id: str) -> str:
        return world.pay_blocking(amount, effect_id) if world.calls else world.hang_blocking(amount, effect_id)

    @hold.task
    async def work(ctx: Context) -> str:
        paid = await ctx.step("pay", pay, 5, effect="once", timeout=20, settle=1)
        await ctx.wait_event("on")
        return paid

    handle = await hold.submit(work)
    await hold.resolve(await open_doubt(hold, handle), "absent", by="anna")
    await stands(hold, handle, S.DONE)
    await reaches(handle, TaskState.WAITING)
    world.release()
    await stands(hold, handle, S.NEEDS_HUMAN)
    [doubt] = await hold.doubts()
    assert doubt.decisions == (Decision.HAPPENED, Decision.ABANDON)
    assert len(doubt.evidence) == 1
    await hold.resolve(doubt, "happened", result="paid twice", by="anna")
    assert await hold.doubts() == []
    await hold.emit("on", 1)
    assert await ended(handle) == "paid 5", "what the step returned is journaled"
