"""``holdfast budget``: what a task may use and has used, and how it gets more."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from holdfast.cli.options import AsJson, By, DatabaseUrl, Note, TaskId
from holdfast.cli.render.overview import budget_grid
from holdfast.cli.store_session import command, command_line, opened, user
from holdfast.cli.terminal import print_json, print_message, print_page
from holdfast.cli.times import read_span
from holdfast.model.budget import Budget
from holdfast.model.errors import InvalidValue
from holdfast.model.transitions import TaskState
from holdfast.service.forms import budget_form
from holdfast.service.identify import short


@command
async def budget(
    task: TaskId,
    *,
    max_steps: Annotated[int | None, typer.Option(min=0, help="A new limit of steps.", show_default=False)] = None,
    max_llm_tokens: Annotated[
        int | None, typer.Option(min=0, help="A new limit of tokens.", show_default=False)
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="A new limit of cost.", show_default=False)
    ] = None,
    max_wall_time: Annotated[
        str | None, typer.Option(metavar="SPAN", help="A new limit of time: 10m, 2h, or seconds.", show_default=False)
    ] = None,
    by: By = None,
    note: Note = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show what a task may use and has used; with a new limit, raise or lower it.

    A task that waits for more goes on by itself. A task that failed because of its budget goes on when it is resumed.
    """
    limits = Budget(
        max_steps=max_steps,
        max_llm_tokens=max_llm_tokens,
        max_cost=None if max_cost is None else _amount(max_cost),
        max_wall_time_ms=None
        if max_wall_time is None
        else int(read_span(max_wall_time, what="--max-wall-time").total_seconds() * 1000),
    )
    async with opened(database_url) as service:
        task_id = (await service.task(task)).id
        if limits.limits():
            ledger = await service.extend_budget(task_id, limits, by=user(by), note=note)
            failed = (await service.task(task_id)).state is TaskState.FAILED
            remedy = f"; if it failed because of the old ones: {command_line('resume', task_id, service.url)}"
            print_message(f"task {short(task_id)} has new limits{remedy if failed else ''}")
        else:
            ledger = await service.budget(task_id)
    if as_json:
        print_json(budget_form(ledger))
    else:
        print_page(budget_grid(ledger))


def _amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount < 0:
        raise InvalidValue(f"--max-cost is {text!r}; write an amount such as 2.50")
    return amount
