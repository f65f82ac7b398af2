"""A task's budget from outside: read what it has used, and grant it more."""

from __future__ import annotations

from dataclasses import replace

from holdfast.engine.api.definition import Definitions
from holdfast.engine.manage.family import Family
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.budget import Budget, Ledger, Meter, MeterLine, as_micros
from holdfast.model.canonical import parse
from holdfast.model.checks import check_name
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import InvalidValue, NotFound
from holdfast.model.operations import Decide, Operation, SetLimits
from holdfast.model.task import MANUAL, JsonValue
from holdfast.model.transitions import TaskState
from holdfast.model.walltime import wall_time_ms
from holdfast.store.base import StateStore

BUDGET = "budget"
"""The kind of an approval that asks a person whether a budget may be raised."""

_MOST = 1 << 53
_EXTENSIBLE = frozenset(TaskState) - {TaskState.COMPLETED, TaskState.CANCELLED}


def new_limit(meter: str, answer: JsonValue) -> int:
    """Return the new limit in the answer to a question about a budget. The answer has the unit of the question."""
    units = {Meter.COST_MICROS: "an amount of money", Meter.WALL_TIME_MS: "seconds"}
    error = InvalidValue(
        f"{answer!r} is not a valid limit; answer with a number ({units.get(Meter(meter), meter)}), approve, or reject"
    )
    if isinstance(answer, bool) or not isinstance(answer, int | float) or not 0 < answer < _MOST:
        raise error
    if meter == Meter.COST_MICROS:
        return as_micros(answer, what="the new limit")
    if meter == Meter.WALL_TIME_MS:
        return round(answer * 1000)
    if answer != int(answer):
        raise error
    return int(answer)


def check_answer(approval: Approval, answer: JsonValue) -> None:
    """Reject an answer that would grant nothing."""
    asked = parse(approval.arguments_bytes)
    if new_limit(asked["meter"], answer) <= asked["limit"]:
        raise InvalidValue(f"{answer!r} is not more than the budget that is spent; answer with more, or reject")


async def read_budget(store: StateStore, task_id: str) -> Ledger:
    """Return what a task may use, has used, and has reserved."""
    task = await store.get(task_id)
    if task is None:
        raise NotFound("task", task_id)
    lines = {
        Meter(account.meter): MeterLine(account.limit, account.spent, account.reserved)
        for account in await store.accounts(task_id)
        if account.meter in set(Meter)
    }
    clock = lines.get(Meter.WALL_TIME_MS, MeterLine())
    # A plain task without this limit may have thousands of children. They are not read, because nothing needs them.
    is_limited = clock.limit is not None or task.version > 0
    life = await Family(store, task_id).read(has_children=is_limited)
    lines[Meter.WALL_TIME_MS] = replace(clock, spent=wall_time_ms(life, await store.now()))
    return Ledger(lines)


async def check_cost(store: StateStore, definitions: Definitions, task_id: str, budget: Budget) -> None:
    """Reject a limit on the cost of a task whose model has no price: it would never be reached."""
    task = await store.get(task_id) if budget.max_cost is not None else None
    if task is None or task.name == MANUAL:
        return  # the program that drives it charges the cost itself
    definition = definitions.get(task.name)
    if definition is not None:
        if definition.unpriced is not None:
            raise InvalidValue(f"a max_cost of task {task_id} would never be reached: {definition.unpriced}")
        return
    accounts = await store.accounts(task_id)
    if not any(one.meter == Meter.COST_MICROS and (one.limit is not None or one.spent) for one in accounts):
        raise InvalidValue(
            f"task {task_id} has no max_cost, and the price of the model of {task.name!r} is not known here; set it "
            "from the application that defines this agent and its prices"
        )


async def extend(
    store: StateStore, definitions: Definitions, task_id: str, budget: Budget, *, by: str, note: str | None = None
) -> None:
    """Set the limits that ``budget`` names. A task that waits for more budget continues.

    A task that failed because its budget was spent continues when it is resumed.
    """
    check_name("by", by)
    limits = {str(meter): limit for meter, limit in budget.limits().items()}
    if not limits:
        raise InvalidValue("the budget has no limit set; give the new limits, for example Budget(max_steps=40)")
    await check_cost(store, definitions, task_id, budget)
    asked = await store.approvals(task_id=task_id, states={ApprovalState.OPEN}, limit=100)
    decided: list[Operation] = [
        Decide(approval_id=one.id, state=ApprovalState.APPROVED, by=by, note=note, answer=limits)
        for one in asked
        if one.kind == BUDGET
    ]
    set_limits = SetLimits(account=task_id, limits=limits)
    commit = Commit(task_id=task_id, guard=Expect(states=_EXTENSIBLE), operations=(set_limits, *decided), actor=by)
    [verdict] = await store.commit([commit])
    verdict.require()
