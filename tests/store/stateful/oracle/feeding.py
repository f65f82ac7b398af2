"""The feed: the tables themselves report what is put into them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zlib import crc32

from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.effect import Effect, EffectState
from holdfast.model.feed import (
    LONGEST_PROGRESS,
    OLDEST,
    FeedEvent,
    FeedPage,
    FeedPlace,
    data_of,
    expired_cursor,
    lost_cursor,
    read_cursor,
)
from holdfast.model.records import Account, Event
from holdfast.model.schedule import StoredSchedule
from holdfast.model.step import Step
from holdfast.model.task import JsonValue
from holdfast.model.transitions import Transition

if TYPE_CHECKING:
    from tests.store.stateful.oracle.tables import Tables, WorkerRow

K = TypeVar("K")
V = TypeVar("V")
DOUBT = {EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN}


class Report(NamedTuple):
    kind: str
    task_id: str | None
    round: int
    at: datetime | None
    values: tuple[Any, ...]
    report: JsonValue = None


Reporter = Callable[["Tables", Any, Any, Any], Iterable[Report]]


class Watched(dict[K, V]):
    """A table that reports what is put into it."""

    def __init__(self, rows: dict[K, V], tables: Tables, report: Reporter) -> None:
        super().__init__(rows)
        self._tables = tables
        self._tell = report

    def __setitem__(self, key: K, row: V) -> None:
        before = self.get(key)
        super().__setitem__(key, row)
        for report in self._tell(self._tables, key, before, row):
            self._tables.feed[max(self._tables.feed, default=0) + 1] = report


def _moves(
    tables: Tables, task_id: str, before: tuple[Transition, ...] | None, after: tuple[Transition, ...]
) -> Iterable[Report]:
    for move in after[len(before or ()) :]:
        values = (move.from_state, move.reason[:200], move.actor)
        yield Report(f"task.{move.to_state}", task_id, tables.task(task_id).round, move.at, values)


def _steps(tables: Tables, key: tuple[str, int, str], _: Step | None, step: Step) -> Iterable[Report]:
    at = step.finished_at or step.started_at or tables.task(key[0]).updated_at
    yield Report(f"step.{step.state}", key[0], step.round, at, (step.key, step.kind, step.attempts))


def _approvals(tables: Tables, _: str, before: Approval | None, after: Approval) -> Iterable[Report]:
    is_open = after.state is ApprovalState.OPEN
    if before is not None if is_open else before is None or before.state is not ApprovalState.OPEN:
        return
    kind = "opened" if is_open else "expired" if after.state is ApprovalState.EXPIRED else "decided"
    by = after.requested_by if is_open else after.decided_by
    values = (after.id, after.step_key, after.kind, after.risk, after.state, by)
    at = after.decided_at or after.created_at
    yield Report(f"approval.{kind}", after.task_id, tables.task(after.task_id).round, at, values)


def _effects(_: Tables, __: tuple[str, str], before: Effect | None, after: Effect) -> Iterable[Report]:
    was, values = None if before is None else before.state, (after.effect_id, after.step_key, after.state)
    if was is not after.state and (was in DOUBT or after.state in DOUBT):
        kind = "opened" if after.state in DOUBT else "resolved"
        yield Report(f"doubt.{kind}", after.task_id, after.round, after.updated_at, values)


def _accounts(tables: Tables, key: tuple[str, str], before: Account | None, after: Account) -> Iterable[Report]:
    if before is None or after.limit is None or key[0] not in tables.tasks:
        return
    task = tables.task(key[0])
    for kind, share in (("pressure", 4), ("exhausted", 5)):
        was = before.limit is not None and before.spent * 5 >= before.limit * share
        if after.spent * 5 >= after.limit * share and not was:
            values = (after.meter, after.limit, after.spent)
            yield Report(f"budget.{kind}", task.id, task.round, task.updated_at, values)


def _events(
    tables: Tables, channel: str, before: tuple[Event, ...] | None, after: tuple[Event, ...]
) -> Iterable[Report]:
    word, _, about = channel.partition(":")
    if word in {"task", "inbox"} and about in tables.tasks:
        for event in after[len(before or ()) :]:
            kind, report = ("progress", event.payload) if word == "task" else ("message", None)
            yield Report(kind, about, tables.task(about).round, event.at, (event.number, event.actor), report)


def _workers(_: Tables, __: str, before: WorkerRow | None, after: WorkerRow) -> Iterable[Report]:
    worker = after.worker
    if before is None or before.worker.state is not worker.state:
        yield Report(f"worker.{worker.state}", None, 0, worker.seen_at, (worker.id, worker.label))


def _schedules(_: Tables, __: str, before: StoredSchedule | None, after: StoredSchedule) -> Iterable[Report]:
    was = None if before is None else before.fired_at
    if after.fired_at is not None and (was is None or was < after.fired_at):
        tick = after.last_tick_at and after.last_tick_at.isoformat()
        yield Report("schedule.fired", after.last_task_id, 1, after.fired_at, (after.name, tick))


REPORTS: dict[str, Reporter] = {
    "transitions": _moves,
    "steps": _steps,
    "approvals": _approvals,
    "effects": _effects,
    "accounts": _accounts,
    "events": _events,
    "workers": _workers,
    "schedules": _schedules,
}


def read_feed(tables: Tables, after: str | None, limit: int) -> FeedPage:
    numbers = sorted(tables.feed)
    if after is None or after == OLDEST:
        number = max(numbers, default=0) if after is None else min(numbers, default=1) - 1
        return FeedPage([], str(_place(tables, number)))
    place, begin = read_cursor(after), min(numbers, default=1) - 1
    if str(_place(tables, place.number)) != after or (place.number not in tables.feed and place.number != begin):
        raise expired_cursor(after) if place.number <= begin else lost_cursor(after)
    events = [_event(tables, number) for number in numbers if number > place.number][:limit]
    return FeedPage(events, events[-1].cursor if events else after)


def prune_feed(tables: Tables, now: datetime) -> None:
    """Delete what is kept no longer, but the newest."""
    newest = max(tables.feed, default=0)
    for number in sorted(tables.feed):
        at = tables.feed[number].at
        kept = at is not None and at >= now - tables.feed_retention.age
        if number == newest or (kept and number > newest - tables.feed_retention.rows):
            return
        del tables.feed[number]


def _place(tables: Tables, number: int) -> FeedPlace:
    entry = tables.feed.get(number)
    return FeedPlace(number, 0, 0, "0" if entry is None else f"{crc32(repr(entry).encode()):08x}")


def _event(tables: Tables, number: int) -> FeedEvent:
    entry = tables.feed[number]
    assert entry.at is not None
    task = tables.task(entry.task_id) if entry.task_id in tables.tasks else None
    return FeedEvent(
        cursor=str(_place(tables, number)),
        kind=entry.kind,
        at=entry.at,
        task_id=entry.task_id,
        name=None if task is None else task.name,
        queue=None if task is None else task.queue,
        labels={} if task is None else task.labels,
        round=entry.round,
        data=data_of(entry.kind, entry.values, entry.report if len(str(entry.report)) < LONGEST_PROGRESS else None),
    )
