"""What people see of the demo: live in a terminal, line by line anywhere else."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from holdfast.cli.demo.application import STEPS
from holdfast.cli.demo.ledger import Ledger, What
from holdfast.cli.demo.outcome import Outcome

_TITLE = "[bold]Ten steps of a deployment. Its worker is killed in the eighth.[/]"
_SUBTITLE = "[dim]Two `holdfast worker` processes, one SIGKILL, and nothing but this machine.[/]"
_FRAMES_PER_SECOND = 12


class Stage:
    """Shows which worker did which step, and what happened when."""

    def __init__(self, console: Console) -> None:
        """Show it on this console, within ``with``."""
        self._console = console
        self._began = time.monotonic()
        self._told: list[Text] = []
        self._workers: list[int] = []
        self._lost: set[int] = set()
        self._ledger = Ledger()
        self._spinner = Spinner("dots", Text("running", "yellow"), style="yellow")
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(console=console, get_renderable=self._scene, refresh_per_second=_FRAMES_PER_SECOND)

    def __enter__(self) -> Self:
        """Begin the show."""
        self._console.print(_TITLE, _SUBTITLE, sep="\n", end="\n\n")
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; what was shown last stays."""
        if self._live is not None:
            self._live.stop()
        elif kind is None:
            self._console.print("", self._board())

    # What happens

    def enter(self, pid: int) -> None:
        """A worker has started."""
        self._workers.append(pid)

    def lose(self, pid: int) -> None:
        """A worker was killed."""
        self._lost.add(pid)

    def tell(self, words: str) -> None:
        """Say what has just happened."""
        line = Text.assemble((f"{time.monotonic() - self._began:4.1f} s  ", "dim"), words)
        self._told.append(line)
        if self._live is None:
            self._console.print(line)

    def show(self, ledger: Ledger) -> None:
        """Show what the ledger says now."""
        news = ledger.entries[len(self._ledger.entries) :]
        self._ledger = ledger
        if self._live is None:
            for entry in news:
                if entry.what is What.PASSED:
                    number, word = STEPS.index(entry.step) + 1, self._word(entry.pid, entry.step)
                    self.tell(f"worker {entry.pid}: step {number}, {entry.step}: {word}")

    def conclude(self, outcome: Outcome) -> None:
        """Show what the store has of it."""
        self._console.print("", _journal(outcome), "", _moves(outcome), "", _verdict(outcome), sep="\n")

    # How it looks

    def _scene(self) -> RenderableType:
        return Group(self._board(), Text(), *self._told)

    def _board(self) -> Table:
        board = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2))
        board.add_column("step", justify="right", style="dim")
        board.add_column("", min_width=max(map(len, STEPS)))
        for pid in self._workers:
            board.add_column(f"worker {pid}", min_width=18)
        for number, step in enumerate(STEPS, 1):
            board.add_row(str(number), step, *(self._cell(pid, step) for pid in self._workers))
        return board

    def _cell(self, pid: int, step: str) -> RenderableType:
        word = self._word(pid, step)
        if word == "running":
            return self._spinner
        colours = {"done": "green", "ran again": "bold green", "replayed": "cyan", "killed": "bold red"}
        return Text(word, colours.get(word, ""))

    def _word(self, pid: int, step: str) -> str:
        """Say what became of a step in a process."""
        began = self._ledger.pids(What.BEGAN, step)
        if pid in self._ledger.pids(What.DID, step):
            return "ran again" if began[0] != pid else "done"
        if pid in self._ledger.replayed(step):
            return "replayed"
        if pid in began:
            return "killed" if pid in self._lost else "running"
        return ""


def _journal(outcome: Outcome) -> Table:
    journal = _table("The journal, as the store has it", "step", "state", "fence", "begun by", "done by")
    for step in outcome.steps:
        begun, done = (outcome.ledger.pids(what, step.key) for what in (What.BEGAN, What.DID))
        journal.add_row(step.key, step.state, str(step.fence), _listed(begun), _listed(done))
    return journal


def _moves(outcome: Outcome) -> Table:
    moves = _table("The moves of the task", "from", "to", "fence", "why")
    for move in outcome.history:
        moves.add_row(move.from_state or "", move.to_state, str(move.fence), move.reason)
    return moves


def _verdict(outcome: Outcome) -> Text:
    if not outcome.is_good:
        return Text(
            f"{outcome.task.state}, with steps done twice: {', '.join(outcome.done_twice) or 'none'}", "bold red"
        )
    again = [step for step in STEPS if len(outcome.ledger.pids(What.BEGAN, step)) > 1]
    return Text.assemble(
        (f"{outcome.task.state}: {outcome.task.result}.", "bold green"),
        f" 1 worker killed, {len(again)} step begun again, {len(outcome.done_twice)} done twice.",
    )


def _table(title: str, *columns: str) -> Table:
    return Table(
        *columns,
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )


def _listed(pids: list[int]) -> str:
    return ", ".join(map(str, pids))
