"""A claim from outside: an agent of another framework has the task on lease, over MCP."""

from typing import Any

import pytest

from holdfast import Handle, HoldfastError, TaskState
from tests.engine.support import ended
from tests.semantics.scene import SOON, Scene
from tests.service.handover.support import Outside, facts, outside_steps


async def offered(scene: Scene, **options: Any) -> tuple[Outside, Outside, Handle[Any]]:  # noqa: ANN401
    """Offer a task; return two agents that may claim it."""
    ada, bob = Outside(scene.hold, "ada"), Outside(scene.hold, "bob")
    task = await ada.offer(**options)
    return ada, bob, scene.hold.handle(task.id)


async def automatic_retry(scene: Scene) -> None:
    """It has no retry: what its holder gives up has failed, until a person brings it back."""
    ada, _, handle = await offered(scene)
    lease = (await ada.take()).lease
    await ada.holding(lease).give_up("cannot")
    assert "cannot" in await scene.failure(handle)
    assert await ada.ask() is None


async def resume(scene: Scene) -> None:
    ada, bob, handle = await offered(scene)
    lease = (await ada.take()).lease
    await ada.step(lease, "look", 1)
    await ada.holding(lease).give_up("tired")
    await scene.failure(handle)
    await scene.hold.resume(handle)
    assert await bob.step((await bob.take()).lease, "look", 1), "the same round: it is recorded already"


async def retry(scene: Scene) -> None:
    ada, bob, handle = await offered(scene)
    lease = (await ada.take()).lease
    await ada.step(lease, "look", 1)
    await ada.holding(lease).give_up("tired")
    await scene.hold.retry(handle, feedback="look again")
    taken = await bob.take()
    assert taken.task.feedback == "look again"
    assert not await bob.step(taken.lease, "look", 2), "a new round: steps are done again"


async def fork(scene: Scene) -> None:
    ada, bob, handle = await offered(scene)
    lease = (await ada.take()).lease
    await ada.step(lease, "look", 1)
    fork: Handle[Any] = await scene.hold.fork(handle)
    taken = await bob.take(fork.id)
    assert await bob.step(taken.lease, "look", 1), "its past is the origin's"
    await bob.holding(taken.lease).finish("done")
    assert (await handle.task()).state is TaskState.RUNNING, "the origin's holder keeps it"


async def cancel(scene: Scene) -> None:
    """The holder learns of it by its next call, and ends it by letting go."""
    ada, _, handle = await offered(scene)
    lease = (await ada.take()).lease
    assert await scene.hold.cancel(handle) is TaskState.RUNNING
    await ada.holding(lease).release("stopped", facts())
    await scene.is_cancelled(handle)


async def deadline(scene: Scene) -> None:
    ada, _, handle = await offered(scene, deadline=scene.hold.services.time.now() + SOON)
    with scene.box.frozen():
        lease = (await ada.take(seconds=600)).lease
        await scene.box.advance(SOON)
        with pytest.raises(HoldfastError):
            await ada.step(lease, "late", 1)
    assert "DeadlineExceeded" in await scene.failure(handle)


async def suspension(scene: Scene) -> None:
    """A holder that asks a person hands the task back; after the answer any agent may claim it."""
    ada, bob, handle = await offered(scene)
    lease = (await ada.take()).lease
    approval = await ada.holding(lease).ask("Which disk?")
    assert (await handle.task()).state is TaskState.WAITING
    await scene.hold.answer(approval.id, "the second", by="anna")
    taken = await bob.take()
    assert taken.state is not None
    assert [fact.value for fact in taken.state.known_facts] == ["the second"]


async def take_over(scene: Scene) -> None:
    """A holder that is silent for longer than its lease loses the task, and writes nothing more."""
    ada, bob, handle = await offered(scene)
    with scene.box.frozen():
        lease = (await ada.take(seconds=60)).lease
        await ada.step(lease, "look", 1)
        await scene.box.advance(61)
        taken = await bob.take()
        assert await bob.step(taken.lease, "look", 1), "what is recorded is done"
        with pytest.raises(HoldfastError):
            await ada.step(lease, "late", 1)
        assert list(await outside_steps(scene.hold, handle.id)) == ["outside:look"]
        await bob.holding(taken.lease).finish("done")
    assert await ended(handle) == "done"


async def prune(scene: Scene) -> None:
    ada, _, handle = await offered(scene)
    lease = (await ada.take(seconds=60)).lease
    await ada.holding(lease).finish("done")
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None


async def prune_of_a_task_in_other_hands(scene: Scene) -> None:
    """A claimed task is open, and stays; so does the lease."""
    ada, _, handle = await offered(scene)
    with scene.box.frozen():
        lease = (await ada.take(seconds=60)).lease
        await scene.box.advance(30)
        await scene.hold.store.prune(SOON)
        await ada.holding(lease).finish("done")
    assert await ended(handle) == "done"
