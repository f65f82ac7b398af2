"""``holdfast watch``: everything at a glance, on any screen and in any pipe."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from holdfast import Context, Holdfast
from holdfast.cli.render.board import page
from holdfast.cli.render.table_fit import share
from holdfast.cli.render.worker_list import lease_bar
from holdfast.model.approval import Approval
from holdfast.model.queries import QueueCounts, Summary
from holdfast.model.step import Step, StepState
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import NewWorker, Worker, WorkerState
from holdfast.service.board import Board, read_board
from holdfast.service.worker_list import ListedWorker, WorkerList, read_workers
from tests.cli.render.museum import Museum
from tests.cli.render.support import FOLDER, PATIENCE, Terminal, command, holdfast, surroundings, until, worker
from tests.postgres_server import PostgresServer

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
BEFORE = NOW - timedelta(seconds=90)


def member(label: str = "vulcan", *, left: float = 20, state: WorkerState = WorkerState.LIVE) -> ListedWorker:
    return ListedWorker(
        worker=Worker(
            id=f"worker-{label}",
            label=label,
            lease=30,
            state=state,
            claims=1,
            details={"host": "db1", "pid": 7, "concurrency": 4},
            started_at=BEFORE,
            seen_at=NOW - timedelta(seconds=30 - left),
        ),
        held=2,
        is_silent=left < 0,
        lease_left=left,
    )


def busy(many: int) -> Board:
    """Return a board with this many of everything."""
    running = [
        Task(
            id=f"running-{n:08}", name="deploy", user_input=[f"service {n}"], state=TaskState.RUNNING, started_at=BEFORE
        )
        for n in range(many)
    ]
    step = Step(key="apply", kind="step", position=3, state=StepState.RUNNING, started_at=NOW - timedelta(seconds=12))
    return Board(
        at=NOW,
        summary=Summary(tasks={TaskState.RUNNING: 1_234, TaskState.FAILED: many}, open_approvals=many + 7),
        queues=[
            QueueCounts(name=f"queue{n}", ready=n, delayed=0, running=1, waiting=0, review=0, oldest_ready_at=BEFORE)
            for n in range(many)
        ],
        workers=WorkerList(at=NOW, members=[member(f"worker{n}") for n in range(many)]),
        running=running,
        doing={task.id: step for task in running[1:]},
        approvals=[
            Approval(
                id=f"approval-{n:08}", task_id="task-1", question=f"May I do {n}? " * 9, step_key="x", created_at=BEFORE
            )
            for n in range(many)
        ],
        doubts=[],
        failed=[
            Task(
                id=f"failed-{n:08}",
                name="deploy",
                state=TaskState.FAILED,
                error={"type": "E", "message": "no"},
                finished_at=BEFORE,
            )
            for n in range(many)
        ],
    )


def drawn(board: Board, columns: int, lines: int | None) -> list[str]:
    console = Console(width=columns, height=lines, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(page(board, store="sqlite:///agents.db", height=lines))
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (80, 30), (120, 40), (200, 70)])
@pytest.mark.parametrize("many", [1, 3, 20])
def test_it_fits_the_screen(columns: int, lines: int, many: int) -> None:
    shown = drawn(busy(many), columns, lines)
    assert len(shown) <= lines
    assert max(map(len, shown)) <= columns
    for head in ("queue ", "worker", "running", "waits for you", "failed"):
        assert any(line.startswith(head) for line in shown), shown


def test_it_says_how_many_are_not_shown() -> None:
    shown = drawn(busy(20), 80, 24)
    # Twelve lines for five lists: three for the first two of them, two for the others.
    assert (shown.count("and 18 more"), shown.count("and 19 more")) == (2, 1)
    assert "and 1,233 more" in shown  # of those that were not even read
    assert "and 26 more" in shown
    everything = drawn(busy(20), 200, None)
    assert "and 1,214 more" in everything
    assert "and 7 more" in everything
    assert sum(line.startswith("queue") for line in everything) == 1 + 20


def test_what_runs_is_shown_with_its_step_and_for_how_long() -> None:
    shown = drawn(busy(2), 120, 40)
    [first, second] = [line.split() for line in shown if line.startswith("0000000") and "service" in line]
    assert first == ["00000000", "deploy", "service", "0", "1m", "30s"]  # between two steps: since it began
    assert second == ["00000001", "deploy", "service", "1", "apply", "12s"]


def test_what_waits_for_people_is_shown_with_what_to_type() -> None:
    asked = replace(busy(1).approvals[0], kind="question", question="Where?\x1b[2J")
    shown = drawn(replace(busy(1), approvals=[asked]), 120, 40)
    assert ["?", "Where?�[2J", "task-1", "1m", "30s", "ago", "holdfast", "answer", "00000000", "ANSWER"] in [
        line.split() for line in shown
    ]


def test_without_workers_it_says_how_to_start_one() -> None:
    shown = drawn(replace(busy(1), workers=WorkerList(at=NOW, members=[])), 80, 24)
    assert "none is alive: holdfast worker MODULE:HOLDFAST" in shown


@pytest.mark.parametrize(
    ("one", "bar", "colour"),
    [
        (member(left=30), "████████ 30s", "green"),
        (member(left=15), "████░░░░ 15s", "green"),
        (member(left=8), "██░░░░░░ 8.0s", "yellow"),
        (member(left=0.1), "█░░░░░░░ 0.1s", "yellow"),
        (member(left=-42), "░░░░░░░░ over for 42s", "dim"),
        (member(state=WorkerState.DEAD), "", ""),
    ],
)
def test_a_lease_is_a_bar(one: ListedWorker, bar: str, colour: str) -> None:
    drawn_bar = lease_bar(one)
    assert drawn_bar.plain == bar
    assert not bar or drawn_bar.spans[0].style == colour


@pytest.mark.parametrize(
    ("asked", "room", "given"),
    [
        ([1, 1], 10, [1, 1]),
        ([5, 5], 10, [5, 5]),
        ([9, 1], 6, [5, 1]),
        ([9, 9, 9], 8, [3, 3, 2]),
        ([9, 9], 1, [2, 2]),  # no list gets fewer lines: a smaller screen is cut at its end
        ([], 10, []),
    ],
)
def test_lines_are_shared(asked: list[int], room: int, given: list[int]) -> None:
    assert share(asked, room, [2] * len(asked)) == given


# In real terminals


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_the_whole_screen_and_ctrl_c(museum: Museum, columns: int, lines: int) -> None:
    with Terminal("watch", url=museum.url, columns=columns, lines=lines) as terminal:
        terminal.until("no luck")
        terminal.interrupt()
        assert terminal.leave() == 130
    screen = next(frame for frame in terminal.frames if "no luck" in "".join(frame))
    assert len(screen) <= lines
    assert max(map(len, screen)) <= columns
    text = "\n".join(screen)
    for words in (
        "3 pending  2 running  8 waiting",
        "ghost   silent",
        "over for ",
        "1 of 4",
        "host/4711",
        "holdfast approve",
    ):
        assert words in text
    assert "Traceback" not in terminal.text
    assert terminal.said.index("\x1b[?1049h") < terminal.said.index("\x1b[?1049l")  # back to what was there before
    assert "\x1b[?25h" in terminal.said.rpartition("\x1b[?25l")[2]


def test_one_queue(museum: Museum) -> None:
    process = subprocess.Popen(
        command("watch", "--queue", "remote", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=FOLDER,
        env=surroundings(museum.url),
    )
    with process:
        assert process.stdout is not None
        parsed = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=PATIENCE)
    assert (process.returncode, words) == (130, "")
    assert [queue["name"] for queue in parsed["queues"]] == ["remote"]
    assert parsed["tasks"] == {"pending": 3, "cancelled": 1}
    assert (parsed["running"], parsed["failed"], parsed["approvals"], parsed["workers"]) == ([], [], [], [])


async def test_what_waits_in_one_queue_is_asked_there_alone(museum: Museum) -> None:
    hold = Holdfast(museum.url)
    async with hold:
        everywhere, default = await read_board(hold), await read_board(hold, queue="default")
        mines = await read_board(hold, queue="mines")
    assert len(everywhere.approvals) == len(default.approvals) == 4
    assert [doubt.effect.step_key for doubt in default.doubts] == ["charge"]
    assert (mines.approvals, mines.doubts, [task.id for task in mines.failed]) == ([], [], [museum.ids["failed"]])


@pytest.mark.parametrize("as_json", [True, False])
async def test_a_pipe_gets_what_changes_and_nothing_twice(tmp_path: Path, as_json: bool) -> None:
    url, gate, seen = f"sqlite:///{tmp_path}/hold.db", tmp_path / "gate", tmp_path / "seen"
    async with Holdfast(url) as hold:
        await hold.submit("gated", str(gate), queue="default")
    options = ["--json"] if as_json else []
    with seen.open("w") as file:
        process = subprocess.Popen(
            command("watch", *options), stdout=file, text=True, cwd=FOLDER, env=surroundings(url)
        )
        with process:
            try:
                until(lambda: "pending" in seen.read_text(), process)
                with worker(url):
                    until(
                        lambda: (
                            "wait" in seen.read_text().rpartition("1 running")[2]
                            or '"step": "wait"' in seen.read_text()
                        ),
                        process,
                    )
                    gate.touch()
                    until(lambda: "1 completed" in seen.read_text() or '"completed": 1' in seen.read_text(), process)
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) == 130
            finally:
                process.kill()
    text = seen.read_text()
    assert "\x1b" not in text
    if as_json:
        parsed = [json.loads(line) for line in text.splitlines()]
        for one in parsed:
            one.pop("at")
            for each in one["workers"]:
                each.pop("seen_at")
        assert all(one != after for one, after in pairwise(parsed))
        assert {"pending": 1} in [one["tasks"] for one in parsed]


@pytest.mark.parametrize(
    "options", [["watch"], ["watch", "--json"], ["workers", "--watch"], ["list", "--watch", "--json"]]
)
def test_nothing_is_printed_while_nothing_happens(museum: Museum, tmp_path: Path, options: list[str]) -> None:
    seen = tmp_path / "seen"
    with seen.open("w") as file:
        process = subprocess.Popen(command(*options), stdout=file, text=True, cwd=FOLDER, env=surroundings(museum.url))
        with process:
            until(lambda: bool(seen.read_text()), process)
            time.sleep(2.5)  # a few looks, on any machine that is not very slow
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130
    heads = ("holdfast  sqlite", '{"', "id  ")
    assert sum(line.startswith(heads) for line in seen.read_text().splitlines()) == 1


async def test_a_doubt_that_the_engine_resolves_asks_no_person() -> None:
    hold = Holdfast("memory://")

    @hold.task
    async def charge(ctx: Context) -> None:
        await ctx.step("charge", asyncio.sleep, 600, effect="once", timeout=0.05, settle=600)

    async with hold, hold.worker():
        await hold.submit(charge)
        while not (doubts := await hold.doubts()):  # noqa: ASYNC110 - the store knows
            await asyncio.sleep(0.02)
        assert [doubt.decisions for doubt in doubts] == [()]
        assert (await read_board(hold)).doubts == []


async def test_of_many_workers_the_board_counts_only_what_it_shows() -> None:
    hold = Holdfast("memory://")
    async with hold:
        for number in range(25):
            await hold.store.register(NewWorker(label=f"worker{number:02}", lease=600))
        board = await read_board(hold)
        workers = await read_workers(hold.store)
    assert [member.worker.label for member in board.workers.members] == [f"worker{number:02}" for number in range(20)]
    assert board.workers.unseen == 5
    assert (len(workers.members), workers.unseen) == (25, 0)
    assert "and 5 more" in drawn(board, 80, None)


async def test_the_board_on_postgresql(postgres18: PostgresServer) -> None:
    hold = Holdfast(postgres18.create_store())

    @hold.task
    async def ask(ctx: Context) -> None:
        await ctx.approval("Deploy?")

    @hold.task
    async def hang(ctx: Context) -> None:
        await ctx.step("hang", asyncio.sleep, 600)

    async with hold, hold.worker(label="vulcan", grace=0):
        await hold.submit(ask)
        await hold.submit(hang)
        board = await read_board(hold)
        while not board.approvals or [step.key for step in board.doing.values()] != ["hang"]:
            await asyncio.sleep(0.05)
            board = await read_board(hold)
        shown = drawn(board, 100, 30)
        queue = await read_board(hold, queue="default")
    assert any(line.startswith("? Deploy?") and "holdfast approve " in line for line in shown)
    assert any(line.split()[1:3] == ["hang", "hang"] for line in shown)
    assert any(line.startswith("vulcan") and "live" in line and "1 of " in line for line in shown)
    assert len(queue.approvals) == 1


# Queues and workers


def test_queues(museum: Museum) -> None:
    answer = holdfast("queues", url=museum.url)
    rows = [line.split() for line in answer.stdout.splitlines()]
    assert rows[0] == ["queue", "ready", "delayed", "running", "waiting", "review", "oldest", "ready"]
    assert ["default", "0", "0", "0", "8", "1"] in rows
    [remote] = [row for row in rows if row[0] == "remote"]
    assert remote[:6] == ["remote", "2", "1", "0", "0", "0"]
    parsed = json.loads(holdfast("queues", "--json", url=museum.url).stdout)["queues"]
    assert {queue["name"]: queue["ready"] for queue in parsed} == {"default": 0, "ghost": 0, "remote": 2, "vulcan": 0}


def test_workers(museum: Museum) -> None:
    answer = holdfast("workers", url=museum.url)
    silent, live = (line.split() for line in answer.stdout.splitlines()[1:])
    assert silent[1:3] == ["ghost", "silent"]
    assert live[1:3] == ["vulcan", "live"]
    assert live[-5:] == ["1", "of", "4", "host/4711", "vulcan"]
    parsed = json.loads(holdfast("workers", "--json", url=museum.url).stdout)["workers"]
    assert [(one["label"], one["held"], one["silent"]) for one in parsed] == [("ghost", 1, True), ("vulcan", 1, False)]
    gone = json.loads(holdfast("workers", "--dead", "--json", url=museum.url).stdout)["workers"]
    assert [(one["state"], one["held"]) for one in gone] == [("live", 1), ("live", 1), ("dead", 0)]


def test_no_worker_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    assert holdfast("submit", "application:hold", "greet", "-i", "x", url=url).returncode == 0
    answer = holdfast("workers", url=url)
    assert (answer.returncode, answer.stdout) == (0, "")
    assert answer.stderr == "holdfast: no worker is alive; start one: holdfast worker MODULE:HOLDFAST\n"


@pytest.mark.parametrize("name", ["queues", "workers"])
def test_they_stay_if_asked_to(museum: Museum, name: str) -> None:
    with Terminal(name, "--watch", url=museum.url) as terminal:
        terminal.until("ghost")
        terminal.interrupt()
        assert terminal.leave() == 130
    assert "Traceback" not in terminal.text
