"""A transaction: ``ctx.transaction("name", function)``, in the database that holds the task."""

from holdfast import Context, TaskState, Transaction
from tests.engine.support import ended, steps_of
from tests.semantics.scene import AT_ONCE, Calls, Part, Scene


async def _create(tx: Transaction) -> None:
    await tx.execute("CREATE TABLE IF NOT EXISTS seats (name TEXT)")


async def _booked(tx: Transaction) -> list[str]:
    return [str(name) for (name,) in await tx.execute("SELECT name FROM seats ORDER BY rowid")]


async def book(tx: Transaction, seat: str) -> str:
    """Write a row."""
    await tx.execute("INSERT INTO seats VALUES (?)", seat)
    return seat


def booking(seat: str = "1A", *, repeat: bool = False) -> Part:
    """Book a seat."""
    return lambda ctx: ctx.transaction("book", book, seat, repeat=repeat)


async def _rows(scene: Scene) -> list[str]:
    return await scene.hold.transaction(_booked)


async def automatic_retry(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    run = await scene.by_automatic_retry(booking())
    assert (run.result, await _rows(scene)) == ("1A", ["1A"])


async def automatic_retry_of_a_failed_one(scene: Scene) -> None:
    """Nothing of it was written, and it is done by the next attempt."""
    await scene.hold.transaction(_create)
    calls = Calls()

    async def fails_once(tx: Transaction) -> None:
        await book(tx, "1A")
        calls.append("call")
        if len(calls) == 1:
            raise ConnectionError("service down")

    await ended(await scene.begun(lambda ctx: ctx.transaction("book", fails_once), retry=AT_ONCE))
    assert await _rows(scene) == ["1A"]


async def resume(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    await scene.by_resume(booking())
    assert await _rows(scene) == ["1A"]


async def retry(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    await scene.by_retry(booking())
    assert await _rows(scene) == ["1A"]


async def retry_with_repeat(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    await scene.by_retry(booking(repeat=True))
    assert await _rows(scene) == ["1A", "1A"]


async def new_round(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    await scene.by_new_round(booking())
    assert await _rows(scene) == ["1A"]


async def fork(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    await scene.by_fork(booking())
    assert await _rows(scene) == ["1A"]


async def _book_and_wait(ctx: Context) -> None:
    await ctx.transaction("book", book, "1A")
    await ctx.wait_event("never")


async def cancel(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    handle = await scene.begun(_book_and_wait)
    await scene.waits(handle)
    assert await scene.hold.cancel(handle) is TaskState.CANCELLED
    assert await _rows(scene) == ["1A"], "what was committed stays"


async def deadline(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    await scene.by_deadline(_book_and_wait)
    assert await _rows(scene) == ["1A"], "what was committed stays"


async def suspension(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    await scene.by_suspension(booking())
    assert await _rows(scene) == ["1A"]


async def take_over(scene: Scene) -> None:
    await scene.hold.transaction(_create)
    run = await scene.by_take_over(booking())
    assert (run.result, await _rows(scene)) == ("1A", ["1A"])


async def deploy(scene: Scene) -> None:
    """Another function under the same name is not called."""
    await scene.hold.transaction(_create)

    async def other(tx: Transaction, seat: str) -> str:
        return await book(tx, f"{seat} again")

    await scene.by_deploy(booking(), lambda ctx: ctx.transaction("book", other, "1A"))
    assert await _rows(scene) == ["1A"]


async def prune(scene: Scene) -> None:
    """The line goes with its task; the user's rows stay."""
    await scene.hold.transaction(_create)
    run = await scene.by_prune(booking())
    assert await steps_of(scene.hold, run.handle) == {}
    assert await _rows(scene) == ["1A"]
