"""Planning a batch of Commits: which of them can be applied as a set, and what has to be locked first. No I/O.

A run is a set of Commits on different tasks of which none touches anything of another one's task, so their order does
not matter. Runs are applied one after the other. A Commit that may touch more than its own task, or that looks at
what a neighbour may have changed, is a run of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.model.commit import Commit, Expect
from holdfast.model.operations import (
    Emit,
    Operation,
    ReopenChild,
    RequireQuiet,
    Reserve,
    Rest,
    SetLimits,
    Settle,
    SettleStale,
    SubmitChild,
    UntilChildren,
    UntilEvent,
    Wait,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    """What a batch locks before it reads anything; the database sorts each kind."""

    tasks: set[str] = field(default_factory=set)
    ending: set[str] = field(default_factory=set)
    """Tasks that are about to end, or to settle what is stale: tasks that wait for them are locked, too, and so is
    every account on which they hold a reservation."""
    emits: set[str] = field(default_factory=set)
    listens: set[str] = field(default_factory=set)
    accounts: set[str] = field(default_factory=set)
    keys: list[tuple[str, str]] = field(default_factory=list)
    wakes: set[str] = field(default_factory=set)
    """Tasks that rested and want to work again: the places of their queues, and their limits, are locked, too."""


def runs(commits: Sequence[Commit]) -> list[list[int]]:
    """Divide the Commits, by their positions, into runs.

    The second Commit of a task comes in a later run than its first. One that ends its task may wake another and comes
    in no earlier run than anything sent before it, nor in a later one than anything sent after it.
    """
    planned: list[list[int]] = []
    last_run: dict[str, int] = {}
    earliest = 0
    for position, commit in enumerate(commits):
        if has_outside_effects(commit):
            index = earliest = len(planned)
            earliest += 1
        else:
            index = max(earliest, last_run.get(commit.task_id, -1) + 1)
            if ends_its_task(commit):
                index = earliest = max(index, len(planned) - 1)
        if index == len(planned):
            planned.append([])
        planned[index].append(position)
        last_run[commit.task_id] = index
    return planned


def ends_its_task(commit: Commit) -> bool:
    """Say whether the Commit moves its task to a terminal state."""
    return commit.move is not None and commit.move.to.is_terminal


def has_outside_effects(commit: Commit) -> bool:
    """Say whether the Commit may read or write what another Commit of the batch writes or reads."""
    if isinstance(commit.guard, Expect):
        return True
    for op in commit.operations:
        match op:
            case SubmitChild() | ReopenChild() | Emit() | Rest(resting=False):
                return True
            case SetLimits(account=account) | Reserve(account=account) | Settle(account=account):
                if account != commit.task_id:
                    return True
            case _:
                pass
    return any(isinstance(wait, UntilChildren) for wait in _waits(commit))


def locks(commits: Sequence[Commit]) -> Locks:
    """Collect what the whole batch has to lock."""
    found = Locks()
    for commit in commits:
        found.tasks.add(commit.task_id)
        if ends_its_task(commit):
            found.ending.add(commit.task_id)
        for op in commit.operations:
            _add_operation(found, commit.task_id, op)
        _add_waits(found, commit)
    return found


def _add_operation(found: Locks, task_id: str, op: Operation) -> None:
    match op:
        case SetLimits(account=account) | Reserve(account=account) | Settle(account=account):
            found.accounts.add(account)
        case SettleStale():
            found.ending.add(task_id)  # for the accounts it holds reservations on
        case Emit(channel=channel):
            found.emits.add(channel)
        case RequireQuiet(channel=channel):
            found.listens.add(channel)
        case ReopenChild(child_id=child_id):
            found.tasks.add(child_id)
        case Rest(resting=False):
            found.wakes.add(task_id)
        case SubmitChild(task) if task.key is not None:
            found.keys.append((task.name, task.key))
        case _:
            pass


def _add_waits(found: Locks, commit: Commit) -> None:
    for wait in _waits(commit):
        match wait:
            case UntilEvent(channel=channel):
                found.listens.add(channel)
            case UntilChildren(children=children):
                found.tasks.update(children)
            case _:
                pass


def _waits(commit: Commit) -> Iterator[Wait]:
    if commit.move is not None:
        yield from commit.move.waits
