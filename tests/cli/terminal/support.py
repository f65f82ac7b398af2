"""The command of the application in this folder."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from holdfast import Handle, Holdfast, TaskState
from tests.cli.project import support
from tests.cli.terminal import application

FOLDER = Path(__file__).parent
APPLICATION = "application:hold"


def holdfast(*arguments: str, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with this store; whatever happens, it prints no traceback."""
    return support.holdfast(FOLDER, *arguments, check=False, HOLDFAST_DATABASE_URL=url, **environment)


def read(*arguments: str, url: str) -> Any:  # noqa: ANN401
    """Return what a command that succeeds prints with --json. Strictly: NaN and Infinity are not JSON."""
    answer = holdfast(*arguments, "--json", url=url)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout, parse_constant=_refuse)


def submit(*arguments: str, url: str) -> str:
    """Submit a task; return its id."""
    return str(read("submit", APPLICATION, *arguments, url=url)["id"])


def run(*arguments: str, url: str, code: int = 0) -> str:
    """Run a task to its end; return its id."""
    answer = holdfast("run", APPLICATION, *arguments, "--json", url=url)
    assert answer.returncode == code, answer.stderr
    return str(json.loads(answer.stdout)["id"])


async def bring(url: str, name: str, *args: Any, to: TaskState) -> str:  # noqa: ANN401
    """Submit a task and let a worker bring it to a state; return its id. No worker is left."""
    hold = Holdfast(url)
    for known in application.hold.definitions.names:
        definition = application.hold.definitions.get(known)
        assert definition is not None
        hold.register(definition)
    async with hold:
        handle: Handle[Any] = await hold.submit(name, *args)
        async with hold.worker():
            while (await handle.task()).state is not to:  # noqa: ASYNC110 - the store knows
                await asyncio.sleep(0.02)
    return handle.id


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
