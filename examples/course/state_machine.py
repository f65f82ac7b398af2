"""State page, "State Machine Pattern": pending, in progress, review, completed; rejected work goes back."""

import asyncio
from enum import Enum
from typing import Any

from holdfast import Context, Goto, Holdfast, Machine

hold = Holdfast("memory://")
MOST_ATTEMPTS = 3
Data = dict[str, Any]


class State(Enum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    REVIEW = "review"
    COMPLETED = "completed"
    FAILED = "failed"


machine = Machine(
    "report",
    initial=State.PENDING,
    transitions={
        State.PENDING: [State.IN_PROGRESS],
        State.IN_PROGRESS: [State.REVIEW],
        State.REVIEW: {State.COMPLETED: "verified", State.PENDING: "back to the queue", State.FAILED: "given up"},
    },
    final=[State.COMPLETED, State.FAILED],
)


def execute(attempt: int) -> str:
    return "a draft" if attempt == 0 else "a report with sources"


@machine.state(State.PENDING)
async def start(ctx: Context, task: Data) -> State:
    return State.IN_PROGRESS


@machine.state(State.IN_PROGRESS)
async def work(ctx: Context, task: Data) -> Goto[Data]:
    result = await ctx.step("execute", execute, task["attempts"])
    return Goto(State.REVIEW, {**task, "result": result})


@machine.state(State.REVIEW)
async def review(ctx: Context, task: Data) -> Goto[Data]:
    if "sources" in task["result"]:
        return Goto(State.COMPLETED)
    if task["attempts"] == MOST_ATTEMPTS:
        return Goto(State.FAILED)
    return Goto(State.PENDING, {**task, "attempts": task["attempts"] + 1})


report = hold.register(machine)


async def main() -> None:
    async with hold, hold.worker():
        task = await hold.submit(report, {"attempts": 0})
        reached = await task.result(timeout=60)
        print(f"{reached.state}: {reached.data}")
        for visit in await machine.history(task):  # the audit trail: every move, its reason and its time
            print(f"  {visit.came_from or 'new'} -> {visit.state} {visit.reason or ''}".rstrip())


if __name__ == "__main__":
    asyncio.run(main())
