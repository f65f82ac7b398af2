"""``holdfast serve`` in real processes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.cli.project.support import PATIENCE, clean_environment, holdfast
from tests.forked_program import ForkedProgram
from tests.forkserver import preload

preload("holdfast.cli.application", "holdfast.store.sqlite", "holdfast.mcp.server", "holdfast.web.server_process")

STAND_IN = Path(__file__).with_name("stand_in.py")
SECRET = "correct-horse-battery-staple"  # noqa: S105
OTHER = "another-horse-another-staple"


class Served:
    """A server that has printed where it listens."""

    def __init__(self, process: ForkedProgram, words: Path) -> None:
        self.process, self._words = process, words

    @property
    def said(self) -> str:
        return self._words.read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        found = re.search(r"MCP is at (\S+)/mcp", self.said)
        assert found, self.said
        return found[1]

    def get(self, path: str, **options: Any) -> httpx2.Response:  # noqa: ANN401
        return httpx2.get(f"{self.url}{path}", timeout=PATIENCE, **options)

    def call(self, token: str | None = SECRET, **headers: str) -> httpx2.Response:
        """Call /mcp."""
        return httpx2.post(f"{self.url}/mcp", headers=bearer(token) | headers, timeout=PATIENCE)

    def until(self, happened: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE
        while not happened():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < give_up, self.said
            time.sleep(0.02)

    def stop(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def make_store(folder: Path) -> str:
    """Make an empty store; return its URL."""
    url = f"sqlite:///{folder}/hold.db"
    holdfast(folder, "migrate", check=True, HOLDFAST_DATABASE_URL=url)
    return url


def without_modules(modules: Sequence[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where these modules are not installed, as far as it can tell."""
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *more: None if name in {list(modules)!r} else find(name, *more)\n"
        "from holdfast.cli import main\n"
        f"sys.argv = {['holdfast', *arguments]!r}\n"
        "main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=clean_environment(),
        timeout=PATIENCE,
    )


@contextmanager
def serving(
    folder: Path, url: str, *options: str, program: str | Path = STAND_IN, **environment: str
) -> Iterator[Served]:
    """Start a server on a free port; it is gone after the block."""
    words = folder / f"serve-{time.monotonic_ns()}.txt"
    settings = clean_environment(HOLDFAST_DATABASE_URL=url, **environment)
    words.touch()
    with ForkedProgram(
        program, "serve", "--port", "0", *options, folder=folder, stdout=words, stderr=words, environment=settings
    ) as process:
        served = Served(process, words)
        try:
            # What comes after its address is printed in further lines; the last one is about tokens.
            served.until(lambda: "MCP is at " in served.said and re.search("tokens: |Bearer ", served.said) is not None)
            yield served
        finally:
            process.kill()
