"""What people see when the demo is over: the ledger, step by step, and what it proves."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.cli.demo.outcome import Outcome
from holdfast.cli.demo.story import BAD, GOOD, short
from holdfast.cli.own_command import own_command
from holdfast.redaction import without_password


def proof(outcome: Outcome) -> Table:
    """Show how often each effect really happened."""
    table = Table(
        title="What really happened, as the ledger outside the store has it",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for heading in ("step", "declared", "effect id"):
        table.add_column(heading)
    table.add_column("in the ledger", justify="right")
    table.add_column("done by")
    for touch in outcome.touches:
        times = Text(f"{touch.count} x", GOOD if touch.count == 1 else BAD)
        done_by = ", ".join(f"{label} (pid {pid})" for label, pid in zip(touch.workers, touch.pids, strict=True))
        table.add_row(touch.step, touch.declared.value, short(touch.effect_id), times, done_by)
    return table


def verdict(outcome: Outcome) -> Iterator[RenderableType]:
    """Yield the result in two or three lines, or what did not hold."""
    task = outcome.last.task
    if not outcome.is_good:
        yield Text(f"The demo does not show what it promises: the task is {task.state}.", BAD)
        for complaint in outcome.complaints:
            yield Text(f"  {complaint}", "red")
        return
    yield Text(f"{task.state}: {task.result} It took {outcome.seconds:.1f} s.", f"bold {GOOD}")
    yield Text(
        f"{_count(outcome.kills, 'worker')} killed, {_count(outcome.takeovers, 'take-over')}, "
        f"{_count(len(outcome.doubts), 'call')} in doubt and cleared up, {_count(len(outcome.approvals), 'approval')}."
    )
    yield Text(f"{len(outcome.touches)} effects, each of them once in the ledger: nothing ran twice.")


def commands(outcome: Outcome, url: str) -> Iterator[Text]:
    """Yield the commands to look at what is left. They must not be wrapped: users copy them."""
    yield Text("Look around:", "bold")
    for command in ("show", "history", "state"):
        yield Text(f"  {own_command()} {command} {outcome.last.task.id} --database-url {without_password(url)}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
