"""The tools as steps: what they declare reaches the engine, and what it finds out reaches the task."""

from __future__ import annotations

import sqlite3  # noqa: TID251 - a user's own database, in a file that Holdfast never opens
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, TaskFailed, testing
from holdfast.effects import CommandResult, HttpResponse, Probed, create_file, http_request, insert_row, run_command
from tests.effects.shop import Shop

PATIENCE = 60


async def run(tool: Probed[..., Any], *args: object) -> Any:  # noqa: ANN401
    """Run it as a step without settings for effects; return what the task saw. Nothing is left in doubt."""
    hold = Holdfast("memory://")
    seen: list[Any] = []

    @hold.task
    async def errand(ctx: Context) -> None:
        seen.append(await ctx.step("do", tool, *args, timeout=PATIENCE, settle=0))

    async with hold, hold.worker():
        handle = await hold.submit(errand)
        try:
            await handle.result(timeout=PATIENCE)
        finally:
            assert not await hold.doubts()
    (result,) = seen
    return result


async def test_a_lost_answer_is_looked_up(shop: Shop) -> None:
    tool = http_request("POST", f"{shop.url}/charge/reset", lookup=shop.url + "/charges/{effect_id}")
    result = await run(tool, {"amount": 5})
    assert isinstance(result, HttpResponse)
    assert result.body["id"].startswith("charge-")
    assert list(shop.charges.values()) == [1]


async def test_a_refusal_ends_the_step_without_a_doubt(shop: Shop) -> None:
    with pytest.raises(TaskFailed, match=r"RequestRefused.*422"):
        await run(http_request("POST", f"{shop.url}/not-charged/status/422"), {"amount": 5})


async def test_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "report")
    assert await run(create_file, path, "text") == path


async def test_a_row(tmp_path: Path) -> None:
    connect = partial(sqlite3.connect, tmp_path / "shop.db")
    with closing(connect()) as connection:
        connection.execute("CREATE TABLE payments (effect_id TEXT UNIQUE, amount INTEGER)")
    key = await run(insert_row(connect, "payments"), {"amount": 5})
    with closing(connect()) as connection:
        assert connection.execute("SELECT * FROM payments").fetchall() == [(key, 5)]


async def test_a_command(tmp_path: Path) -> None:
    result = await run(run_command(["echo", "hello"], markers=tmp_path / "markers"), "there")
    assert result == CommandResult(exit_code=0, output="hello there\n", errors="")


@pytest.mark.parametrize("when", ["before_effect", "after_effect"])
async def test_a_crash_between_call_and_record_does_it_once(tmp_path: Path, when: testing.crashes.When) -> None:
    hold = Holdfast("memory://")
    note = tmp_path / "ran"
    (tmp_path / "markers").mkdir()
    command = run_command(["sh", "-c", f"echo ran >> {note}; echo done"], markers=tmp_path / "markers")

    @hold.task
    async def errand(ctx: Context) -> str:
        await ctx.step("write", create_file, str(tmp_path / "report"), "text")
        return (await ctx.step("run", command)).output

    async with testing.sandbox(hold) as box:
        box.crash("write", when=when)
        box.crash("run", when=when)
        handle = await hold.submit(errand)
        assert await handle.result() == "done\n"
    assert (tmp_path / "report").read_text() == "text"
    assert note.read_text() == "ran\n"
