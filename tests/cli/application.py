"""An application for the tests of the command line; its processes run in this folder."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holdfast import Context, Holdfast, Retry, SyncContext

hold = Holdfast()


@dataclass
class Order:
    item: str
    count: int
    at: datetime


@hold.task
async def greet(ctx: Context, name: str, times: int = 1) -> str:
    return await ctx.step("greet", lambda: f"hello {name}" * times)


@hold.task
async def double(ctx: Context, order: Order, *more: Order) -> Order:
    del ctx
    assert all(isinstance(one.at, datetime) for one in (order, *more))
    return Order(order.item, order.count * 2, order.at)


@hold.task(queue="mines", retry=Retry(max_attempts=1))
async def fail(ctx: Context) -> None:
    del ctx
    raise ValueError("no luck")


@hold.task
async def nap(ctx: Context, marker: str, first: float, later: float = 0.0) -> str:
    """Sleep ``first`` seconds in the first try at the step, which leaves a marker, and ``later`` in any other."""
    await ctx.step("nap", _nap, marker, first, later)
    return "slept"


async def _nap(marker: str, first: float, later: float) -> None:
    seconds = later if Path(marker).exists() else first
    Path(marker).touch()
    await asyncio.sleep(seconds)


@hold.task
async def gated(ctx: Context, marker: str, gate: str) -> str:
    """Leave a marker, and wait until a file is there."""
    await ctx.step("wait", _until_there, marker, gate)
    return "through"


async def _until_there(marker: str, gate: str) -> None:
    Path(marker).touch()
    while not Path(gate).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.02)


@hold.task
def hang(ctx: SyncContext, marker: str) -> None:
    ctx.step("hang", _hang, marker)


@hold.task
async def hang_in_executor(ctx: Context, marker: str) -> None:
    await ctx.step("hang", asyncio.to_thread, _hang, marker)


def _hang(marker: str) -> None:
    Path(marker).touch()
    time.sleep(600)
