"""A model that cannot be reached: every screen says so, and ``holdfast run`` stops to wait for it within seconds."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from holdfast import Agent, Context, Holdfast, ModelError, ModelUnreachable, ScriptedModel, TaskState, tool
from holdfast.agent.scripted import call
from holdfast.cli.endpoint import SECONDS, TRIES, Watch
from holdfast.cli.progress import _lines
from holdfast.cli.render.board import page
from holdfast.model.failure import Try
from holdfast.service.reach import Unreached, read_reach
from holdfast.service.service import Service
from holdfast.testing import sandbox
from holdfast.testing.chat_server import ChatServer
from tests.cli.render.support import holdfast
from tests.postgres_server import free_port

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
ENTRY = """
import os
from holdfast import Agent, Holdfast, OpenAIModel
hold = Holdfast()
hold.register(Agent("helper", model=OpenAIModel("any", base_url=os.environ["ENDPOINT"])))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "entry.py").write_text(ENTRY)
    return tmp_path


def test_run_stops_within_seconds_and_the_task_goes_on_once_the_endpoint_is_there(folder: Path) -> None:
    url, endpoint = f"sqlite:///{folder}/hold.db", f"http://127.0.0.1:{free_port()}/v1"
    answer = holdfast("run", "entry:hold", "helper", "-i", "Hi.", "--json", url=url, folder=folder, ENDPOINT=endpoint)
    assert answer.returncode == 6, answer.stderr
    left = json.loads(answer.stdout)
    assert left["state"] in {"pending", "waiting"}  # not failed, and nothing is lost
    lines = answer.stderr.splitlines()
    assert f"  ✗ llm:1, try 1: ModelUnreachable: cannot reach {endpoint}: the connection was refused" in answer.stderr
    assert "  ✗ llm:1, try 2: the same; again in " in answer.stderr
    end = lines.index(next(line for line in lines if line.startswith(f"holdfast: cannot reach {endpoint}: ")))
    assert lines[end + 1].startswith("holdfast: no connection in ")
    assert lines[end + 1].endswith(f"so `holdfast run` stops; task {left['id'][-8:]} stays open")
    assert [line.split("  ")[1] for line in lines[end + 2 :]] == [
        f"holdfast run entry:hold --id {left['id'][-8:]}",
        "holdfast worker entry:hold",
        f"holdfast cancel {left['id'][-8:]}",
    ]
    with ChatServer(["Hello."]) as server:
        again = holdfast(
            *("run", "entry:hold", "--id", left["id"], "--patience", "10m"),
            url=url,
            folder=folder,
            ENDPOINT=server.base_url,
        )
    assert (again.returncode, again.stdout) == (0, '"Hello."\n'), again.stderr


def unreached(*seconds: float) -> Unreached:
    """Return a call whose tries failed so many seconds after the beginning."""
    tries = [
        Try(
            number=n,
            type_name="holdfast.ModelUnreachable",
            message="away",
            at=NOW + timedelta(seconds=at),
            is_away=True,
        )
        for n, at in enumerate(seconds, 1)
    ]
    return Unreached("task-1", "llm:1", "away", tuple(tries))


async def test_how_long_run_waits() -> None:
    async with Holdfast("memory://") as hold:
        usual = Watch(Service(hold), "task-1", NOW, None)
        patient = replace(usual, patience=600.0)
    for found, passed, is_enough in (
        (unreached(0), 0.0, False),
        (unreached(0, 1), 2.0, False),
        (unreached(0, 1, 3), 3.0, True),
        (unreached(9), SECONDS, True),  # to an address that does not answer, even one try takes long
    ):
        assert usual._is_enough(found, NOW + timedelta(seconds=passed)) is is_enough
        assert not patient._is_enough(found, NOW + timedelta(seconds=passed))
    assert len(unreached(0, 1, 3).tries) == TRIES
    assert patient._is_enough(unreached(0), NOW + timedelta(minutes=10))


@tool(risk="read_only")
def look() -> str:
    """Look."""
    return "seen"


AWAY = ModelUnreachable("cannot reach http://127.0.0.1:9/v1")


async def test_only_an_endpoint_that_never_answered_counts_as_not_reached() -> None:
    hold = Holdfast("memory://")
    never = hold.register(Agent("never", model=ScriptedModel(lambda _: AWAY)))
    gone = hold.register(
        Agent("gone", tools=[look], model=ScriptedModel(lambda asked: AWAY if asked.turn else call("look")))
    )
    busy = hold.register(Agent("busy", model=ScriptedModel(lambda _: ModelError("overloaded", status=503))))

    @hold.task
    async def parent(ctx: Context) -> str:
        return str(await (await ctx.submit("never", "Hi.")).result())

    async with sandbox(hold) as box:
        with box.frozen():
            for task, is_reached, is_unreached in (
                (never, False, True),
                (gone, True, False),
                (busy, False, False),
            ):
                handle = await hold.submit(task, "Hi.")
                await box.idle()
                found = await read_reach(hold, handle.id, since=box.clock.now() - timedelta(hours=1))
                assert (found.is_reached, found.unreached is not None) == (is_reached, is_unreached)
                later = await read_reach(hold, handle.id, since=box.clock.now() + timedelta(hours=1))
                assert later.unreached is None  # only what was tried since then counts
            handle = await hold.submit(parent)
            await box.idle()
            below = await read_reach(hold, handle.id, since=box.clock.now() - timedelta(hours=1))
            assert below.unreached is not None
            assert below.unreached.task_id != handle.id


async def test_every_try_is_on_every_screen() -> None:
    hold = Holdfast("memory://")
    agent = hold.register(Agent("never", model=ScriptedModel(lambda _: AWAY)))
    async with sandbox(hold) as box:
        with box.frozen():
            service = Service(hold)
            handle = await hold.submit(agent, "Hi.")
            read_lines: dict[str, str] = {}
            seen = await service.overview(handle.id)
            for _ in range(100):
                await box.idle()
                seen = await service.overview(handle.id)
                read_lines.update((key, line) for key, line in _lines(seen) if key not in read_lines)
                if seen.task.state is TaskState.WAITING:
                    break
                await box.advance(0.5)
            tries = [line.strip() for line in read_lines.values() if "llm:1, try" in line]
            assert tries[0].startswith(f"✗ llm:1, try 1: ModelUnreachable: {AWAY}; again in ")
            assert [line.partition("; again in ")[0] for line in tries[1:]] == [
                f"✗ llm:1, try {n}: the same" for n in range(2, len(tries) + 1)
            ]
            assert seen.situation.why == f"try {len(tries)} of 'llm:1' failed: ModelUnreachable: {AWAY}"
            [then] = seen.situation.then
            assert then.what == f"try {len(tries) + 1} of 'llm:1' begins"
            assert then.at > seen.at
            board = await service.board()
            [coming] = board.coming
            assert (coming.task.id, coming.then, coming.why) == (handle.id, then, f"ModelUnreachable: {AWAY}")
            screen = Console(width=120, record=True, file=io.StringIO())
            screen.print(page(board, store="memory://"))
            shown = screen.export_text()
            assert f"{then.what}  {handle.id[-8:]}  in " in shown
            assert str(AWAY) in shown
            assert board.to_json()["coming"] == [
                {
                    "task_id": handle.id,
                    "name": "never",
                    "what": then.what,
                    "at": then.at.isoformat(),
                    "why": f"ModelUnreachable: {AWAY}",
                }
            ]
