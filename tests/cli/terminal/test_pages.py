"""What a page shows: everything once, in the terms of its reader."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast import Context, Holdfast
from holdfast.cli.progress import show_progress
from holdfast.model.errors import StoreUnavailable
from holdfast.service.overview import Overview
from holdfast.service.service import Service
from tests.cli.project.support import refusal
from tests.cli.render import support as look
from tests.cli.terminal.support import holdfast, read, run, submit

CLOCK = re.compile(r"\d\d:\d\d:\d\d")


def test_children_are_named(url: str) -> None:
    parent = run("family", url=url)
    [child] = read("list", "--parent", parent, url=url)["tasks"]
    assert f"children   {child['id'][-8:]} echo completed" in holdfast("show", parent, url=url).stdout


async def test_what_was_said_to_a_task_is_shown(url: str) -> None:
    task_id = submit("parrot", "--input", "hello", url=url)
    assert holdfast("send", task_id, "do not forget the cake", "--by", "ann", url=url).returncode == 0
    assert "ann said: do not forget the cake" in holdfast("show", url=url).stdout
    [message] = read("show", url=url)["messages"]
    assert message["payload"]["text"] == "do not forget the cake"


def test_an_error_shows_its_cause_and_its_place(url: str) -> None:
    run("boom", "--input", "no luck at all\ntoday", url=url, code=5)
    page = holdfast("show", url=url).stdout
    assert [line.split()[0] for line in page.splitlines() if "ValueError: no luck at all today" in line] == [
        "why",
        next(iter(CLOCK.findall(page.splitlines()[-1]))),
    ]
    assert "outcome" not in page


def test_one_step_is_shown_whole(url: str) -> None:
    text = "a text that no table would show to its end " * 20
    run("echo", "--input", text, url=url)
    newest = read("show", url=url)["task"]["id"]
    assert text.strip() in holdfast("steps", newest, "echo", url=url).stdout
    assert read("steps", newest, "echo", url=url)["output"] == text

    failed = run("boom", "--input", "no luck", url=url, code=5)
    page = holdfast("steps", failed, "strike", url=url)  # which has a traceback to show, on stdout
    assert "in _strike" in page.stdout
    assert "ValueError: no luck" in page.stdout
    line = refusal(holdfast("steps", failed, "nothing", url=url), 3)
    assert "'nothing'" in line


def test_history_has_room_for_why(url: str) -> None:
    run("echo", "--input", "x", url=url)
    shown = look.in_terminal("history", read("show", url=url)["task"]["id"], url=url).text
    assert len(CLOCK.findall(shown)) == 3
    assert not re.search(r"\d{4}-\d\d-\d\d", shown)
    assert "…" not in shown


async def test_a_quiet_run_still_says_what_a_person_has_to_decide(url: str) -> None:
    with subprocess.Popen(
        look.command("run", look.APPLICATION, "wonder", "--quiet"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=look.FOLDER,
        env=look.surroundings(url),
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=look.PATIENCE)
    assert re.match(r"  holdfast answer [0-9a-f]{8} ANSWER    answer\n", line), line


@pytest.mark.parametrize("is_away", [False, True])
async def test_an_end_during_a_look_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    """The view was read before the end and is handed over after it: another one is taken, if the store answers."""
    hold = Holdfast("memory://")
    looks = 0

    @hold.task
    async def work(ctx: Context) -> None:
        await ctx.step("one", lambda: None)

    async def see_then_end(task_id: str) -> Overview:
        nonlocal looks
        looks += 1
        if looks > 1 and is_away:
            raise StoreUnavailable("away")
        seen = await Service.overview(service, task_id)
        if looks == 1:
            go.set()
            await working
        return seen

    async def run_when_seen() -> None:
        await go.wait()
        await hold.run(handle)

    async with hold:
        service, go = Service(hold), asyncio.Event()
        handle = await hold.submit(work)
        before = await service.overview(handle.id)
        monkeypatch.setattr(service, "overview", see_then_end)
        working = asyncio.create_task(run_when_seen())
        await show_progress(service, before, working, quiet=False)
    assert looks == 2
    printed = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert printed[0] == "pending: submitted"
    assert printed[-2:] == (["pending: submitted"] if is_away else ["✓ one", "completed: work done"])


def test_going_on_does_not_tell_the_past_as_if_it_happened_now(url: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        look.command("run", look.APPLICATION, "journey", "-i", str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=look.FOLDER,
        env=look.surroundings(url),
    ) as process:
        look.until((tmp_path / "second").exists, process)
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=look.PATIENCE)
    assert words.count("✓ first") <= 1
    task_id = read("show", url=url)["task"]["id"]
    printed = look.holdfast("run", look.APPLICATION, "--id", task_id, url=url).stderr.splitlines()
    assert printed[0] == f"going on with task {task_id}: 1 step was done before"
    assert "✓ first" not in "\n".join(printed)
    assert "pending: submitted" not in printed
    assert [line.strip() for line in printed[-2:]] == ["✓ second", "completed: work done"]
