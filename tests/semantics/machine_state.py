"""A state of a machine."""

# ruff: noqa: ARG001 - a handler takes its ctx and its data, whether it needs them or not

from datetime import timedelta
from typing import Any

from holdfast import Context, Handle, Holdfast, Machine, Retry, TaskState
from tests.engine.support import ended
from tests.semantics.scene import AT_ONCE, HOUR, ONE_TRY, SOON, Calls, Part, Scene


class Ticket:
    """new -> open -> closed; ``open`` does a step and then the part."""

    def __init__(
        self,
        hold: Holdfast,
        part: Part,
        *,
        retry: Retry = ONE_TRY,
        deadline: timedelta | None = None,
        first: str = "new",
        second: str = "open",
    ) -> None:
        self.calls = calls = Calls()
        self.machine = machine = Machine(
            "ticket",
            initial=first,
            transitions={first: [second], second: ["closed"]},
            final=["closed"],
            retry=retry,
            deadline=deadline,
        )

        @machine.state(first)
        async def new(ctx: Context, data: dict[str, Any]) -> str:
            calls.append("new")
            return second

        @machine.state(second)
        async def open_(ctx: Context, data: dict[str, Any]) -> str:
            calls.append("open")
            await ctx.step("work", calls.do, "work")
            await part(ctx)
            return "closed"

        self.definition = hold.register(machine)

    async def begin(self, scene: Scene) -> Handle[Any]:
        return await scene.hold.submit(self.definition, {})


def failing_once() -> Part:
    """A part that fails the first time."""
    broken = [True]

    async def part(ctx: Context) -> None:
        if broken and broken.pop():
            raise ConnectionError("service down")

    return part


async def quiet(ctx: Context) -> None:
    """Do nothing."""


HERE = ["new", "open", "work", "open"]
"""The move is not made again, nor is the step; the handler is called again."""
OVER = ["new", "open", "work", "new", "open", "work"]


async def automatic_retry(scene: Scene) -> None:
    ticket = Ticket(scene.hold, failing_once(), retry=AT_ONCE)
    await ended(await ticket.begin(scene))
    assert ticket.calls == HERE


async def resume(scene: Scene) -> None:
    ticket = Ticket(scene.hold, failing_once())
    handle = await ticket.begin(scene)
    await scene.failure(handle)
    await scene.hold.resume(handle)
    await ended(handle)
    assert ticket.calls == HERE


async def retry(scene: Scene) -> None:
    ticket = Ticket(scene.hold, failing_once())
    handle = await ticket.begin(scene)
    await scene.failure(handle)
    await scene.hold.retry(handle)
    await ended(handle)
    assert ticket.calls == OVER


async def new_round(scene: Scene) -> None:
    ticket = Ticket(scene.hold, quiet, retry=AT_ONCE)

    @ticket.definition.verify
    async def second_round(ctx: Context, _: object) -> bool:
        return ctx.task.round == 2

    await ended(await ticket.begin(scene))
    assert ticket.calls == OVER


async def fork(scene: Scene) -> None:
    """At a move: the fork goes on in the state that the move led to, and does its work itself."""
    ticket = Ticket(scene.hold, quiet)
    origin = await ticket.begin(scene)
    await ended(origin)
    await ended(await scene.hold.fork(origin, at="ticket:2"))
    assert ticket.calls == ["new", "open", "work", "open", "work"]


async def _never(ctx: Context) -> None:
    await ctx.wait_event("never")


async def cancel(scene: Scene) -> None:
    ticket = Ticket(scene.hold, _never)
    handle = await ticket.begin(scene)
    await scene.waits(handle)
    assert await scene.hold.cancel(handle) is TaskState.CANCELLED
    assert await ticket.machine.state_of(handle) == "open", "it is known where it stopped"


async def deadline(scene: Scene) -> None:
    ticket = Ticket(scene.hold, _never, deadline=SOON)
    handle = await ticket.begin(scene)
    assert "DeadlineExceeded" in await scene.failure(handle)
    assert await ticket.machine.state_of(handle) == "open"


async def suspension(scene: Scene) -> None:
    async def nap(ctx: Context) -> None:
        await ctx.sleep(HOUR)

    ticket = Ticket(scene.hold, nap)
    handle = await ticket.begin(scene)
    await ended(handle)
    assert TaskState.WAITING in (await scene.box.trace(handle)).states
    assert ticket.calls == HERE


async def take_over(scene: Scene) -> None:
    async def mark(ctx: Context) -> None:
        await ctx.step("mark", lambda: None)

    ticket = Ticket(scene.hold, mark)
    scene.box.crash("ticket:2/mark", when="before_effect")
    handle = await ticket.begin(scene)
    await ended(handle)
    assert ticket.calls == HERE


async def _deployed(scene: Scene, **changed: str) -> tuple[str, list[str]]:
    """Fail in ``open``; deploy a machine with other names of states; resume. Return how it ends, and what was done."""
    url = f"sqlite:///{scene.folder}/deployed.db"
    async with Holdfast(url) as old:
        ticket = Ticket(old, failing_once())
        handle = await old.submit(ticket.definition, {})
        async with old.worker():
            await scene.failure(handle)
    async with Holdfast(url) as new:
        ticket = Ticket(new, quiet, **changed)  # type: ignore[arg-type]
        async with new.worker():
            revived: Handle[Any] = await new.resume(handle.id)
            try:
                await ended(revived)
            except Exception as error:  # noqa: BLE001 - whichever it is, the proof says which it must be
                return str(error), ticket.calls
            return "reached the end", ticket.calls


async def deploy(scene: Scene) -> None:
    """Another initial state: a task that has moved on stays where it is."""
    assert await _deployed(scene, first="draft") == ("reached the end", ["open"])


async def deploy_without_its_state(scene: Scene) -> None:
    how, calls = await _deployed(scene, second="triaged")
    assert "JournalMismatch" in how
    assert calls == []


async def prune(scene: Scene) -> None:
    ticket = Ticket(scene.hold, quiet)
    handle = await ticket.begin(scene)
    await ended(handle)
    assert len(await ticket.machine.history(handle)) == 3
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None
