"""Many tasks at once: progress is shown, and after a stop how far it came."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast, StoreUnavailable, Task, TaskState
from holdfast.cli.selection import report
from holdfast.model.queries import TaskFilter
from holdfast.service.selection import Done
from tests.cli.render.support import PATIENCE, surroundings
from tests.cli.terminal.support import FOLDER

MANY = 400

UNHURRIED = """
import asyncio
from holdfast import Holdfast
from holdfast.cli import main

cancel = Holdfast.cancel

async def cancel_after_a_pause(*args, **options):
    await asyncio.sleep(0.1)
    return await cancel(*args, **options)

Holdfast.cancel = cancel_after_a_pause
main()
"""
"""The command, but so slow that it can always be stopped in the middle."""


@pytest.fixture
async def ids(url: str) -> list[str]:
    """Tasks that no worker runs."""
    async with Holdfast(url) as hold:
        hold.task(name="nothing")(_nothing)
        return [(await hold.submit("nothing", queue="q")).id for _ in range(MANY)]


async def _nothing(ctx: object) -> None: ...


@pytest.mark.parametrize("option", [(), ("--json",)])
async def test_who_is_stopped_in_the_middle_says_how_far_it_came(
    url: str, ids: list[str], option: tuple[str, ...]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", UNHURRIED, "cancel", "--queue", "q", "--yes", *option],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=FOLDER,
        env=surroundings(url),
    ) as process:
        assert process.stdout is not None
        first = "" if option else process.stdout.readline()  # there before the last of them is done
        async with Holdfast(url) as hold:
            while not await _cancelled(hold):
                assert process.poll() is None
        process.send_signal(signal.SIGINT)
        printed, words = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    reported = [one["id"] for one in json.loads(printed)["tasks"]] if option else _ids(first + printed)
    assert 0 < len(reported) < MANY
    assert f"stopped after {len(reported)} of {MANY} tasks" in words
    assert "Traceback" not in words
    async with Holdfast(url) as hold:
        done = await _cancelled(hold)
    assert reported == ids[: len(reported)]
    assert done in (set(reported), {*reported, ids[len(reported)]})  # the next one may be done or not


async def test_a_store_that_goes_away_in_the_middle_does_not_hide_what_was_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tasks = [Task(id=name) for name in ("a", "b", "c")]

    async def doing() -> AsyncIterator[Done]:
        yield Done("a", "cancelled")
        raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        await report(doing(), tasks, as_json=False)
    printed = capsys.readouterr()
    assert printed.out == "a cancelled\n"
    assert "stopped after 1 of 3 tasks; the one that was next may be done or not" in printed.err


def _ids(printed: str) -> list[str]:
    return [line.split()[0] for line in printed.splitlines()]


async def _cancelled(hold: Holdfast) -> set[str]:
    page = await hold.store.find(TaskFilter(states=frozenset({TaskState.CANCELLED})), limit=MANY)
    return {task.id for task in page.items}
