"""Counting against a task's budget: what ``ctx.charge`` and ``hold.charge`` do.

An agent counts its model calls and tool calls by itself. The code of a plain task, or a program that drives a task by
hand, reports what it uses. Each charge is one Commit: it is counted as a whole, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial

from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.manage.budget import read_budget
from holdfast.engine.manage.family import limited_above
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.budget import Meter, as_micros
from holdfast.model.canonical import canonical
from holdfast.model.checks import check_integer, check_name
from holdfast.model.codec import decode, encode
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import BudgetExceeded, InvalidValue, NotFound
from holdfast.model.failure import Failure
from holdfast.model.operations import Operation, Reserve, Settle, WriteStep
from holdfast.model.step import StepState
from holdfast.model.task import JsonValue
from holdfast.model.transitions import OPEN
from holdfast.store.base import StateStore

CHARGE = "charge"
"""The kind of the line for a charge."""


def amounts_of(*, steps: int, llm_tokens: int, cost: Decimal | float) -> dict[str, int]:
    """Return the amounts to count, by meter. Raises InvalidValue if there are none, or if they are not valid."""
    check_integer("steps", steps, lowest=0)
    check_integer("llm_tokens", llm_tokens, lowest=0)
    named = {Meter.STEPS: steps, Meter.LLM_TOKENS: llm_tokens, Meter.COST_MICROS: as_micros(cost)}
    amounts = {str(meter): amount for meter, amount in named.items() if amount}
    if not amounts:
        raise InvalidValue("there is nothing to charge; pass what was used, for example steps=1")
    return amounts


async def charge(attempt: StepOwner, key: str, amounts: Mapping[str, int]) -> None:
    """Count these amounts for a running task, once."""
    recorded = attempt.find(key, CHARGE)
    if recorded is not None and recorded.state is StepState.COMPLETED:
        await attempt.take_turn(recorded)
        return
    if recorded is not None and recorded.state is StepState.FAILED:
        await attempt.discovery.let_branches_pass()
        raise BudgetExceeded(**decode(recorded.output or b"", name=f"charge {key!r}"), step=key)
    await attempt.check()
    store, task = attempt.services.store, attempt.task
    accounts = [task.id, *await call_store(partial(limited_above, store, task))]
    line = partial(journal_line, attempt, key, CHARGE, recorded)
    try:
        await call_store(partial(check_time, store, task.id))
        await attempt.outbox.commit(*_counted(accounts, key, amounts), WriteStep(line(state=StepState.COMPLETED)))
    except BudgetExceeded as refused:
        # Code that catches this takes another way. A replay must take the same way, even if there is more budget then.
        refused.step = key
        figures, why = encode(_figures_of(refused)), canonical(Failure.of(refused).to_json())
        await attempt.outbox.commit(WriteStep(line(state=StepState.FAILED, output=figures, error=why)))
        raise


async def charge_by_hand(
    store: StateStore, task_id: str, amounts: Mapping[str, int], *, by: str, key: str | None
) -> None:
    """Count these amounts for a task from outside; the same ``key`` again counts nothing."""
    check_name("by", by)
    if key is not None:
        check_name("key", key)
    task = await store.get(task_id)
    if task is None:
        raise NotFound("task", task_id)
    await check_time(store, task_id)
    guard = Expect(states=OPEN) if key is None else Expect(states=OPEN, request=f"{CHARGE}:{key}")
    operations = _counted([task_id, *await limited_above(store, task)], guard.request, amounts)
    [verdict] = await store.commit([Commit(task_id=task_id, guard=guard, operations=operations, actor=by)])
    verdict.require()


async def check_time(store: StateStore, task_id: str) -> None:
    """Raise BudgetExceeded if the task has a limit on its wall time, and that time is spent."""
    if all(line.meter != Meter.WALL_TIME_MS or line.limit is None for line in await store.accounts(task_id)):
        return  # without a limit, the wall time need not be read
    clock = (await read_budget(store, task_id)).lines[Meter.WALL_TIME_MS]
    if clock.limit is not None and clock.spent >= clock.limit:
        raise BudgetExceeded(meter=Meter.WALL_TIME_MS, limit=clock.limit, spent=clock.spent, reserved=0, asked=1)


def _figures_of(refused: BudgetExceeded) -> dict[str, JsonValue]:
    return {name: getattr(refused, name) for name in ("meter", "limit", "spent", "reserved", "asked")}


def _counted(accounts: Sequence[str], key: str, amounts: Mapping[str, int]) -> tuple[Operation, ...]:
    # Reserved and settled in one Commit: only a reservation is checked against the limits.
    return (
        *(Reserve(account=name, step_key=key, amounts=amounts) for name in accounts),
        *(Settle(account=name, step_key=key, amounts=amounts) for name in accounts),
    )
