"""ctx.uuid() and ctx.random(): in the shared past they are the origin's, afterwards the fork's own."""

import asyncio

import pytest

from holdfast import Context, Goto, Handle, Holdfast, Machine, Retry, SyncContext
from holdfast.engine.attempt.scope import INSIDE
from tests.engine.manage.fork.support import finish, is_over
from tests.engine.support import until

Numbers = list[str]


@pytest.fixture
async def drawing(quick: Holdfast) -> Holdfast:
    """A task that draws a number before, between and after its steps, and cannot stand others for the same step."""

    @quick.task(name="draw")
    async def draw(ctx: Context, steps: int = 3) -> Numbers:
        drawn = []
        for number in range(steps):
            drawn.append(str(ctx.uuid()))
            await ctx.step(f"use-{number}", str, drawn[-1], effect="once")
            drawn.append(str(ctx.random()))
        return drawn

    return quick


async def test_they_are_the_origins_up_to_the_last_shared_step(drawing: Holdfast) -> None:
    origin: Handle[Numbers] = await drawing.submit("draw")
    [theirs] = await finish(drawing, origin)
    [ours] = await finish(drawing, await drawing.fork(origin, at="use-1"))
    assert ours[:3] == theirs[:3]
    assert not set(ours[3:]) & set(theirs)


async def test_without_a_shared_step_they_are_its_own(drawing: Holdfast) -> None:
    origin: Handle[Numbers] = await drawing.submit("draw")
    fork = await drawing.fork(origin)
    theirs, ours = await finish(drawing, origin, fork)
    assert not set(ours) & set(theirs)


async def test_a_fork_of_a_fork_keeps_both_pasts_apart(drawing: Holdfast) -> None:
    origin: Handle[Numbers] = await drawing.submit("draw", 4)
    [first] = await finish(drawing, origin)
    fork = await drawing.fork(origin, at="use-0")
    [second] = await finish(drawing, fork)
    [third] = await finish(drawing, await drawing.fork(fork, at="use-2"))
    [early] = await finish(drawing, await drawing.fork(fork, at="use-0"))
    assert third[:1] == first[:1]
    assert third[1:5] == second[1:5]
    assert not set(third[5:]) & {*first, *second}
    assert early[:1] == first[:1]
    assert not set(early[1:]) & {*first, *second, *third}


async def test_they_stay_the_same_when_the_fork_itself_replays(drawing: Holdfast) -> None:
    origin: Handle[Numbers] = await drawing.submit("draw")
    await finish(drawing, origin)
    fork = await drawing.fork(origin, at="use-0")
    [ours] = await finish(drawing, fork)
    assert await finish(drawing, await drawing.fork(fork, at="use-2")) != [ours]  # its last number is its own
    replayed = (await finish(drawing, await drawing.fork(fork, at="use-2")))[0]
    assert replayed[:5] == ours[:5]


async def test_in_a_second_round_of_the_origin(quick: Holdfast) -> None:
    @quick.task
    async def draw(ctx: Context) -> Numbers:
        number = str(ctx.uuid())
        await ctx.step("use", str, number)
        return [number, str(ctx.uuid()), ctx.feedback or ""]

    @draw.verify
    async def fine(_: Context, result: Numbers) -> bool | str:
        return bool(result[2]) or "once more"

    origin = await quick.submit(draw)
    [theirs] = await finish(quick, origin)
    [ours] = await finish(quick, await quick.fork(origin, at="use"))
    assert (ours[0] == theirs[0], ours[1] == theirs[1]) == (True, False)


async def test_branches_that_go_on_beside_each_other(quick: Holdfast) -> None:
    """One has left the past behind while the other is still in it."""

    @quick.task
    async def draw(ctx: Context) -> list[Numbers]:
        async def branch(name: str, steps: int) -> Numbers:
            drawn = []
            for number in range(steps):
                drawn.append(str(ctx.uuid(key=f"{name}-{number}")))
                await ctx.step(f"{name}-{number}", str, drawn[-1], effect="once")
            return drawn

        if ctx.task.id == origin.id:
            short = await branch("short", 1)
            return [short, await branch("long", 3)]
        return list(await asyncio.gather(branch("short", 3), branch("long", 4)))

    origin = await quick.submit(draw)
    [(short, long)] = await finish(quick, origin)
    [(own_short, own_long)] = await finish(quick, await quick.fork(origin))
    assert own_short[:1] == short
    assert own_long[:3] == long
    assert len({*own_short, *own_long, *short, *long}) == 7


async def test_a_fork_whose_code_takes_another_way(quick: Holdfast) -> None:
    """Some shared steps are never asked for again: its numbers are its own all the same."""

    @quick.task
    async def draw(ctx: Context, way: str) -> Numbers:
        await ctx.step("first", str)
        await ctx.step(f"{way}-1", str)
        await ctx.step(f"{way}-2", str)
        return [str(ctx.uuid())]

    origin = await quick.submit(draw, "left")
    [theirs] = await finish(quick, origin)
    [ours] = await finish(quick, await quick.fork(origin, at="left-2", user_input=("right",)))
    assert ours != theirs


async def test_a_step_of_the_past_that_is_done_again_does_not_end_it(quick: Holdfast) -> None:
    """The first child has not ended when the fork is made, so the fork submits its own; the step after it is shared."""

    @quick.task
    async def child(ctx: Context) -> None:
        await ctx.wait_event("go", earlier=True)

    @quick.task
    async def draw(ctx: Context) -> Numbers:
        submitted = await ctx.submit(child)
        number = str(ctx.uuid())
        await ctx.step("use", str, number, effect="once")
        await submitted.result()
        return [number]

    origin = await quick.submit(draw)
    async with quick.worker():
        await until(lambda: is_over(quick, origin, "use"))
        fork = await quick.fork(origin)
        await quick.emit("go")
        assert await origin.result(timeout=60) == await fork.result(timeout=60)


async def test_within_a_machine(quick: Holdfast) -> None:
    """It looks for its next move before the steps of the visit are through."""
    machine = Machine[Numbers]("m", initial="a", transitions={"a": ["b"]}, final="b", data=Numbers)

    @machine.state("a")
    async def a(ctx: Context, _: Numbers) -> Goto[Numbers]:
        await ctx.step("first", str)
        number = str(ctx.uuid())
        await ctx.step("use", str, number, effect="once")
        later = str(ctx.uuid())
        await ctx.step("later", str, later, effect="once")
        return Goto("b", [number, later])

    task = quick.register(machine)
    origin = await quick.submit(task, [])
    [theirs] = await finish(quick, origin)
    [ours] = await finish(quick, await quick.fork(origin, at="m:1/use"))
    assert (ours.data[0] == theirs.data[0], ours.data[1] == theirs.data[1]) == (True, False)


async def test_lines_that_are_not_steps_are_passed_too(quick: Holdfast) -> None:
    """The time and what was reported are in the journal; behind them, and the last step, the past is over."""

    @quick.task
    async def draw(ctx: Context) -> Numbers:
        first = str(ctx.uuid())
        ctx.now()
        await ctx.progress(1, 2, first)
        await ctx.step("use", str, first, effect="once")
        return [first, str(ctx.uuid())]

    origin = await quick.submit(draw)
    [theirs] = await finish(quick, origin)
    [ours] = await finish(quick, await quick.fork(origin))
    assert (ours[0] == theirs[0], ours[1] == theirs[1]) == (True, False)


async def test_in_blocking_code(quick: Holdfast) -> None:
    @quick.task
    def draw(ctx: SyncContext) -> Numbers:
        number = str(ctx.uuid())
        ctx.step("use", str, number, effect="once")
        return [number, str(ctx.uuid())]

    origin = await quick.submit(draw)
    [theirs] = await finish(quick, origin)
    [ours] = await finish(quick, await quick.fork(origin, at="use"))
    assert (ours[0] == theirs[0], ours[1] == theirs[1]) == (True, False)


async def test_they_stay_the_same_once_the_fork_has_ended_a_step_that_was_open(quick: Holdfast) -> None:
    """The next attempt does not go into that step again, and so passes nothing of what is shared inside it."""
    drawn: dict[str, Numbers] = {}

    @quick.task(retry=Retry(max_attempts=3, initial=0.001))
    async def job(ctx: Context) -> None:
        async def outer() -> None:
            for name in ("shared", "own"):
                await ctx.step(name, str)

        await ctx.step("outer", outer)
        numbers = drawn.setdefault(ctx.task_id, [])
        numbers.append(f"{ctx.uuid()} {ctx.random()}")
        await ctx.step("use", str, numbers[-1], effect="once")
        if len(numbers) < 3:
            raise RuntimeError("once more")

    origin = await quick.submit(job)
    await finish(quick, origin)
    fork = await quick.fork(origin, at=f"outer{INSIDE}shared")
    await finish(quick, fork)
    assert [len(set(numbers)) for numbers in drawn.values()] == [1, 1]
    assert not set(drawn[origin.id]) & set(drawn[fork.id])
