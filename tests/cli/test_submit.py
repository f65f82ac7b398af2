"""``holdfast submit``, with a worker beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.cli.support import APPLICATION, FOLDER, PATIENCE, holdfast, worker


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store with a worker on its default queue."""
    folder = tmp_path_factory.mktemp("submit")
    url = f"sqlite:///{folder}/hold.db"
    with worker(folder, url, "--queues", "default,mines"):
        yield url


def submit(url: str, task: str, *options: str) -> subprocess.CompletedProcess[str]:
    return holdfast("submit", APPLICATION, task, *options, url=url)


async def test_it_prints_the_id(url: str) -> None:
    answer = submit(url, "greet", "--args", '["you"]', "--priority", "3", "--deadline", "60", "--delay", "0.01")
    assert answer.returncode == 0
    assert answer.stderr == f"holdfast: submitted; look at it with: holdfast show {answer.stdout.strip()[-8:]}\n"
    async with Holdfast(url) as hold:
        task = await hold.handle(answer.stdout.strip()).task()
    assert (task.name, task.user_input, task.priority) == ("greet", ["you"], 3)
    assert task.deadline is not None


def test_json_is_one_object(url: str) -> None:
    answer = submit(
        url,
        "greet",
        "--args",
        '["you"]',
        "--queue",
        "elsewhere",
        "--label",
        "tenant=acme",
        "--at",
        "2099-12-01T07:00:00+01:00",
        "--json",
    )
    assert answer.stderr == ""
    parsed = json.loads(answer.stdout)
    assert (parsed["name"], parsed["queue"], parsed["state"]) == ("greet", "elsewhere", "pending")
    assert (parsed["user_input"], parsed["result"], parsed["fence"]) == (["you"], None, 0)
    assert (parsed["labels"], parsed["available_at"]) == ({"tenant": "acme"}, "2099-12-01T06:00:00+00:00")


def test_a_key_that_a_task_has(url: str) -> None:
    """Replaced while it waits in a queue without a worker; the exit code of a refusal is that of a conflict."""
    first = submit(url, "greet", "--args", '["one"]', "--queue", "elsewhere", "--key", "twice")
    rejected = submit(url, "greet", "--args", '["one"]', "--key", "twice", "--if-exists", "reject")
    assert (rejected.returncode, first.stdout.strip() in rejected.stderr) == (4, True)
    options = ("--queue", "elsewhere", "--key", "twice", "--json")
    replaced = submit(url, "greet", "--args", '["two"]', "--if-exists", "replace", *options)
    put_off = submit(url, "greet", "--args", '["three"]', "--debounce", "1h", "--debounce-max", "2h", *options)
    parsed = [json.loads(answer.stdout) for answer in (replaced, put_off)]
    assert [(task["id"], task["user_input"]) for task in parsed] == [
        (first.stdout.strip(), ["two"]),
        (first.stdout.strip(), ["three"]),
    ]


def test_wait_prints_the_result(url: str) -> None:
    answer = submit(url, "greet", "--args", '{"name": "you", "times": "2"}', "--wait")
    assert (answer.returncode, answer.stdout) == (0, '"hello youhello you"\n')
    assert answer.stderr.startswith("holdfast: task ")


def test_arguments_and_results_have_types(url: str) -> None:
    order = {"item": "bolt", "count": 3, "at": "2026-01-02T03:04:05Z"}
    answer = submit(url, "double", "--args", json.dumps([order, order]), "--wait", "--json")
    assert answer.returncode == 0, answer.stderr
    parsed = json.loads(answer.stdout)
    assert (parsed["state"], parsed["result"]) == ("completed", order | {"count": 6, "at": "2026-01-02T03:04:05+00:00"})


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_failed_task_is_exit_code_5(url: str, options: tuple[str, ...]) -> None:
    answer = submit(url, "fail", "--wait", *options)
    assert answer.returncode == 5
    assert "failed: ValueError: no luck" in answer.stderr
    if options:
        parsed = json.loads(answer.stdout)
        assert (parsed["state"], parsed["error"]["type"]) == ("failed", "ValueError")
    else:
        assert answer.stdout == ""


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_waiting_too_long_is_exit_code_124(url: str, options: tuple[str, ...]) -> None:
    answer = submit(url, "greet", "--args", '["you"]', "--delay", "600", "--wait", "--timeout", "0.2", *options)
    assert answer.returncode == 124
    assert "still pending in queue 'default'" in answer.stderr
    assert [json.loads(line)["state"] for line in answer.stdout.splitlines()] == ["pending"] * len(options)


async def test_a_cancelled_task_and_an_interrupted_wait(url: str) -> None:
    command = [sys.executable, "-m", "holdfast", "submit", APPLICATION, "greet", "--args", '["you"]']
    command += ["--delay", "600", "--key", "cancelled", "--database-url", url, "--wait"]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=FOLDER) as cancelled,
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=FOLDER) as interrupted,
    ):
        assert cancelled.stderr is not None
        assert interrupted.stderr is not None
        task_id = cancelled.stderr.readline().split()[2].rstrip(":")
        assert task_id in interrupted.stderr.readline()  # the same key is the same task
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.wait(PATIENCE) == 130
        assert "Traceback" not in interrupted.stderr.read()
        async with Holdfast(url) as hold:
            await hold.cancel(task_id, "changed my mind")
        assert cancelled.wait(PATIENCE) == 5
        assert "was cancelled: changed my mind" in cancelled.stderr.read()


def test_a_key_with_other_input_is_exit_code_4(url: str) -> None:
    first = submit(url, "greet", "--args", '["you"]', "--key", "k")
    again = submit(url, "greet", "--args", '["you"]', "--key", "k")
    other = submit(url, "greet", "--args", '["me"]', "--key", "k")
    assert (first.returncode, again.stdout) == (0, first.stdout)
    assert (other.returncode, other.stdout) == (4, "")
    assert first.stdout.strip() in other.stderr


def test_waiting_shows_that_no_worker_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    arguments = ("greet", "--args", '["you"]', "--queue", "elsewhere", "--wait", "--timeout", "0.1")
    first, second, _ = submit(url, *arguments).stderr.splitlines()
    assert first.endswith("waiting until a worker has done it")
    assert second == (
        "holdfast: no live worker takes 'greet' tasks from this queue; "
        f"start one: holdfast worker {APPLICATION} --queues elsewhere"
    )
    named = holdfast("submit", APPLICATION, *arguments, "--database-url", url)
    assert named.stderr.splitlines()[1].endswith(f"--queues elsewhere --database-url {url}")
    assert (named.returncode, named.stdout) == (124, "")


def test_waiting_for_a_live_worker_shows_nothing_more(url: str) -> None:
    assert submit(url, "greet", "--args", '["you"]', "--wait").stderr.count("\n") == 1
