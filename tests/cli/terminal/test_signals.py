"""Signals and strange terminals: the terminal is given back, the task is handed back, the code says what happened."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from holdfast import Holdfast, TaskState
from tests.cli.render.museum import Museum
from tests.cli.render.support import APPLICATION, FOLDER, PATIENCE, Terminal, command, holdfast, surroundings, until
from tests.cli.terminal.support import submit

SHOW_CURSOR, LEAVE_SCREEN = "\x1b[?25h", "\x1b[?1049l"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_live_view_that_is_ended_gives_the_terminal_back(museum: Museum, number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"the program that started the tests ignores {number.name}, and so do their children")
    with Terminal("watch", url=museum.url) as terminal:
        terminal.until(lambda: len(terminal.frames) > 0)
        assert LEAVE_SCREEN not in terminal.said
        terminal.process.send_signal(number)
        assert terminal.leave() == 128 + number
    assert SHOW_CURSOR in terminal.said
    assert LEAVE_SCREEN in terminal.said
    assert "Traceback" not in terminal.text


def test_a_task_page_that_is_ended_gives_the_cursor_back(museum: Museum) -> None:
    with Terminal("show", museum.short("sleep"), "--follow", url=museum.url) as terminal:
        terminal.until("it sleeps until")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.leave() == 128 + signal.SIGTERM
    assert terminal.said.rindex(SHOW_CURSOR) > terminal.said.rindex("\x1b[?25l")


def test_a_terminal_that_cannot_move_its_cursor_is_shown_pages(museum: Museum) -> None:
    with Terminal("watch", url=museum.url, TERM="dumb") as terminal:
        terminal.until(museum.short("failed"))
        terminal.interrupt()
        assert terminal.leave() == 130
    assert "\x1b" not in terminal.said


def test_a_run_in_a_simple_terminal_prints_lines(url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Terminal("run", APPLICATION, "gated", "-i", str(gate), url=url, TERM="dumb") as terminal:
        terminal.until("running: run by name")
        gate.touch()
        assert terminal.leave() == 0
    assert "completed: work done" in terminal.text


async def test_a_terminal_that_is_closed_hands_the_task_back(url: str, tmp_path: Path) -> None:
    process = _journey(url, tmp_path, hang_up=signal.SIG_DFL)
    with process:
        until((tmp_path / "second").exists, process)
        process.send_signal(signal.SIGHUP)
        _, words = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "was handed back. Go on with: holdfast run application:hold --id" in words
    async with Holdfast(url) as hold:
        [task] = (await hold.store.find()).items
    assert (task.state, task.owner) == (TaskState.PENDING, None)


def test_nohup_outlives_the_terminal(url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    process = _start(url, "gated", str(gate), hang_up=signal.SIG_IGN)
    with process:
        assert process.stderr is not None
        while "running" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGHUP)
        gate.touch()
        printed, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (0, '"through"\n')


def test_ctrl_c_while_the_command_is_still_being_imported(tmp_path: Path) -> None:
    marker = tmp_path / "importing"
    # Replaces the first of many packages that are imported, to have a signal during that import.
    (tmp_path / "typer.py").write_text(f"open({str(marker)!r}, 'w').close()\nimport time\ntime.sleep(600)\n")
    with subprocess.Popen(
        command("list"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=surroundings(None, PYTHONPATH=str(tmp_path)),
    ) as process:
        until(marker.exists, process)
        process.send_signal(signal.SIGINT)
        printed, words = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed, words) == (130, "", "")


def test_a_live_view_leaves_in_good_order_on_ctrl_c(url: str) -> None:
    submit("echo", "--input", "x", url=url)
    with Terminal("list", "--watch", url=url) as terminal:
        terminal.until("echo")
        terminal.interrupt()
        assert terminal.leave() == 130
    assert holdfast("list", url=url).returncode == 0


def _journey(url: str, folder: Path, *, hang_up: signal.Handlers) -> subprocess.Popen[str]:
    return _start(url, "journey", str(folder), hang_up=hang_up)


def _start(url: str, task: str, text: str, *, hang_up: signal.Handlers) -> subprocess.Popen[str]:
    """Run a task; ``hang_up`` is what SIGHUP does to the process, as a shell or nohup leaves it."""
    return subprocess.Popen(
        command("run", APPLICATION, task, "-i", text),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=FOLDER,
        env=surroundings(url),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, hang_up),  # noqa: PLW1509 - nothing else sets it for a child
    )
