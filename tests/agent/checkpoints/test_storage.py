"""Storage grows with the steps and not with their square: no step stores again what was stored before."""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg
from psycopg import sql

from holdfast import Agent, Holdfast, Request, ScriptedModel, Usage
from holdfast.agent.scripted import Answer, call
from tests.agent.checkpoints.support import note
from tests.store.contract.truncating import SCHEMA, EmptiedDatabase

SHORT, LONG = 200, 2_000
"""Steps: model calls and tool calls."""
TABLES = ("steps", "patches", "checkpoints", "events", "transitions", "accounts", "requests")
WORTH = 900.0
"""Seconds for the longer run, on a machine that is busy with other things."""


async def run(hold: Holdfast, steps: int) -> str:
    """Run an agent for so many steps, nine of ten of which record a fact; return its task."""

    async def on(request: Request) -> Answer:
        turn = request.turn or 0
        notes = [call("note", key=f"fact {turn}.{number}", size=40) for number in range(9)]
        return "done" if turn == steps // 10 else notes

    model = ScriptedModel(on, usage=Usage(input_tokens=1, output_tokens=1))
    agent = hold.register(Agent(f"agent {steps}", model=model, tools=[note], builtins=False, checkpoint="every_step"))
    task = await hold.submit(agent, "Find out all there is.")
    async with hold.worker():
        await task.result(timeout=WORTH)
    made = [step for step in await hold.store.steps(task.id) if step.kind in {"llm", "tool"}]
    assert len(made) == steps + 1
    assert len((await hold.state(task)).known_facts) == steps // 10 * 9
    return task.id


async def test_a_long_run_needs_no_more_room_for_a_step_than_a_short_one(tmp_path: Path) -> None:
    sizes: dict[int, int] = {}
    checkpoints: dict[int, int] = {}
    last: dict[int, int] = {}
    for steps in (SHORT, LONG):
        path = tmp_path / f"{steps}.db"
        async with Holdfast(f"sqlite:///{path}") as hold:
            empty = _vacuumed(path)
            task_id = await run(hold, steps)
            saved = await hold.store.checkpoints(task_id)
            checkpoints[steps] = sum(len(one.body) for one in saved)
            last[steps] = len(saved[-1].body)
        sizes[steps] = _vacuumed(path) - empty
    # Not more; less would be fine. What a task takes once is divided by more steps.
    assert sizes[LONG] / LONG <= 1.15 * sizes[SHORT] / SHORT
    # Nor do the checkpoints alone, each of which holds the whole state: all of them together are never more than a few
    # times the last.
    assert checkpoints[LONG] <= 3 * last[LONG]


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
    assert rows[400] / 400 <= 1.15 * rows[100] / 100


def _stored(connection: psycopg.Connection, table: str) -> int:
    """Return the bytes of all rows of a table."""
    query = sql.SQL("SELECT coalesce(sum(pg_column_size(row.*)), 0) FROM {} AS row").format(
        sql.Identifier(SCHEMA, table)
    )
    [size] = connection.execute(query).fetchone() or (0,)
    return int(size)
