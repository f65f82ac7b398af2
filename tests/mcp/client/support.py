"""Servers as real processes, and the calls that were really made."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import Handle, Holdfast, TaskDefinition
from tests.postgres_server import free_port

HERE = Path(__file__).parent
PATIENCE = 120.0
"""Seconds: starting a server takes most of one on an idle machine, and ten on a busy one."""


class World:
    """A server with tools, and the calls it wrote down.

    Over stdio it is ``small_world.py``, which starts at once. ``sdk_command`` and HTTP use the SDK's server.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "calls.jsonl"
        self.gate = self.file.with_suffix(".gate")

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-I", str(HERE / "small_world.py"), str(self.file)]

    @property
    def sdk_command(self) -> list[str]:
        return [sys.executable, str(HERE / "world_server.py"), str(self.file)]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Each whole line; the last one may be being written."""
        lines = self.file.read_text().split("\n")[:-1] if self.file.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def called(self) -> list[str]:
        return [call["tool"] for call in self.calls]

    @contextmanager
    def over_http(self, port: int | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        port = port or free_port()
        with running([*self.sdk_command, str(port)], port) as process:
            yield f"http://127.0.0.1:{port}/mcp", process


async def finished(hold: Holdfast, agent: TaskDefinition[..., str]) -> Handle[str]:
    """Submit to an agent, and return when a worker has done it, with whatever servers it started."""
    handle = await hold.submit(agent, "go")
    async with hold.worker(concurrency=10):
        await handle.result(timeout=PATIENCE)
    return handle


def old_command() -> list[str]:
    return [sys.executable, str(HERE / "old_server.py")]


@contextmanager
def old_over_http(trouble: Mapping[str, Any] | None = None) -> Iterator[str]:
    port = free_port()
    with running([*old_command(), str(port)], port, {"MISBEHAVE": json.dumps(dict(trouble or {}))}):
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def running(
    command: list[str], port: int, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, env=dict(environment or {}), stderr=subprocess.PIPE) as process:
        try:
            give_up_at = time.monotonic() + PATIENCE
            while True:
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < give_up_at, "it does not listen"
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield process
        finally:
            process.kill()
