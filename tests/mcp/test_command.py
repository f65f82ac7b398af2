"""``holdfast mcp`` as a process: what it writes where, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.client import ConnectMode

from holdfast import Holdfast
from tests.cli.project.support import PATIENCE, clean_environment
from tests.mcp.support import ask, refused

FOLDER = Path(__file__).parent
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@contextmanager
def started(url: str, *arguments: str, folder: Path = FOLDER) -> Iterator[subprocess.Popen[str]]:
    """Start the command as a client does; it is gone after the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "mcp", "--database-url", url, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=clean_environment(PYTHONPATH=str(FOLDER)),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def greet(process: subprocess.Popen[str]) -> dict[str, object]:
    """Send the first message of a client; return the first line of the answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(HELLO) + "\n")
    process.stdin.flush()
    answer: dict[str, object] = json.loads(process.stdout.readline())
    return answer


def test_it_says_on_stderr_whose_rights_the_client_has(url: str) -> None:
    with started(url, "--name", "ada", "--claim", "deploy") as process:
        greet(process)
        _, words = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert words.strip() == (
        f"holdfast: serving {url} over stdio with the rights of ada: read, submit, work; "
        "agents may claim: handover, deploy"
    )


def test_it_ends_when_its_client_leaves(url: str) -> None:
    with started(url) as process:
        greet(process)
        out, _ = process.communicate(timeout=PATIENCE)  # closes its stdin
    assert (process.returncode, out) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once(url: str, number: signal.Signals) -> None:
    with started(url) as process:
        greet(process)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number  # though its stdin is still open
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_nothing_but_the_protocol_is_on_stdout(url: str) -> None:
    with started(url, "noisy_application:hold") as process:
        answer = greet(process)  # the very first line
        out, words = process.communicate(timeout=PATIENCE)
    assert answer["id"] == 1
    assert out == ""
    for said in ("imported", "written", "written past Python"):
        assert said in words


@pytest.mark.parametrize("columns", [80, 120])
def test_a_person_who_starts_it_in_a_terminal_learns_its_purpose(tmp_path: Path, columns: int) -> None:
    leader, follower = pty.openpty()
    process = subprocess.run(
        [sys.executable, "-m", "holdfast", "mcp", "--database-url", f"sqlite:///{tmp_path}/hold.db"],
        stdin=follower,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=clean_environment(COLUMNS=str(columns)),
        timeout=PATIENCE,
        check=False,
    )
    os.close(leader)
    os.close(follower)
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr.startswith("holdfast: this speaks MCP on stdin and stdout, and a terminal does not; ")
    assert "`holdfast mcp --print-config`" in process.stderr
    assert process.stderr.count("\n") == 1
    assert not (tmp_path / "hold.db").exists()


async def test_who_only_reads_changes_nothing(url: str, era: ConnectMode) -> None:
    async with Holdfast(url) as hold:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "holdfast", "mcp", "--read-only", "--name", "eve", "--database-url", url],
            env=clean_environment(),
        )
        async with Client(server, mode=era) as client:
            assert "submit_task" not in {tool.name for tool in (await client.list_tools()).tools}
            assert (await refused(client, "submit_task", goal="x"))["kind"] == "NotAllowed"
            assert await ask(client, "list_tasks") == {"tasks": [], "next_cursor": None}
        assert not (await hold.store.find()).items


async def test_with_an_application_it_knows_which_tasks_there_are(url: str) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "holdfast", "mcp", "noisy_application:hold", "--database-url", url],
        env=clean_environment(PYTHONPATH=str(FOLDER)),
    )
    async with Client(server) as client:
        assert "greet" in (await refused(client, "submit_task", goal="x", name="great"))["error"]
        answer = await ask(client, "submit_task", goal="Ann", name="greet")
        assert answer["name"] == "greet"


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["--database-url", "memory://"], "and ends with it; name a store that lasts", 2),
        (["--read-only", "--database-url", "sqlite:///nowhere.db"], "there is no store at", 1),
        (["nowhere:hold"], "nowhere", 2),
        (["--client", "emacs", "--print-config"], "emacs", 2),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: list[str], words: str, code: int) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "holdfast", "mcp", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=clean_environment(NO_COLOR="1"),
        timeout=PATIENCE,
        check=False,
    )
    assert process.returncode == code, process.stderr
    assert process.stdout == ""
    assert words in process.stderr
    assert "Traceback" not in process.stderr
