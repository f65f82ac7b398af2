"""Storage grows with the steps and not with their square: no step stores again what was stored before."""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg
import pytest
from psycopg import sql

from holdfast import Agent, Holdfast, Request, ScriptedModel, Usage
from holdfast.agent.scripted import Answer, call
from tests.agent_checkpoints.support import note
from tests.store.contract.truncating import SCHEMA, EmptiedDatabase

SHORT, LONG = 200, 2_000
"""Steps: model calls and tool calls."""
TABLES = ("steps", "patches", "checkpoints", "events", "transitions", "accounts", "requests")
WORTH = 900.0
"""Seconds for the longer run, on a machine that is busy with other things."""


async def run(hold: Holdfast, steps: int) -> str:
    """Run an agent for so many steps, every second of which records a fact; return its task."""

    async def on(request: Request) -> Answer:
        turn = request.turn or 0
        return "done" if turn >= (steps - 1) // 2 else call("note", key=f"fact {turn}", size=40)

    model = ScriptedModel(on, usage=Usage(input_tokens=1, output_tokens=1))
    agent = hold.register(
        Agent(f"agent {steps}", model=model, tools=[note], builtins=False, checkpoint="every_step")
    )
    task = await hold.submit(agent, "Find out all there is.")
    async with hold.worker():
        await task.result(timeout=WORTH)
    made = [step for step in await hold.store.steps(task.id) if step.kind in {"llm", "tool"}]
    assert steps - 1 <= len(made) <= steps, len(made)
    assert len((await hold.state(task)).known_facts) == len(made) // 2
    return task.id


async def test_a_long_run_needs_no_more_room_for_a_step_than_a_short_one(tmp_path: Path) -> None:
    sizes: dict[int, int] = {}
    checkpoints: dict[int, int] = {}
    for steps in (SHORT, LONG):
        path = tmp_path / f"{steps}.db"
        async with Holdfast(f"sqlite:///{path}") as hold:
            empty = _vacuumed(path)
            task_id = await run(hold, steps)
            saved = await hold.store.checkpoints(task_id)
            checkpoints[steps] = sum(len(one.body) for one in saved)
        sizes[steps] = _vacuumed(path) - empty
    assert sizes[LONG] / LONG == pytest.approx(sizes[SHORT] / SHORT, rel=0.15)
    # The checkpoints alone, which hold the whole state again, are in proportion too.
    assert checkpoints[LONG] / LONG < 2 * checkpoints[SHORT] / SHORT


def _vacuumed(path: Path) -> int:
    """Return the bytes of a database without what is free in it."""
    target = path.with_suffix(".packed")
    target.unlink(missing_ok=True)
    connection = apsw.Connection(str(path))
    try:
        connection.execute("VACUUM INTO ?", (str(target),))
    finally:
        connection.close()
    return target.stat().st_size


async def test_so_it_is_on_a_server(emptied_database: EmptiedDatabase) -> None:
    rows: dict[int, int] = {}
    for steps in (100, 400):
        async with Holdfast(emptied_database.empty()) as hold:
            await run(hold, steps)
        with psycopg.connect(emptied_database.url) as connection:
            rows[steps] = sum(_stored(connection, table) for table in TABLES)
    assert rows[400] / 400 == pytest.approx(rows[100] / 100, rel=0.15)


def _stored(connection: psycopg.Connection, table: str) -> int:
    """Return the bytes of all rows of a table."""
    query = sql.SQL("SELECT coalesce(sum(pg_column_size(row.*)), 0) FROM {} AS row").format(sql.Identifier(SCHEMA, table))
    [size] = connection.execute(query).fetchone() or (0,)
    return int(size)
