"""One frame of the demo in a terminal: plan, workers, budget, and the last things that happened. It fits 80x24."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.cli.demo.application import STEPS
from holdfast.cli.demo.ledger import What
from holdfast.cli.demo.snapshot import Snapshot, was_in_doubt
from holdfast.cli.demo.story import BAD, GOOD, ODD, short
from holdfast.cli.demo.worker_processes import DemoWorker
from holdfast.model.approval import ApprovalState
from holdfast.model.budget import Meter
from holdfast.model.effect import Effect, EffectState
from holdfast.model.worker import WorkerState

ROWS_BESIDE_THE_LOG = 18
"""Lines of a frame above the first line of the log."""

_LEASE_WIDTH, _BUDGET_WIDTH = 16, 9
_METERS = ((Meter.STEPS, "steps", 1), (Meter.LLM_TOKENS, "tokens", 1), (Meter.WALL_TIME_MS, "s", 1000))


def frame(now: Snapshot, log: Sequence[Text]) -> RenderableType:
    """Draw one moment."""
    return Group(_title(now), _plan(now), _workers(now), _budget(now), Text(), *map(in_one_line, log))


def _title(now: Snapshot) -> Text:
    task = now.task
    title = Text.assemble(
        (f"{task.name}: ", "bold"),
        now.state.goal or "not begun",
        (f"   {task.state}", GOOD if task.state.is_terminal else ODD),
        (f"   plan {len(now.state.completed_steps)}/{len(STEPS)}", "dim"),
    )
    return in_one_line(title)


def in_one_line(text: Text) -> Text:
    """Return the text cut at the width of the screen: a wrapped line would push the first one off the screen."""
    cut = text.copy()
    cut.no_wrap, cut.overflow = True, "ellipsis"
    return cut


def _plan(now: Snapshot) -> Table:
    plan = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    plan.add_column("", justify="right", style="dim")
    plan.add_column("step", min_width=15)
    plan.add_column("effect id", min_width=9, style="dim")
    plan.add_column("state", min_width=21, no_wrap=True)
    plan.add_column("worker", min_width=8, no_wrap=True)
    plan.add_column("ledger", justify="right")
    for number, name in enumerate(STEPS, 1):
        pids = now.world.pids(What.DID, name)
        word, style = standing(now, name)
        plan.add_row(
            *(str(number), name, short(now.effect_id(name)), Text(word, style), ", ".join(map(now.label, pids))),
            Text(f"{len(pids)} x", BAD if len(pids) > 1 else "") if pids else "",
        )
    return plan


def standing(now: Snapshot, name: str) -> tuple[str, str]:
    """Return the state of a step, and its colour."""
    effect, approval = now.effect(name), now.approval(name)
    if now.is_completed(name):
        return ("completed, reconciled" if effect is not None and was_in_doubt(effect) else "completed"), GOOD
    if approval is not None and approval.state is ApprovalState.OPEN:
        return "waits for approval", ODD
    if effect is not None:
        return _effect_standing(now, effect)
    return ("running", ODD) if now.is_current(name) else ("", "")


def _effect_standing(now: Snapshot, effect: Effect) -> tuple[str, str]:
    holder = now.holder(effect.fence)
    dead = holder is not None and any(one.was_killed and one.pid == holder.details["pid"] for one in now.processes)
    if effect.state is EffectState.ARMED:
        return ("armed, worker killed", BAD) if dead else ("armed", ODD)
    return effect.state.value.replace("_", " "), BAD if effect.state is EffectState.NEEDS_HUMAN else ODD


def _workers(now: Snapshot) -> Table:
    grid = Table.grid(padding=(0, 2))
    for member in now.processes:
        grid.add_row(*_worker(now, member))
    if len(now.processes) == 1:
        grid.add_row(" ")  # a free row for the second worker, so that nothing has to move
    return grid


def _worker(now: Snapshot, member: DemoWorker) -> tuple[RenderableType, ...]:
    known = next((one for one in now.workers if one.details["pid"] == member.pid), None)
    words, style = ("starting", "dim") if known is None else (known.state.value, GOOD)
    if member.was_killed:
        words, style = "killed by SIGKILL", BAD
    elif member.exit_code is not None:
        words, style = "left", "dim"
    name = f"{member.label}  pid {member.pid}"
    if known is None or known.state is WorkerState.DEAD:
        return name, Text(words, style), Text("no lease", "dim")
    left = now.lease_left(known)
    bar = ProgressBar(total=known.lease, completed=left, width=_LEASE_WIDTH, complete_style=ODD, finished_style=ODD)
    return name, Text(words, style), f"lease {left:3.1f} s", bar


def _budget(now: Snapshot) -> Table:
    grid = Table.grid(padding=(0, 1))
    cells: list[RenderableType] = [Text("budget", "dim")]
    for meter, word, unit in _METERS:
        line = now.budget.lines[meter]
        limit, used = line.limit or 0, line.spent
        bar = ProgressBar(total=limit, completed=used, width=_BUDGET_WIDTH, complete_style="cyan", finished_style=BAD)
        cells += (bar, f"{used // unit:,}/{limit // unit:,} {word} ")
    grid.add_row(*cells)
    return grid
