"""A SQLite schema that is ready: set up once in each test process, and copied for every test that needs an empty store.

Setting it up is the dearest part of most small tests. What sets up, upgrades or refuses a file takes a path where
nothing is yet.
"""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import apsw

from holdfast import open_store


def new_file(path: Path) -> Path:
    """Make a file with an empty store in it, as readable to others as a store makes its own; return its path."""
    path.touch(0o600, exist_ok=False)
    path.write_bytes(_image())
    return path


@cache
def _image() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        with ThreadPoolExecutor(1) as apart:  # the test may have an event loop of its own
            apart.submit(asyncio.run, _set_up(path)).result()
        connection = apsw.Connection(str(path))
        connection.pragma("user_version", 0)  # each copy begins epochs of its own, as a new file does
        connection.pragma("wal_checkpoint(truncate)")
        connection.close()
        return path.read_bytes()


async def _set_up(path: Path) -> None:
    async with open_store(f"sqlite:///{path}"):
        pass
