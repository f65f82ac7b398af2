"""A store with something in it to be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast import Holdfast
from holdfast.engine.outside import offer

GOAL: Final = "Find out why the build is slow"
FACTS_ABOUT: Final = "123"
"""The suites look for this in what they read from a template."""
PICTURE: Final = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
"""The beginning of a PNG: bytes that are not text."""


@dataclass(frozen=True, slots=True)
class Stock:
    """What is in the store, by its ids."""

    url: str
    task: str
    picture: str


async def fill(url: str) -> Stock:
    """Make a store with one task, one artifact and one fact."""
    async with Holdfast(url) as hold:
        task = await offer(hold, GOAL, by="cli:ann", plan=["measure", "report"])
        picture = await hold.artifacts.write(PICTURE, media_type="image/png")
        await hold.memory.store(FACTS_ABOUT, "kind", "order")
    return Stock(url, task.id, picture.id)
