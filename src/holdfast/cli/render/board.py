"""Everything at a glance, cut to the height of the screen."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, OverflowMethod, RenderableType, RenderResult
from rich.text import Text

from holdfast.cli.render.overview import command_for
from holdfast.cli.render.steps import step_name, visible
from holdfast.cli.render.table_fit import FittingTable, share
from holdfast.cli.render.words import input_of, outcome_of, safe, standing_of, state_text
from holdfast.cli.render.worker_list import QUEUE_COLUMNS, holding, lease_bar, process, queue_rows, standing
from holdfast.cli.terminal import one_line
from holdfast.cli.times import age, span
from holdfast.model.transitions import TaskState
from holdfast.service.board import Board
from holdfast.service.identify import short
from holdfast.service.situation import about_approval, about_doubt

_ALWAYS = frozenset(TaskState) - {TaskState.REVIEW, TaskState.CANCELLED}
"""States that are counted even where no task is in them."""
_HEAD = 2
"""Lines above the first section."""
_FRAME = 2
"""Lines of a section beside its rows: an empty one, and its head."""
_LEAST = 2
"""Lines that every section gets even on a small screen, if it has so many."""


@dataclass(frozen=True, slots=True)
class _Section:
    columns: Sequence[str]
    flexible: Collection[str]
    """The columns that are cut first."""
    rows: Sequence[Sequence[str | Text]]
    unseen: int = 0
    """How many more there are than were read."""
    whole: str | None = None
    """The column with a command: it is never cut, because half a command is useless."""


@dataclass(frozen=True, slots=True)
class _Page:
    """The board. The number of lines of a row depends on the width, which is known only when it is drawn."""

    head: Sequence[RenderableType]
    sections: Sequence[_Section]
    height: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw as many rows of each section as there are lines for."""

        def lines(section: _Section, rows: int) -> int:
            drawn = console.render_lines(_table(section, rows), options.update(height=None), pad=False)
            return len(drawn) - 1  # its head

        asked = [lines(section, len(section.rows)) for section in self.sections]
        room = sum(asked) if self.height is None else self.height - _HEAD - _FRAME * len(asked)
        least = [max(_LEAST, lines(section, 1)) for section in self.sections]
        yield from self.head
        for section, given in zip(self.sections, share(asked, room, least), strict=True):
            rows = min(len(section.rows), given)
            while rows and lines(section, rows) > given:
                rows -= 1
            yield Text()
            yield _table(section, rows)


def page(board: Board, *, store: str, height: int | None = None) -> RenderableType:
    """Return the whole board. With ``height``, lists are cut so that it fits into as many lines."""
    return _Page([_title(board, store), _counts(board)], list(_sections(board)), height)


def _title(board: Board, store: str) -> Text:
    return one_line(
        Text.assemble(("holdfast", "bold"), f"  {safe(store)}", (f"  {board.at.astimezone():%H:%M:%S}", "dim"))
    )


def _counts(board: Board) -> Text:
    counts = Text()
    for state in TaskState:
        count = board.summary.tasks.get(state, 0)
        if count or state in _ALWAYS:
            counts.append(f"{count:,} {state}", state_text(state).style if count else "dim").append("  ")
    return one_line(counts)


def _sections(board: Board) -> Iterator[_Section]:
    if board.queues:
        yield _Section(QUEUE_COLUMNS, {"queue"}, queue_rows(board.queues, board.at, board.pauses))
    yield _workers(board)
    counts = board.summary.tasks
    if board.running:
        unseen = counts.get(TaskState.RUNNING, 0) + counts.get(TaskState.REVIEW, 0) - len(board.running)
        columns: tuple[str, ...] = ("running", "task", "input", "step", "for")
        yield _Section(columns, {"task", "input", "step"}, _running(board), max(0, unseen))
    if board.approvals or board.doubts:
        # Questions about effects in doubt are counted among the open approvals, too.
        unseen = board.summary.open_approvals - len(board.approvals) - len(board.doubts)
        columns = ("waits for you", "task", "asked", "type")
        yield _Section(columns, {"waits for you", "type"}, _decisions(board), max(0, unseen), whole="type")
    if board.coming:
        yield _Section(("comes by itself", "task", "when", "why"), {"comes by itself", "why"}, _coming(board))
    if board.failed:
        unseen = counts.get(TaskState.FAILED, 0) - len(board.failed)
        yield _Section(("failed", "task", "when", "why"), {"task", "why"}, _failed(board), max(0, unseen))


def _workers(board: Board) -> _Section:
    rows: list[list[str | Text]] = [
        [member.worker.label, standing(member), lease_bar(member), holding(member), process(member)]
        for member in board.workers.members
    ]
    none_alive: list[list[str | Text]] = [[Text("none is alive: holdfast worker MODULE:HOLDFAST", "yellow")]]
    columns, whole = ("worker", "state", "lease", "holds", "process"), None if rows else "worker"
    return _Section(columns, {"worker", "process"}, rows or none_alive, board.workers.unseen, whole)


def _running(board: Board) -> list[list[str | Text]]:
    rows: list[list[str | Text]] = []
    for task in board.running:
        step = board.doing.get(task.id)
        # Between two steps the newest line is of a finished step: then the task's own code runs.
        shown = step is not None and bool(visible([step])) and step.finished_at is None
        since = step.started_at if shown and step is not None else task.started_at
        rows.append(
            [
                Text(short(task.id), standing_of(task).style),
                task.name,
                input_of(task),
                step_name(step) if shown and step is not None else "",
                "" if since is None else span((board.at - since).total_seconds()),
            ]
        )
    return rows


def _decisions(board: Board) -> list[list[str | Text]]:
    rows: list[list[str | Text]] = [
        [
            Text.assemble(("? ", "magenta"), safe(approval.question)),
            short(approval.task_id),
            age(approval.created_at, board.at),
            Text(command_for(about_approval(approval)[0]), "cyan"),
        ]
        for approval in sorted(board.approvals, key=lambda one: one.created_at or board.at)
    ]
    return rows + [
        [
            Text.assemble(("! ", "red"), safe(doubt.question)),
            short(doubt.effect.task_id),
            age(doubt.effect.updated_at, board.at),
            Text(command_for(about_doubt(doubt)), "cyan"),
        ]
        for doubt in board.doubts
    ]


def _coming(board: Board) -> list[list[str | Text]]:
    return [
        [
            safe(one.then.what),
            short(one.task.id),
            age(one.then.at, board.at) if one.then.at > board.at else "now",
            Text(safe(one.why), "dim"),
        ]
        for one in board.coming
    ]


def _failed(board: Board) -> list[list[str | Text]]:
    return [
        [short(task.id), task.name, age(task.finished_at, board.at), outcome_of(task, 200)] for task in board.failed
    ]


def _table(section: _Section, rows: int) -> FittingTable:
    """Return the first rows of a section; the last line says how many are missing."""
    made = FittingTable(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in section.columns:
        overflow: OverflowMethod = "fold" if column == section.whole else "ellipsis"
        made.add_column(column, no_wrap=column not in section.flexible, overflow=overflow)
    for row in section.rows[:rows]:
        cells = zip(section.columns, row, strict=False)
        made.add_row(*(cell if column == section.whole else one_line(cell) for column, cell in cells))
    if hidden := len(section.rows) - rows + section.unseen:
        made.add_row(Text(f"and {hidden:,} more", "dim"))
    return made
