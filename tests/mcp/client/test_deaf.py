"""A started server that goes deaf, mute or away: once that is known no call is sent to it, and nothing is left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from holdfast.mcp.client import connection
from holdfast.mcp.client.reach import Reach
from holdfast.mcp.client.servers import Command
from tests.engine.support import until
from tests.mcp.client.support import HERE, PATIENCE

SOON = 4.0
"""Seconds: a quarter of it is what a server has to answer a probe here."""


@pytest.fixture
def children(tmp_path: Path) -> Path:
    return tmp_path / "children"


@pytest.fixture
async def reached(children: Path) -> AsyncIterator[Reach]:
    reached = Reach(Command((sys.executable, str(HERE / "moody_server.py"), str(children))))
    await reached.listing(within=PATIENCE)
    yield reached
    await reached.close()


async def order(reached: Reach, what: str, *, within: float = PATIENCE) -> int:
    """Return the id of the process that obeyed."""
    return int(str((await reached.call("go", {"order": what}, {}, within=within)).data))


async def give_up(reached: Reach, what: str, used: connection.ServerConnection) -> None:
    """Call, and stop waiting once it was sent, as the engine does when a tool's time is over."""
    calling = asyncio.create_task(order(reached, what))
    await until(lambda: len(used._client.session._dispatcher._pending) == 1, patience=PATIENCE)  # type: ignore[attr-defined]
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def until_gone(*processes: int) -> None:
    def is_gone(process: int) -> bool:
        try:
            return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    await until(lambda: all(map(is_gone, processes)), patience=PATIENCE)


async def test_bytes_that_are_not_a_message_are_skipped(reached: Reach) -> None:
    first = await order(reached, "noise")
    assert await order(reached, "noise") == first


async def test_a_server_that_hung_is_replaced_before_the_next_call(
    reached: Reach, children: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await order(reached, "noise")
    used = reached._connection
    assert used is not None
    await give_up(reached, "hang", used)
    sent: list[connection.ServerConnection] = []
    call = connection.ServerConnection.call

    async def note(self: connection.ServerConnection, *rest: object) -> object:
        sent.append(self)
        return await call(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(connection.ServerConnection, "call", note)
    monkeypatch.setattr("holdfast.mcp.client.reach.PROBE", SOON / 4)
    second, third = await asyncio.gather(order(reached, "noise"), order(reached, "noise"))
    assert second == third != first
    assert used not in sent
    await until(lambda: children.exists() and children.read_text().endswith("\n"), patience=PATIENCE)
    await until_gone(first, int(children.read_text()))


async def test_a_server_that_forgot_a_call_and_answers_is_kept(reached: Reach) -> None:
    first = await order(reached, "noise")
    used = reached._connection
    assert used is not None
    await give_up(reached, "forget", used)
    assert await order(reached, "noise") == first
    assert not used._is_doubted


async def test_a_server_that_ends_between_calls_is_replaced_with_all_its_children(
    reached: Reach, children: Path
) -> None:
    for what in ("close", "leave"):
        used = reached._connection
        first = await order(reached, what)
        assert used is not None
        await until(lambda used=used: used.is_over, patience=PATIENCE)  # type: ignore[misc]
        assert await order(reached, "noise") != first
        await until_gone(first, int(children.read_text().split()[-1]))


async def test_a_server_that_is_known_to_be_gone_gets_no_call(reached: Reach) -> None:
    """Even before the end of its output was read."""
    first = await order(reached, "noise")
    used = reached._connection
    assert used is not None
    psutil.Process(first).kill()
    while not used._health.has_exited():  # without an await: nothing else has run when the call is made
        pass
    assert not used._health.ended.is_set()
    assert await order(reached, "noise") != first


async def test_closing_ends_what_was_replaced(reached: Reach, children: Path) -> None:
    used = reached._connection
    assert used is not None
    await give_up(reached, "hang", used)
    first = used._health
    used.retire()
    assert await order(reached, "noise")
    await reached.close()
    assert first.has_exited()
    await until_gone(int(children.read_text()))
