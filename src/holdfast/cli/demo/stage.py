"""What people see while the demo runs: a live picture in a terminal, line by line anywhere else."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast.cli.demo.scene import ROWS_BESIDE_THE_LOG, frame
from holdfast.cli.demo.snapshot import Snapshot
from holdfast.cli.demo.story import StoryEvent, tell

INTRODUCTION = (
    Text("An agent deploys a service in ten steps. Its worker is killed in the eighth.", "bold"),
    Text("Two `holdfast worker` processes, one SIGKILL, and nothing but this machine.", "dim"),
)

_FRAMES_PER_SECOND = 10
_FEWEST_LINES = 3


class DemoStage:
    """Shows every snapshot, and logs what is new in it."""

    def __init__(self, console: Console) -> None:
        """Use this console, within ``with``."""
        self._console = console
        self._log: dict[str, Text] = {}
        self._now: Snapshot | None = None
        self._live: Live | None = None
        if console.is_terminal and not console.quiet:
            self._live = Live(
                console=console, get_renderable=self._frame, refresh_per_second=_FRAMES_PER_SECOND, transient=True
            )

    def __enter__(self) -> Self:
        """Begin the show."""
        self._console.print(*INTRODUCTION, sep="\n", end="\n\n")
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the live picture; the log stays on the screen."""
        if self._live is not None:
            self._live.stop()
            for line in self.log:
                self._console.print(line)

    @property
    def log(self) -> list[Text]:
        """Every line of the log so far."""
        return list(self._log.values())

    def show(self, now: Snapshot) -> None:
        """Show this moment."""
        self._now = now
        for event in tell(now):
            if event.key not in self._log:
                self._log[event.key] = line = _line(event, now)
                if self._live is None:
                    self._console.print(line)

    def _frame(self) -> RenderableType:
        if self._now is None:
            return Text()
        lines = max(_FEWEST_LINES, self._console.height - ROWS_BESIDE_THE_LOG - 1)
        return frame(self._now, self.log[-lines:])


def _line(event: StoryEvent, now: Snapshot) -> Text:
    begun = now.task.created_at or event.at
    seconds = max(0.0, (event.at - begun).total_seconds())
    return Text.assemble((f"{seconds:5.1f} s  ", "dim"), (event.words, event.style))
