"""What the tests of approvals share: waiting for a question, and a person who decides whatever is asked."""

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import Approval, ApprovalState, Handle, Holdfast, Retry
from holdfast.testing import Sandbox
from tests.engine.support import until

ONE_TRY = Retry(max_attempts=1)
AT_ONCE = Retry(initial=0.0)


async def asked(hold: Holdfast, task: Handle[Any] | str, count: int = 1) -> list[Approval]:
    """Return what a task asks for, once it asks for so many things."""
    found: list[Approval] = []

    async def are_there() -> bool:
        found[:] = await hold.approvals(task)
        return len(found) == count

    await until(are_there)
    return found


async def question_of(hold: Holdfast, task: Handle[Any] | str) -> Approval:
    """Return the one thing that a task asks for."""
    [question] = await asked(hold, task)
    return question


async def all_approvals(hold: Holdfast, task: Handle[Any] | str) -> list[Approval]:
    """Return everything a task ever asked for, the first first."""
    found = await hold.approvals(task, states=list(ApprovalState), limit=1000)
    return sorted(found, key=lambda approval: (approval.created_at or approval.decided_at, approval.id))


async def stored(hold: Holdfast, approval: Approval | str) -> Approval:
    """Return an approval as it stands now."""
    found = await hold.store.approval(approval if isinstance(approval, str) else approval.id)
    assert found is not None
    return found


async def see_to(box: Sandbox, task: Handle[Any], decide: Callable[[Approval], Awaitable[Any]]) -> None:
    """Decide whatever a task asks for, each time when it has come to rest, until it has ended."""

    async def has_ended() -> bool:
        return (await task.task()).state.is_terminal

    async def asks_or_has_ended() -> bool:
        return bool(await box.hold.approvals(task)) or await has_ended()

    while not await has_ended():
        await until(asks_or_has_ended)
        await box.idle()
        for approval in await box.hold.approvals(task):
            await decide(approval)
