"""``holdfast run``: submit and work on it here; whatever happens to the process, nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, TaskState
from holdfast.cli.commands import run as run_module
from tests.cli_look.support import APPLICATION, FOLDER, PATIENCE, Terminal, command, holdfast, surroundings, until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/hold.db"


def start(url: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("run", APPLICATION, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=FOLDER,
        env=surroundings(url),
    )


def test_the_result_goes_to_stdout_and_what_happens_to_stderr(url: str) -> None:
    answer = holdfast("run", APPLICATION, "greet", "--args", '["you"]', url=url)
    assert (answer.returncode, answer.stdout) == (0, '"hello you"\n')
    assert [line.strip() for line in answer.stderr.splitlines()] == [
        "pending: submitted",
        "running: run by name",
        "✓ greet",
        "completed: work done",
    ]
    assert holdfast("run", APPLICATION, "greet", "-i", "you", "--quiet", url=url).stderr == ""


def test_json_is_the_task_with_its_typed_result(url: str) -> None:
    answer = holdfast("run", APPLICATION, "delegate", "--json", url=url)
    told = json.loads(answer.stdout)
    assert (told["state"], told["result"]) == ("completed", ["hello ann", "hello bob"])  # its children were worked on


def test_a_failed_task_is_exit_code_5(url: str) -> None:
    answer = holdfast("run", APPLICATION, "fail", "--json", url=url)
    assert answer.returncode == 5
    assert json.loads(answer.stdout)["error"]["steps"] == ["strike"]
    assert "ValueError: no luck" in answer.stderr.splitlines()[-1]
    assert "Traceback" not in answer.stderr


def traces(folder: Path, name: str) -> int:
    path = folder / name
    return len(path.read_text().splitlines()) if path.exists() else 0


async def test_ctrl_c_hands_back_and_id_goes_on(url: str, tmp_path: Path) -> None:
    with start(url, "journey", "-i", str(tmp_path)) as process:
        until(lambda: traces(tmp_path, "second") == 1, process)
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    last = words.splitlines()[-1]
    short = last.split()[3]
    assert (
        last == f"holdfast: stopped; task {short} was handed back. Go on with: holdfast run {APPLICATION} --id {short}"
    )
    assert "Traceback" not in words
    async with Holdfast(url) as hold:
        [task] = (await hold.store.find()).items
    assert (task.state, task.owner, task.attempts, task.deaths) == (TaskState.PENDING, None, 0, 0)

    answer = holdfast("run", APPLICATION, "--id", short, url=url)
    assert (answer.returncode, answer.stdout) == (0, '"arrived"\n')
    assert (traces(tmp_path, "first"), traces(tmp_path, "second")) == (1, 2)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
async def test_the_same_key_goes_on_after_a_sigkill(url: str, tmp_path: Path) -> None:
    with start(url, "journey", "-i", str(tmp_path), "--key", "k", "--lease", "5") as process:
        until(lambda: traces(tmp_path, "second") == 1, process)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    answer = holdfast("run", APPLICATION, "journey", "-i", str(tmp_path), "--key", "k", url=url)
    assert (answer.returncode, answer.stdout) == (0, '"arrived"\n'), answer.stderr
    assert (traces(tmp_path, "first"), traces(tmp_path, "second")) == (1, 2)
    async with Holdfast(url) as hold:
        [task] = (await hold.store.find()).items
    assert (task.state, task.deaths) == (TaskState.COMPLETED, 1)


def test_nobody_who_listens_is_no_reason_to_stop(url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with start(url, "gated", "-i", str(gate)) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        process.stderr.readline()
        process.stderr.close()
        gate.touch()
        assert process.stdout.read() == '"through"\n'
        assert process.wait(PATIENCE) == 0


def test_a_person_sees_the_page_while_it_runs(url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Terminal("run", APPLICATION, "gated", "-i", str(gate), url=url) as terminal:
        terminal.until("running in 'wait'")
        gate.touch()
        assert terminal.leave() == 0
    assert terminal.text.rstrip().endswith('"through"')
    assert "Traceback" not in terminal.text


async def test_a_screen_that_breaks_leaves_nothing_held(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, began = Holdfast(url), asyncio.Event()

    @hold.task
    async def endless(ctx: Context) -> None:
        del ctx
        began.set()
        await asyncio.Event().wait()

    async def broken(*_: object, **__: object) -> None:
        async with asyncio.timeout(PATIENCE):
            await began.wait()
        raise RuntimeError("the screen broke")

    monkeypatch.setattr(run_module, "tell_troubles", lambda: None)  # the logs are this process's own
    monkeypatch.setattr(run_module, "find_holdfast", lambda *_: hold)
    monkeypatch.setattr(run_module, "show_progress", broken)
    async with hold:
        task_id = (await hold.submit(endless)).id
    before = asyncio.all_tasks()
    with pytest.raises(RuntimeError, match="the screen broke"):
        await run_module.run.__wrapped__([], existing=task_id)  # type: ignore[attr-defined]
    assert asyncio.all_tasks() == before
    async with hold:
        task = await hold.handle(task_id).task()
    assert (task.state, task.owner) == (TaskState.PENDING, None)
