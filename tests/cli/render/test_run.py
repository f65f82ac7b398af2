"""``holdfast run``: submit and work on it here; whatever happens to the process, nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, TaskState
from holdfast.cli.commands import run as run_module
from holdfast.service.service import Service
from tests.cli.render.support import (
    APPLICATION,
    FOLDER,
    PATIENCE,
    Terminal,
    command,
    holdfast,
    surroundings,
    until,
    worker,
)


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
    received = json.loads(answer.stdout)
    assert (received["state"], received["result"]) == (
        "completed",
        ["hello ann", "hello bob"],
    )  # its children were worked on


def test_a_failed_task_is_exit_code_5(url: str) -> None:
    answer = holdfast("run", APPLICATION, "fail", "--json", url=url)
    assert answer.returncode == 5
    assert json.loads(answer.stdout)["error"]["steps"] == ["strike"]
    assert "ValueError: no luck" in answer.stderr.splitlines()[-1]
    assert "Traceback" not in answer.stderr


def test_a_failure_is_reported_once_with_what_to_do(url: str) -> None:
    answer = holdfast("run", APPLICATION, "fail", url=url)
    said = [line.strip() for line in answer.stderr.splitlines() if "no luck" in line]
    assert len(said) == 2  # the try that another one followed, and how it ended
    assert said[0].startswith("✗ strike, try 1: ValueError: no luck")
    task_id = answer.stderr.splitlines()[-1].split()[2]
    advice = f"look at it with: holdfast show {task_id[-8:]}; let it go on with: holdfast resume {task_id[-8:]}"
    assert answer.stderr.endswith(f"; {advice}\n")

    again = holdfast("run", APPLICATION, "--id", task_id, url=url)
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (5, "", 1)
    assert again.stderr.startswith(f"holdfast: task {task_id} failed in step 'strike': ValueError: no luck")
    assert again.stderr.endswith(f"; that was before, and it is not run again; {advice}\n")


def test_a_failure_names_the_store_that_the_command_would_not_look_at(url: str) -> None:
    answer = holdfast("run", APPLICATION, "fail", "--database-url", url)
    assert answer.stderr.endswith(f" --database-url {url}\n")


def test_a_task_that_was_completed_before_is_reported_so(url: str) -> None:
    first = json.loads(holdfast("run", APPLICATION, "greet", "-i", "you", "--key", "k", "--json", url=url).stdout)
    words = f"holdfast: task {first['id'][-8:]} was completed before, and is not run again\n"
    for again in (("greet", "-i", "you", "--key", "k"), ("--id", first["id"])):
        answer = holdfast("run", APPLICATION, *again, url=url)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, '"hello you"\n', words)
        assert holdfast("run", APPLICATION, *again, "--quiet", url=url).stderr == ""


async def test_a_task_that_was_cancelled_before_is_reported_so(url: str) -> None:
    task_id = str(json.loads(holdfast("submit", APPLICATION, "doze", "--json", url=url).stdout)["id"])
    async with Holdfast(url) as hold:
        await hold.cancel(task_id, "changed my mind")
    answer = holdfast("run", APPLICATION, "--id", task_id, url=url)
    assert answer.returncode == 5
    assert answer.stderr == (
        f"holdfast: task {task_id} was cancelled: changed my mind; that was before, and it is not run again; "
        f"look at it with: holdfast show {task_id[-8:]}\n"
    )


async def test_a_task_of_another_application_is_not_begun_with(url: str) -> None:
    async with Holdfast(url) as hold:
        task_id = (await hold.submit("foreign", queue="default")).id
    answer = holdfast("run", APPLICATION, "--id", task_id, url=url)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == (
        f"holdfast: task {task_id[-8:]} is 'foreign', which is not defined here; name the application that defines it: "
        f"holdfast run MODULE:HOLDFAST --id {task_id[-8:]}\n"
    )


def test_ctrl_c_leaves_a_task_to_the_worker_that_has_it(url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with worker(url, "--label", "vulcan") as other:
        arguments = ("submit", APPLICATION, "gated", "-i", str(gate), "--json")
        task_id = str(json.loads(holdfast(*arguments, url=url).stdout)["id"])
        until(lambda: json.loads(holdfast("show", task_id, "--json", url=url).stdout)["worker"] is not None, other)
        with start(url, "--id", task_id) as process:
            assert process.stderr is not None
            while "going on with" not in (line := process.stderr.readline()):
                assert line
            process.send_signal(signal.SIGINT)
            _, words = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert words.splitlines()[-1] == (
            f"holdfast: stopped; task {task_id[-8:]} goes on, on worker 'vulcan'; "
            f"follow it: holdfast show {task_id[-8:]} --follow"
        )
        gate.touch()


async def test_it_runs_in_this_process_though_a_worker_is_alive(url: str) -> None:
    with worker(url), start(url, "where") as process:
        assert process.stderr is not None
        received = ""
        while "holdfast approve" not in received and (line := process.stderr.readline()):
            received += line
        async with Holdfast(url) as hold:
            [asked] = await hold.approvals()
            await hold.approve(asked.id, by="ann")
        result, _ = process.communicate(timeout=PATIENCE)
    assert json.loads(result) == [process.pid, process.pid]
    assert "waiting: a person has to decide: Go on?\n" in received


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
    begun, held, *_ = answer.stderr.splitlines()
    assert begun.startswith("going on with task ")
    assert held.startswith(
        f"held by run ({socket.gethostname()}, pid {process.pid}) until its lease is over: in about "
    )
    assert (traces(tmp_path, "first"), traces(tmp_path, "second")) == (1, 2)
    async with Holdfast(url) as hold:
        [task] = (await hold.store.find()).items
    assert (task.state, task.deaths) == (TaskState.COMPLETED, 1)


def test_it_continues_without_listeners(url: str, tmp_path: Path) -> None:
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

    monkeypatch.setattr(run_module, "print_problems", lambda: None)  # the logs are this process's own
    monkeypatch.setattr(run_module, "find_application", lambda *_: Service(hold))
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
