"""Measure walks through the code: how many files one call of a user passes, and how often it moves to another file.

    python scripts/walks.py                     on SQLite
    python scripts/walks.py --postgres          also a step on a separate PostgreSQL server
    PYTHONPATH=other/src python scripts/walks.py       for another version

A reader who follows a call with a debugger takes this walk. A hop is a call or a return that leads into another file,
or another layer. Calls of background tasks that run at the same time are counted, so the figures vary a little;
each walk is made several times, and the shortest counts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import holdfast
from holdfast import Agent, Context, Holdfast, ScriptedModel, tool
from holdfast.agent.scripted import call

SOURCE = str(Path(holdfast.__file__).parent) + "/"
TIMES = 5
PATIENCE = 60.0


@dataclass
class Walk:
    """The files that a call passed."""

    files: set[str] = field(default_factory=set)
    hops: int = 0
    layer_hops: int = 0
    _at: str | None = None

    def note(self, file: str) -> None:
        """Record that the call is now in this file."""
        if self._at is not None and file != self._at:
            self.hops += 1
            self.layer_hops += layer(file) != layer(self._at)
        self._at = file
        self.files.add(file)

    @property
    def layers(self) -> int:
        """How many layers the call passed."""
        return len({layer(file) for file in self.files})

    def __str__(self) -> str:
        """Return it as a row of a table."""
        return f"{len(self.files)} / {self.layers}, {self.hops} / {self.layer_hops}"


def layer(file: str) -> str:
    """Return the first folder below the package."""
    return file.split("/", 1)[0]


@contextmanager
def recorded() -> Iterator[Walk]:
    """Record what runs in this process until the block ends."""
    walk = Walk()

    def look(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCE):
            walk.note(file.removeprefix(SOURCE))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def shortest(walk: Callable[[], Awaitable[Walk]]) -> Walk:
    """Take a walk several times: the first time includes preparation."""
    return min([await walk() for _ in range(TIMES)], key=lambda one: one.hops)


async def submit(hold: Holdfast) -> Walk:
    """Submit a task."""
    with recorded() as walk:
        await hold.submit("work")
    return walk


async def step(hold: Holdfast) -> Walk:
    """Do the second step of a task."""
    walks: list[Walk] = []

    async def nothing() -> None: ...

    async def two_steps(ctx: Context) -> None:
        await ctx.step("first", nothing)
        with recorded() as walk:
            await ctx.step("second", nothing)
        walks.append(walk)

    name = f"two-steps-{id(walks)}"
    hold.task(name=name)(two_steps)
    handle = await hold.submit(name)
    async with hold.worker():
        await handle.result(timeout=PATIENCE)
    return walks[0]


@tool(risk="external_action", effect="idempotent")
def deploy(service: str) -> str:
    """Deploy a service."""
    return f"{service} is deployed"


async def ask(hold: Holdfast) -> tuple[Walk, Walk]:
    """Run an agent until it waits for an approval; approve it."""
    model = ScriptedModel([call("deploy", service="billing"), "Done."])
    agent = Agent(f"deployer-{id(model)}", tools=[deploy], model=model, approve=["external_action"])
    handle = await hold.submit(hold.register(agent), "Deploy billing.")
    with recorded() as walk:
        async with hold.worker():
            while not (asked := await hold.approvals(task=handle)):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.005)
    with recorded() as decision:
        await hold.approve(asked[0].id, by="ada")
    return walk, decision


async def hand_over(hold: Holdfast) -> tuple[Walk, Walk]:
    """Claim a task over MCP, and complete a step of it."""
    from mcp import Client  # noqa: PLC0415 - slow to import

    from holdfast.mcp.server import McpServer  # noqa: PLC0415
    from holdfast.service.access import EVERYTHING, Caller  # noqa: PLC0415
    from holdfast.service.service import Service  # noqa: PLC0415

    server = McpServer(Service(hold), caller=Caller("ada", EVERYTHING))
    async with Client(server.protocol) as client:
        await client.call_tool("submit_task", {"goal": "Free the disk"})
        with recorded() as claim:
            claimed = await client.call_tool("claim_task", {})
        lease = claimed.structured_content["lease"]
        with recorded() as completion:
            done = await client.call_tool("complete_step", {"lease": lease, "key": "look", "output": "full"})
        assert not done.is_error, done.structured_content  # noqa: S101 - otherwise it would be another walk
    return claim, completion


def show(url: str, task_id: str) -> Walk:
    """Show a task in the terminal."""
    from holdfast.cli.application import app  # noqa: PLC0415 - slow to import

    with recorded() as walk, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = app(["show", task_id, "--database-url", url], standalone_mode=False)
    assert not code  # noqa: S101 - see above
    return walk


async def walks_in(url: str) -> dict[str, Walk]:
    """Take the walks on a new store."""
    hold = Holdfast(url)

    async def pair(walk: Callable[[Holdfast], Awaitable[tuple[Walk, Walk]]]) -> tuple[Walk, Walk]:
        both = [await walk(hold) for _ in range(TIMES)]
        return min((one for one, _ in both), key=lambda w: w.hops), min((one for _, one in both), key=lambda w: w.hops)

    @hold.task
    async def work(_: Context) -> None: ...

    async with hold:
        found = {"hold.submit": await shortest(lambda: submit(hold)), "ctx.step": await shortest(lambda: step(hold))}
        found["agent: claim until suspended on an approval"], found["hold.approve"] = await pair(ask)
        found["MCP claim_task"], found["MCP complete_step"] = await pair(hand_over)
    return found


async def step_on_postgres() -> Walk:
    """Take the walk of a step on PostgreSQL."""
    from tests.postgres_server import start_postgres  # noqa: PLC0415 - only here

    with start_postgres(18) as server:
        async with Holdfast(server.create_database()) as hold:
            return await shortest(lambda: step(hold))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", action="store_true", help="a step on PostgreSQL, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/walks.db"
        found = asyncio.run(walks_in(url))

        async def submitted() -> str:
            async with Holdfast(url) as hold:
                return (await hold.submit("work", queue="default")).id

        task_id = asyncio.run(submitted())
        found["holdfast show"] = min((show(url, task_id) for _ in range(TIMES)), key=lambda walk: walk.hops)
    if options.postgres:
        found["ctx.step, PostgreSQL"] = asyncio.run(step_on_postgres())
    sys.stdout.write("| walk | files / layers, hops between files / layers |\n|---|---|\n")
    for name, walk in found.items():
        sys.stdout.write(f"| {name} | {walk} |\n")


if __name__ == "__main__":
    main()
