"""What the tests of forks share: a ledger of what ran for whom, and a worker until everything has ended."""

from collections import defaultdict
from typing import Any

from holdfast import Context, Handle, Holdfast, Retry, StepState
from tests.engine.support import PATIENCE, steps_of

ONE_TRY = Retry(max_attempts=1)


class Ran:
    """Which steps really ran, for which task."""

    def __init__(self) -> None:
        self.by_task: dict[str, list[str]] = defaultdict(list)

    def note(self, ctx: Context, what: str) -> str:
        """Let a step leave its mark; the mark is its result."""
        self.by_task[ctx.task.id].append(what)
        return f"{what} of {ctx.task.id}"

    def __getitem__(self, handle: Handle[Any]) -> list[str]:
        return self.by_task[handle.id]


async def finish(hold: Holdfast, *handles: Handle[Any]) -> list[Any]:
    """Work until these have ended; return their results."""
    async with hold.worker():
        return [await handle.result(timeout=PATIENCE) for handle in handles]


async def is_over(hold: Holdfast, handle: Handle[Any], key: str) -> bool:
    """Whether the journal has the step completed."""
    line = (await steps_of(hold, handle)).get(key)
    return line is not None and line.state is StepState.COMPLETED
