"""Small pieces of every page: states in their colours, values cut to fit, bars."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from datetime import datetime
from typing import Final

from rich.text import Text

from holdfast.cli.times import age, local, span
from holdfast.model.budget import Meter, MeterLine, from_micros
from holdfast.model.failure import Failure
from holdfast.model.pause import Pause, pause_of
from holdfast.model.payload import plain
from holdfast.model.step import StepState
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import TaskState
from holdfast.service.forms import plain_input
from holdfast.service.identify import short
from holdfast.service.next_events import Upcoming

_COLOURS: Final = {
    "pending": "cyan",
    "running": "yellow",
    "waiting": "magenta",
    "review": "blue",
    "completed": "green",
    "failed": "bold red",
    "cancelled": "dim",
    "live": "green",
    "draining": "yellow",
    "dead": "red",
}
_ID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONGEST: Final = 60
_BAR: Final = 20
_FULL: Final = 0.8
"""From this share on a budget is under pressure."""


def state_text(state: TaskState | StepState | str) -> Text:
    """Return a state in its colour."""
    return Text(str(state), _COLOURS.get(str(state), ""))


def standing_of(task: Task, pauses: Collection[Pause] = ()) -> Text:
    """Return the state of a task in its colour; ``resting`` if it only waits, although a worker has it.

    With the pauses of the store: ``paused`` if one keeps it from being claimed, ``pausing`` if its worker stops it.
    """
    pause = pause_of(pauses, task_id=task.id, name=task.name, queue=task.queue)
    if pause is not None and task.state is TaskState.PENDING:
        return Text("paused", "bold yellow")
    if pause is not None and pause.subject == task.id and task.state is TaskState.RUNNING:
        return Text("pausing", "bold yellow")
    if task.resting and not task.state.is_terminal:
        return Text("resting", state_text(TaskState.WAITING).style)
    return state_text(task.state)


def value(data: JsonValue, longest: int = _LONGEST) -> str:
    """Return a value on one line, cut to fit; a text stands there without quotes."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return cut(" ".join(text.split()), longest)


def cut(text: str, longest: int = _LONGEST) -> str:
    """Return a text that is not longer than this, with an ellipsis for what is missing."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def safe(text: str) -> str:
    """Return a text without what would move a terminal's cursor or change its colours."""
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)


def who(actor: str) -> str:
    """Return who did something: a worker by the end of its id, others by name."""
    return f"worker {short(actor)}" if _ID.fullmatch(actor) else safe(actor)


def input_of(task: Task, longest: int = _LONGEST) -> str:
    """Return what a task was asked to do: its arguments, as a caller would write them."""
    match plain_input(task.user_input):
        case None:
            return ""
        case [only]:
            return safe(value(only, longest))
        case list() as args:
            return safe(cut(", ".join(map(value, args)), longest))
        case {"args": list() as args, "kwargs": dict() as named}:
            parts = [*map(value, args), *(f"{name}={value(one)}" for name, one in named.items())]
            return safe(cut(", ".join(parts), longest))
        case other:
            return safe(value(other, longest))


def outcome_of(task: Task, longest: int = _LONGEST) -> Text:
    """Return what came of a task, if anything has; of a pending one, for which limit it waits."""
    match task.state:
        case TaskState.PENDING if task.waits_for is not None:
            return Text(safe(f"waits for limit {task.waits_for}"), "dim")
        case TaskState.COMPLETED if task.result is not None:
            return Text(safe(value(plain(task.result), longest)))
        case TaskState.FAILED:
            failure = Failure.from_json(task.error)
            kind = failure.type_name.rpartition(".")[2]
            return Text(safe(cut(f"{kind}: {' '.join(failure.message.split())}", longest)), "red")
        case TaskState.CANCELLED:
            return Text(safe(cut(task.cancel_requested or "", longest)), "dim")
    return Text()


def meter_name(meter: Meter) -> str:
    """Return what a meter is called."""
    return {
        Meter.STEPS: "steps",
        Meter.WALL_TIME_MS: "time",
        Meter.LLM_TOKENS: "tokens",
        Meter.COST_MICROS: "cost",
    }[meter]


def amount(meter: Meter, number: int) -> str:
    """Return an amount in a readable unit."""
    match meter:
        case Meter.WALL_TIME_MS:
            return span(number / 1000)
        case Meter.COST_MICROS:
            return f"{from_micros(number):f}"
    return f"{number:,}"


def bar(meter: Meter, line: MeterLine) -> Text:
    """Return a bar of what is spent and set aside, with the numbers behind it."""
    if line.limit is None:
        return Text(f"{amount(meter, line.spent)} spent, no limit", "dim")
    whole = max(line.limit, 1)
    spent = min(_BAR, round(_BAR * line.spent / whole))
    reserved = min(_BAR - spent, round(_BAR * line.reserved / whole))
    colour = "red" if line.spent >= _FULL * whole else "green"
    drawn = Text.assemble(("█" * spent, colour), ("▒" * reserved, "yellow"), ("░" * (_BAR - spent - reserved), "dim"))
    drawn.append(f" {amount(meter, line.spent)} of {amount(meter, line.limit)}")
    if line.reserved:
        drawn.append(f" ({amount(meter, line.reserved)} set aside)", "yellow")
    return drawn


def counted_down(upcoming: Upcoming, now: datetime) -> str:
    """Return what happens by itself, in how long, and at what time."""
    when = f"{age(upcoming.at, now)}, at {local(upcoming.at, now)}" if upcoming.at > now else "now"
    return f"{upcoming.what} {when}"
