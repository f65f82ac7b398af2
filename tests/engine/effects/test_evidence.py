"""What is learned too late: kept beside the effect, read before a decision, and reported when it contradicts one."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import (
    Context,
    Decision,
    Doubt,
    Effect,
    EffectState,
    Handle,
    Holdfast,
    NotHappened,
    Retry,
    StepFailed,
    TaskFailed,
    TaskState,
)
from holdfast.model.commit import Commit, Verdict
from holdfast.model.effect import Evidence
from holdfast.testing import sandbox
from tests.engine.effects.support import (
    A_WHILE,
    Send,
    World,
    effect_of,
    effects_in,
    never_paid,
    open_doubt,
    stand_between,
    stands,
    writes,
)
from tests.engine.support import crashing_worker, ended, reaches, until

S = EffectState
AFTER_THE_END = (Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON)


@dataclass
class Receipt:
    amount: int
    at: datetime


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


async def evidence_of(hold: Holdfast, handle: Handle[Any]) -> list[dict[str, Any]]:
    effect = await effect_of(hold, handle)
    return [json.loads(one.body) for one in await hold.store.evidence(handle.id, effect.effect_id)]


def reported(effect: Effect, task_id: str, *, attempt: int = 1, result: object = "paid 5 late") -> Evidence:
    """Write what a worker writes whose call returned too late."""
    body = {"outcome": "returned", "attempt": attempt, "result": result, "error": ""}
    return Evidence(task_id=task_id, effect_id=effect.effect_id, fence=effect.fence, body=json.dumps(body).encode())


# Read before a person is asked


async def test_a_blocking_call_that_outlives_its_worker_says_what_it_returned(hold: Holdfast, world: World) -> None:
    """On every kind of store: neither the tool nor a person has to be asked, and the result has its type."""
    results: list[object] = []

    def pay(amount: int, effect_id: str) -> Receipt:
        world.hang_blocking(amount, effect_id)
        return Receipt(amount, MOMENT)

    @hold.task
    async def work(ctx: Context) -> int:
        receipt = await ctx.step(
            "pay", pay, 5, effect="once", reconcile=world.was_paid, timeout=A_WHILE, settle=0.1, returns=Receipt
        )
        results.append(receipt)
        return receipt.amount

    handle = await hold.submit(work)
    async with crashing_worker(hold):
        await until(lambda: world.calls)
    world.release()
    await until(lambda: evidence_of(hold, handle))
    assert [one["outcome"] for one in await evidence_of(hold, handle)] == ["returned"]
    assert (await effect_of(hold, handle)).state is S.ARMED, "a report moves nothing by itself"
    async with hold.worker():
        assert await ended(handle) == 5
    assert results == [Receipt(5, MOMENT)]
    assert (await effect_of(hold, handle)).state is S.DONE
    assert world.asked == []
    assert len(world.calls) == 1


async def test_an_async_call_that_outlives_its_worker_says_what_it_returned(quick: Holdfast, world: World) -> None:
    async def pay(amount: int, effect_id: str) -> str:
        world.calls.append(effect_id)
        await until(world.gate.is_set)
        return f"paid {amount} late"

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", reconcile=world.was_paid, timeout=A_WHILE, settle=0.1)

    handle = await quick.submit(work)
    async with crashing_worker(quick):
        await until(lambda: world.calls)
    world.release()
    await until(lambda: evidence_of(quick, handle))
    async with quick.worker():
        assert await ended(handle) == "paid 5 late"
    assert world.asked == []
    assert len(world.calls) == 1


async def test_a_result_that_is_refused_because_the_lease_is_over_is_kept(quick: Holdfast, world: World) -> None:
    """The call returned in time, but its worker was given up for dead meanwhile."""

    async def give_up(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        if writes(commits, S.DONE) and not fired:
            fired.append(True)
            await quick.store.retire(worker.id)
        return await send(commits)

    fired: list[bool] = []

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once", timeout=0.1, settle=0)

    handle = await quick.submit(work)
    stand_between(quick, give_up)
    async with quick.worker() as worker:
        await until(lambda: fired)
        await until(lambda: evidence_of(quick, handle))
    async with quick.worker():
        assert await ended(handle) == "paid 5"
    assert [one["result"] for one in await evidence_of(quick, handle)] == ["paid 5"]
    assert len(world.calls) == 1


async def test_a_thread_that_outlives_its_timeout_says_what_it_returned(app: Holdfast, world: World) -> None:
    """Before it has settled: then that is what happened."""

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.hang_blocking, 5, effect="once", reconcile=never_paid, timeout=20, settle=600
        )

    async with sandbox(app):
        handle = await app.submit(work)
        await stands(app, handle, S.IN_DOUBT)
        world.release()
        assert await handle.result() == "paid 5 late"
        assert (await effect_of(app, handle)).state is S.DONE
    assert len(world.calls) == 1


@pytest.mark.parametrize("leaves_more", [False, True])
async def test_a_thread_that_outlives_the_store_starts_nothing_more(
    world: World, caplog: pytest.LogCaptureFixture, *, leaves_more: bool
) -> None:
    """The loop may be at its last turn: what begins then is destroyed unbegun, and a coroutine says so on stderr."""
    hold, begun = Holdfast("memory://"), []

    async def more() -> None:
        begun.append(True)

    def pay(amount: int, effect_id: str) -> Any:  # noqa: ANN401
        answer = world.hang_blocking(amount, effect_id)
        return more() if leaves_more else answer

    @hold.task
    async def work(ctx: Context) -> Any:  # noqa: ANN401
        return await ctx.step("pay", pay, 5, effect="once", timeout=A_WHILE)

    async with hold:
        handle = await hold.submit(work)
        async with crashing_worker(hold):
            await until(lambda: world.calls)
    before = asyncio.all_tasks()
    world.release()
    await until(lambda: "cannot record" in caplog.text)
    assert asyncio.all_tasks() == before
    assert begun == []
    assert f"{handle.id}: cannot record the outcome of step pay: it ended after the store was closed" in caplog.text


async def test_a_thread_that_leaves_the_rest_to_the_loop_says_what_that_raised(app: Holdfast, world: World) -> None:
    async def rest() -> str:
        raise ValueError("declined")

    def pay(amount: int, effect_id: str) -> Any:  # noqa: ANN401
        world.hang_blocking(amount, effect_id)
        return rest()

    @app.task
    async def work(ctx: Context) -> Any:  # noqa: ANN401
        return await ctx.step("pay", pay, 5, effect="once", timeout=20)

    async with sandbox(app):
        handle = await app.submit(work)
        await open_doubt(app, handle)
        world.release()
        await until(lambda: evidence_of(app, handle))
        [report] = await evidence_of(app, handle)
        assert (report["outcome"], report["error"]) == ("raised", "ValueError: declined")


async def test_what_comes_while_a_person_is_asked_is_shown_to_them(app: Holdfast, world: World) -> None:
    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang_blocking, 5, effect="once", timeout=20)

    async with sandbox(app):
        handle = await app.submit(work)
        doubt = await open_doubt(app, handle)
        assert doubt.evidence == ()
        world.release()
        await until(lambda: evidence_of(app, handle))
        [doubt] = await app.doubts(handle)
        assert doubt.effect.state is S.NEEDS_HUMAN
        assert [json.loads(one.body)["result"] for one in doubt.evidence] == ["paid 5 late"]
        await app.resolve(doubt, "happened", result="paid 5, as it says", by="anna")
        assert await handle.result() == "paid 5, as it says"
    assert len(world.calls) == 1


async def test_a_result_that_cannot_be_stored_is_a_clear_error(app: Holdfast, world: World) -> None:
    def pay(amount: int, effect_id: str) -> Any:  # noqa: ANN401
        world.hang_blocking(amount, effect_id)
        return {object}

    @app.task
    async def work(ctx: Context) -> Any:  # noqa: ANN401
        return await ctx.step("pay", pay, 5, effect="once", timeout=20)

    async with sandbox(app):
        handle = await app.submit(work)
        await open_doubt(app, handle)
        world.release()
        await until(lambda: evidence_of(app, handle))
        [report] = await evidence_of(app, handle)
        assert report["outcome"] == "returned"
        assert report["error"].startswith("{<class 'object'>}: ")


async def test_an_error_that_comes_late_contradicts_nothing(app: Holdfast, world: World) -> None:
    def pay(amount: int, effect_id: str) -> str:
        world.hang_blocking(amount, effect_id)
        raise OSError("after all")

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", timeout=20)

    async with sandbox(app):
        handle = await app.submit(work)
        await app.resolve(await open_doubt(app, handle), "abandon", by="anna")
        with pytest.raises(TaskFailed):
            await handle.result()
        world.release()
        await until(lambda: evidence_of(app, handle))
        assert [(one["outcome"], one["error"]) for one in await evidence_of(app, handle)] == [
            ("raised", "OSError: after all")
        ]
        assert (await effect_of(app, handle)).state is S.ABANDONED


# Contradictions


async def is_reopened(hold: Holdfast, handle: Handle[Any], state: EffectState) -> Doubt:
    """Wait until the one effect of an ended task is a doubt again; return it."""
    await stands(hold, handle, state)
    [doubt] = await hold.doubts(handle)
    assert doubt.decisions == AFTER_THE_END
    assert "did happen; see the evidence" in str(doubt.effect.note)
    assert [json.loads(one.body)["outcome"] for one in doubt.evidence] == ["returned"]
    return doubt


async def test_what_was_abandoned_and_happened_after_all_is_a_doubt_again(app: Holdfast, world: World) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang_blocking, 5, effect="once", timeout=20)

    async with sandbox(app):
        handle = await app.submit(work)
        await app.resolve(await open_doubt(app, handle), "abandon", by="anna")
        with pytest.raises(TaskFailed):
            await handle.result()
        world.release()
        doubt = await is_reopened(app, handle, S.NEEDS_HUMAN)
        await app.resolve(doubt, "happened", result="paid 5", by="bob")
        assert (await effect_of(app, handle)).state is S.DONE
        assert await app.doubts() == []


async def test_what_was_taken_for_absent_in_an_ended_task_is_a_doubt_again(app: Holdfast, world: World) -> None:
    """And a resume finds the result."""

    @app.task(retry=Retry(max_attempts=1), deadline=60)
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.hang_blocking, 5, effect="once", timeout=120)

    async with sandbox(app):
        handle = await app.submit(work)
        with pytest.raises(TaskFailed, match="Deadline"):
            await handle.result()
        [doubt] = await app.doubts(handle)
        await app.resolve(doubt, "absent", by="anna")
        assert await app.doubts() == []
        world.release()
        await is_reopened(app, handle, S.IN_DOUBT)
    assert len(world.calls) == 1


async def test_what_was_done_again_and_then_returned_twice_is_a_doubt(app: Holdfast, world: World) -> None:
    """It cannot be prevented once a person said that it had not happened; but it is not hidden either."""

    def pay(amount: int, effect_id: str) -> str:
        return world.pay_blocking(amount, effect_id) if world.calls else world.hang_blocking(amount, effect_id)

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", timeout=20)

    async with sandbox(app):
        handle = await app.submit(work)
        await app.resolve(await open_doubt(app, handle), "absent", by="anna")
        assert await handle.result() == "paid 5"
        assert (await effect_of(app, handle)).state is S.DONE
        world.release()
        await is_reopened(app, handle, S.NEEDS_HUMAN)
        assert (await handle.task()).state is TaskState.COMPLETED
    assert len(world.doubled) == 1


async def test_a_report_that_comes_while_the_call_is_made_again_waits_for_its_end(app: Holdfast, world: World) -> None:
    second = asyncio.Event()

    def hang_first(amount: int, effect_id: str) -> Any:  # noqa: ANN401
        if not world.calls:
            return world.hang_blocking(amount, effect_id)
        return pay_second(amount, effect_id)

    async def pay_second(amount: int, effect_id: str) -> str:
        await second.wait()
        return await world.pay(amount, effect_id)

    @app.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", hang_first, 5, effect="once", timeout=20)

    async with sandbox(app) as box:
        handle = await app.submit(work)
        with box.frozen():
            await until(lambda: world.calls)
            await box.advance(30)
            doubt = await open_doubt(app, handle)
            await app.resolve(doubt, "absent", by="anna")
            await stands(app, handle, S.ARMED)
            world.release()
            await until(lambda: evidence_of(app, handle))
            await box.advance(5)
            assert (await effect_of(app, handle)).state is S.ARMED, "it is under way, and is left alone"
        second.set()
        assert await handle.result() == "paid 5"
        await is_reopened(app, handle, S.NEEDS_HUMAN)
    assert len(world.doubled) == 1


async def test_a_report_that_comes_before_the_call_is_made_again_prevents_that(app: Holdfast, world: World) -> None:
    """The tool said "absent", and the next try waits for its time."""
    proofs: list[str] = []

    def pay(amount: int, effect_id: str) -> str:
        return world.pay_blocking(amount, effect_id) if world.calls else world.hang_blocking(amount, effect_id)

    async def came_to_its_end(effect_id: str, amount: int) -> Any:  # noqa: ANN401
        proofs.append(effect_id)
        return await never_paid(effect_id, amount)

    @app.task
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=3, initial=100.0, max_delay=1000.0, jitter="none")
        return await ctx.step(
            "pay", pay, 5, effect="once", timeout=20, settle=1, retry=retry, reconcile=came_to_its_end
        )

    async with sandbox(app) as box:
        app.services.is_gone = lambda *_: True  # so "absent" is believed, although the thread goes on
        with box.frozen():
            handle = await app.submit(work)
            await until(lambda: world.calls)
            await box.advance(30)
            assert (await effect_of(app, handle)).state is S.INTENDED
            world.release()
            await stands(app, handle, S.IN_DOUBT)
        assert await handle.result() == "paid 5 late"
    assert len(proofs) == 2, "early, and when it had settled"
    assert len(world.calls) == 1
    assert world.doubled == []


@pytest.mark.parametrize("durable", [False, True], ids=["before the arming", "after the arming"])
async def test_a_report_that_comes_while_the_call_is_being_armed_again(
    app: Holdfast, world: World, durable: bool
) -> None:
    """No report was found. Either the call is not made, or it is a doubt that it was made twice."""

    def pay(amount: int, effect_id: str) -> str:
        return world.pay_blocking(amount, effect_id) if world.calls else world.hang_blocking(amount, effect_id)

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=3, initial=0.0)
        return await ctx.step("pay", pay, 5, effect="once", timeout=20, settle=1, retry=retry, reconcile=never_paid)

    armed: list[Effect] = []

    async def tell(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        now = writes(commits, S.ARMED) and len(armed) == 1
        armed.extend(effect for effect in effects_in(commits) if effect.state is S.ARMED)
        verdicts = await send(commits) if durable or not now else []
        if now:
            world.release()
            await until(lambda: evidence_of(app, handle))
            if not durable:
                await stands(app, handle, S.IN_DOUBT)
                verdicts = await send(commits)
        return verdicts

    async with sandbox(app):
        app.services.is_gone = lambda *_: True
        stand_between(app, tell)
        handle = await app.submit(work)
        result = await handle.result()
        assert len(armed) == 2
        if durable:
            assert result == "paid 5"
            await is_reopened(app, handle, S.NEEDS_HUMAN)
            assert len(world.doubled) == 1
        else:
            assert result == "paid 5 late"
            assert (await effect_of(app, handle)).state is S.DONE
            assert world.doubled == []
            assert len(world.calls) == 1


async def test_a_report_about_a_step_that_gave_up_is_not_lost(app: Holdfast, world: World) -> None:
    """The code went on without it; the task still runs."""
    on = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> str:
        with pytest.raises(StepFailed):
            await ctx.step("pay", world.hang_blocking, 5, effect="once", timeout=20, settle=1, reconcile=never_paid)
        await on.wait()
        return "without it"

    async with sandbox(app):
        app.services.is_gone = lambda *_: True
        handle = await app.submit(work)
        await stands(app, handle, S.INTENDED)
        world.release()
        await stands(app, handle, S.IN_DOUBT)
        on.set()
        assert await handle.result() == "without it"
        await is_reopened(app, handle, S.IN_DOUBT)


async def test_a_report_about_an_earlier_round_is_not_lost(app: Holdfast, world: World) -> None:
    """The new round makes a call of its own, under another id: there is no question about the old one any more."""

    def pay(amount: int, effect_id: str) -> str:
        return world.pay_blocking(amount, effect_id) if world.calls else world.hang_blocking(amount, effect_id)

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", pay, 5, effect="once", timeout=20, settle=1, reconcile=never_paid)

    async with sandbox(app):
        app.services.is_gone = lambda *_: True
        handle = await app.submit(work)
        with pytest.raises(TaskFailed, match="not over within its timeout"):
            await handle.result()
        first = await effect_of(app, handle)
        assert first.state is S.INTENDED
        await app.retry(handle)
        assert await handle.result() == "paid 5"
        world.release()
        await until(lambda: app.doubts(handle))
        [doubt] = await app.doubts(handle)
    assert doubt.effect.effect_id == first.effect_id
    assert len(set(world.calls)) == 2


async def test_a_proof_about_the_second_call_says_nothing_about_the_first(app: Holdfast, world: World) -> None:
    """The report about the first comes while the third is waited for."""

    def pay(amount: int, effect_id: str) -> str:
        if not world.calls:
            return world.hang_blocking(amount, effect_id)
        world.calls.append(effect_id)
        raise NotHappened("the second")

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=5, initial=100.0, max_delay=1000.0, jitter="none")
        return await ctx.step("pay", pay, 5, effect="once", timeout=20, settle=1, retry=retry, reconcile=never_paid)

    async with sandbox(app) as box:
        app.services.is_gone = lambda *_: True
        with box.frozen():
            handle = await app.submit(work)
            await until(lambda: world.calls)
            await box.advance(150)
            assert (await effect_of(app, handle)).state is S.FAILED
            world.release()
            await stands(app, handle, S.IN_DOUBT)
        assert await handle.result() == "paid 5 late"
    assert len(world.calls) == 2
    assert len(world.happened) == 1


async def test_evidence_of_others_is_read_with_care(quick: Holdfast, world: World) -> None:
    """Whatever it contains, it is evidence and not code; what is not about a result does not count."""

    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step(
            "pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=world.was_paid, settle=0.3
        )

    handle = await quick.submit(work)
    async with quick.worker():
        effect = await stands(quick, handle, S.IN_DOUBT)
        for body in (b"null", b"[]", b'"returned"', b"{}", b'{"outcome":"maybe"}', b'{"outcome":null,"attempt":3}'):
            await quick.store.add_evidence(Evidence(task_id=handle.id, effect_id=effect.effect_id, fence=1, body=body))
        assert await ended(handle) == "paid 5"
    assert world.asked == [effect.effect_id]


async def test_a_report_is_read_before_the_call_is_made_again(app: Holdfast, world: World) -> None:
    """Its writer died before it saw what it contradicts."""
    world.raises = [ConnectionResetError("lost")]

    @app.task
    async def work(ctx: Context) -> str:
        retry = Retry(max_attempts=3, initial=100.0, max_delay=1000.0, jitter="none")
        return await ctx.step("pay", world.pay, 5, effect="once", settle=1, retry=retry, reconcile=never_paid)

    async with sandbox(app) as box:
        with box.frozen():
            handle = await app.submit(work)
            await box.advance(10)
            effect = await stands(app, handle, S.INTENDED)
            await app.store.add_evidence(reported(effect, handle.id))
        assert await handle.result() == "paid 5 late"
        assert (await effect_of(app, handle)).state is S.DONE
    assert len(world.calls) == 1


async def test_a_report_is_read_before_the_step_gives_up(app: Holdfast, world: World) -> None:
    """It came while the tool was asked, who said "absent"."""
    world.raises = [ConnectionResetError("lost")]

    async def too_early(effect_id: str, amount: int) -> Any:  # noqa: ANN401
        effect = await effect_of(app, handle)
        await app.store.add_evidence(reported(effect, handle.id))
        return await never_paid(effect_id, amount)

    @app.task(retry=Retry(max_attempts=1))
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay, 5, effect="once", settle=1, reconcile=too_early)

    async with sandbox(app):
        handle = await app.submit(work)
        assert await handle.result() == "paid 5 late"
    assert len(world.calls) == 1


async def test_a_report_written_by_hand_is_one(quick: Holdfast, world: World) -> None:
    @quick.task
    async def work(ctx: Context) -> str:
        return await ctx.step("pay", world.pay_then_lose_the_answer, 5, effect="once", reconcile=never_paid, settle=0.3)

    handle = await quick.submit(work)
    async with quick.worker():
        effect = await stands(quick, handle, S.IN_DOUBT)
        await quick.store.add_evidence(reported(effect, handle.id))
        assert await ended(handle) == "paid 5 late"
    await reaches(handle, TaskState.COMPLETED)
    assert len(world.calls) == 1
