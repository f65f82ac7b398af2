"""Times as a caller writes them: checked, and made part of a spec."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict

from holdfast.engine.api.definition import TaskDefinition
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import InvalidValue
from holdfast.model.schedule import CatchUp, Overlap, ScheduleSpec
from holdfast.model.ticks import check_times


class Times(TypedDict):
    """The options of a schedule that say when it fires."""

    cron: str | None
    every: float | timedelta | None
    timezone: str
    jitter: float | timedelta
    overlap: Overlap | str
    catch_up: CatchUp | str


def spec_at(times: Times, now: datetime, **what: Any) -> ScheduleSpec:  # noqa: ANN401 - the fields of a spec
    """Return the spec of a schedule with these times. InvalidValue says what to write instead."""
    every, jitter = times["every"], times["jitter"]
    spec = ScheduleSpec(
        cron=times["cron"],
        every=None if every is None else timedelta(seconds=as_seconds(every, what="every")),
        timezone=times["timezone"],
        jitter=timedelta(seconds=as_seconds(jitter, what="jitter")) if jitter else timedelta(),
        overlap=_member("overlap", times["overlap"], Overlap),
        catch_up=_member("catch_up", times["catch_up"], CatchUp),
        **what,
    )
    check_times(spec, now)
    return spec


def _member(what: str, given: str, members: Any) -> Any:  # noqa: ANN401 - Overlap or CatchUp
    try:
        return members(given)
    except ValueError:
        known = ", ".join(repr(str(member)) for member in members)
        raise InvalidValue(f"{what} is {given!r}; choose one of {known}") from None


def declared_spec(definition: TaskDefinition[..., Any], times: Times, now: datetime) -> ScheduleSpec | None:
    """Return the spec that a task's decorator declares; None if it declares no times."""
    if times["cron"] is None and times["every"] is None:
        others = [name for name, value in times.items() if value and (name, value) not in _DEFAULTS.items()]
        if others:
            raise InvalidValue(f"{others[0]}= of task {definition.name!r} is for its schedule; add cron= or every=")
        return None
    if definition.needs_arguments:
        raise InvalidValue(
            f"task {definition.name!r} takes {definition.signature}, and a schedule in its decorator gives no "
            "arguments; give them defaults, or use hold.schedule(name, task, *args, cron=...)"
        )
    return spec_at(
        times,
        now,
        task=definition.name,
        user_input=definition.write_input((), {}),
        queue=definition.queue,
        priority=definition.priority,
        agent_id=definition.agent_id,
        deadline=definition.deadline,
        budget=definition.budget_limits,
        limits=definition.limits,
    )


_DEFAULTS = {"timezone": "UTC", "overlap": Overlap.SKIP, "catch_up": CatchUp.LAST}
