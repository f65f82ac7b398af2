"""The errand that every engine runs: an order in five steps, three of which do something to the world outside.

The world is a `holdfast.testing.ledger`, called over plain HTTP. The work of a step is written once, here, so that only
the engine around it differs. A worker prints where it is on standard output, each line in one write, so that the
benchmark can choose the moment of the kill:

    enter ORDER STEP       a step's function is running
    answered ORDER STEP    its call was answered, and the engine does not know it yet
    done ORDER             the engine reports the order as completed
    failed ORDER REASON    the engine reports that it gave up
    doubt ORDER.STEP       the engine reports that it does not know whether the call was made
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

STEPS = ("check", "reserve", "charge", "ship", "report")
CALLS = ("reserve", "charge", "ship")


@dataclass(frozen=True, kw_only=True)
class Errands:
    """What a worker is asked to do: the second argument of its process, as JSON. The first one is its database."""

    orders: list[str]
    port: int
    """Of the ledger."""
    prepare_ms: float = 10
    """Between the beginning of a step and its call."""
    delay_before_ms: float = 15
    """Between the arrival of a call and its effect."""
    delay_after_ms: float = 15
    """Between its effect and the answer."""
    mode: str = ""
    """A mode of the engine, if it has several."""


def read_arguments() -> tuple[str, Errands]:
    """Return the database, and the errands."""
    database, errands = sys.argv[1:]
    return database, Errands(**json.loads(errands))


def say(*words: str) -> None:
    """Print a line for the process that started this one."""
    os.write(sys.stdout.fileno(), (" ".join(words) + "\n").encode())


def business_key(order: str, step: str) -> str:
    """Return the key of this effect, the same for every worker and every try."""
    return f"{order}.{step}"


async def perform(errands: Errands, order: str, step: str) -> str:
    """Do one step."""
    say("enter", order, step)
    if step in CALLS:
        await asyncio.sleep(errands.prepare_ms / 1000)
        await _call(errands, business_key(order, step), step)
        say("answered", order, step)
    return f"{order} {step}"


async def run_all(errands: Errands, run: Callable[[str], Awaitable[object]]) -> None:
    """Run one order after the other."""
    for order in errands.orders:
        try:
            await run(order)
        except Exception as error:  # noqa: BLE001 - the engine has given up, with any kind of error
            say("failed", order, type(error).__name__, " ".join(str(error).split()))
        else:
            say("done", order)


async def was_called(errands: Errands, key: str) -> bool:
    """Ask the ledger whether a call with this key was ever made."""
    return await _request(errands.port, "GET", f"/calls/{key}") != b"[]"


async def _call(errands: Errands, key: str, name: str) -> None:
    delays = f"delay_before_ms={errands.delay_before_ms}&delay_after_ms={errands.delay_after_ms}"
    body = json.dumps({"name": name, "body": None, "caller": os.getpid()})
    await _request(errands.port, "POST", f"/calls/{key}?{delays}", body)


async def _request(port: int, method: str, target: str, body: str = "") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{method} {target} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if head.split()[1:2] != [b"200"]:
        raise ConnectionError("the ledger did not answer")
    return answer
