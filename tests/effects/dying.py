"""A process that dies at every line: each line of ``holdfast.effects`` that a call executes is a place to be killed at.

    python -m tests.effects.dying <scenario> <what it needs, as JSON>

For number 1, 2, 3 ... a child makes the call and is killed, with SIGKILL, right before that line. Then its
parent looks at the world, asks reconcile, and where that says absent makes the call again. One line of JSON each, until
a call comes to its end before it can be killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import json
import os
import signal
import sqlite3  # noqa: TID251 - a user's own database, in a process without Holdfast's
import sys
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg

from holdfast import effects
from holdfast.effects import Probed, create_file, http_request, insert_row, run_command

OURS = str(Path(effects.__file__).parent)


@dataclass
class Scenario:
    """A call, and how to count what it did."""

    tool: Probed[..., Any]
    args: Callable[[str], tuple[Any, ...]]
    count: Callable[[str], int]
    settle: Callable[[str], object] = str
    """Wait until what was under way at the time of the kill has come to its end."""


def creating_a_file(folder: str) -> Scenario:
    def args(effect_id: str) -> tuple[Any, ...]:
        return f"{folder}/report-{effect_id}", "text" * 1000

    def made(effect_id: str) -> int:
        path, content = map(str, args(effect_id))
        there = Path(path).exists()
        assert not there or Path(path).read_text() == content
        return int(there)

    return Scenario(create_file, args, made)


def sending_a_request(url: str, way: str) -> Scenario:
    lookup = f"{url}/charges/{{effect_id}}" if way == "lookup" else None
    tool = http_request("POST", f"{url}/{'charge' if lookup else 'replayable'}", lookup=lookup, replayable=not lookup)

    def charged(effect_id: str) -> int:
        with closing(urllib.request.urlopen(f"{url}/count/{effect_id}")) as answer:  # noqa: S310 - our own server
            return int(answer.read())

    def settle(_: str) -> None:
        urllib.request.urlopen(f"{url}/quiet").close()  # noqa: S310

    return Scenario(tool, lambda _: ({"amount": 5},), charged, settle)


def inserting_a_row(driver: str, where: str) -> Scenario:
    connect: Callable[[], Any] = partial({"sqlite3": sqlite3, "psycopg": psycopg}[driver].connect, where)

    def inserted(effect_id: str) -> int:
        with closing(connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT COUNT(*) FROM payments WHERE effect_id = '{effect_id}'")
            return int(cursor.fetchone()[0])

    def settle(effect_id: str) -> None:
        """An insert under the same key waits for the transaction that inserts it."""
        with closing(connect()) as connection:
            connection.cursor().execute(f"INSERT INTO payments VALUES ('{effect_id}', 0) ON CONFLICT DO NOTHING")

    return Scenario(insert_row(connect, "payments"), lambda _: ({"amount": 5},), inserted, settle)


def running_a_command(folder: str) -> Scenario:
    script = f"echo ran >> {folder}/ran-$HOLDFAST_EFFECT_ID"

    def ran(effect_id: str) -> int:
        note = Path(f"{folder}/ran-{effect_id}")
        return len(note.read_text().splitlines()) if note.exists() else 0

    def settle(effect_id: str) -> None:
        mark = Path(f"{folder}/markers/{effect_id}.started")
        if mark.exists():
            with mark.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)

    return Scenario(run_command(["sh", "-c", script], markers=f"{folder}/markers"), lambda _: (), ran, settle)


SCENARIOS: dict[str, Callable[..., Scenario]] = {
    made.__name__: made for made in (creating_a_file, sending_a_request, inserting_a_row, running_a_command)
}


def call(function: Callable[..., Any], *args: Any, **named: Any) -> Any:  # noqa: ANN401
    value = function(*args, **named)
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def die_at(number: int, note: int) -> None:
    """Note down the line of ours with this number, and die there."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
        nonlocal left
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.write(note, f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}".encode())
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def kill_at(scenario: Scenario, number: int, effect_id: str) -> str | None:
    """Make the call in a child that dies on the way. Return the line where it did, or None if it did not."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            die_at(number, writing)
            call(scenario.tool, *scenario.args(effect_id), effect_id=effect_id)
            sys.settrace(None)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as note:
        line = note.read()
    _, status = os.waitpid(child, 0)
    died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert died == bool(line), "killed by another process"
    assert died or os.waitstatus_to_exitcode(status) == 0, "the call failed"
    return line if died else None


def main(name: str, needs: str) -> None:
    scenario = SCENARIOS[name](**json.loads(needs))
    for number in count(1):
        effect_id = f"effect-{number}"
        line = kill_at(scenario, number, effect_id)
        scenario.settle(effect_id)
        before = scenario.count(effect_id)
        outcome = call(scenario.tool.reconcile, effect_id, *scenario.args(effect_id))  # type: ignore[arg-type]
        said = type(outcome).__name__
        if said == "Absent":
            call(scenario.tool, *scenario.args(effect_id), effect_id=effect_id)
            said = f"Absent, then {type(call(scenario.tool.reconcile, effect_id, *scenario.args(effect_id))).__name__}"  # type: ignore[arg-type]
        report = {"line": line, "before": before, "said": said, "after": scenario.count(effect_id)}
        sys.stdout.write(json.dumps(report) + "\n")
        if line is None:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
