"""What happens in the demo: two real workers, and a real SIGKILL for the first of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.cli.demo.application import FATAL_STEP, deploy, hold
from holdfast.cli.demo.ledger import Ledger, What, read
from holdfast.cli.demo.outcome import Outcome
from holdfast.cli.demo.stage import Stage
from holdfast.engine.handle import Handle
from holdfast.model.errors import HoldfastError, InvalidValue
from holdfast.model.ids import new_id

LEASE = 2.0
"""Seconds: short, so that nobody waits long for the take-over. A real worker takes 30."""

_PATIENCE = 30.0
_LOOK_EVERY = 0.05
_INTO_THE_STEP = 0.3
"""Seconds into the fatal step the kill comes."""


class Scenario:
    """One run of the demo."""

    def __init__(self, url: str, folder: Path, stage: Stage) -> None:
        """``folder`` takes what the workers leave outside the store."""
        self._url = url
        self._ledger_file = folder / "ledger.txt"
        self._words_file = folder / "workers.txt"
        self._queue = f"holdfast-demo-{new_id()}"  # one that nobody else works on
        self._stage = stage

    async def play(self) -> Outcome:
        """Submit a deployment, kill its worker, and let another one finish."""
        hold.url = self._url
        async with hold:
            if not hold.store.capabilities.multi_process:
                raise InvalidValue("the demo runs two worker processes; give it a sqlite: or postgresql: URL")
            with self._stage:
                handle = await hold.submit(deploy, "billing", str(self._ledger_file), queue=self._queue)
                self._stage.tell(f"submitted: task {handle.id}")
                with self._worker() as first:
                    await self._kill_in_the_fatal_step(first)
                with self._worker() as second:
                    await self._finish(handle, second)
            return Outcome(
                task=await handle.task(),
                steps=await hold.store.steps(handle.id),
                history=await hold.store.history(handle.id),
                ledger=self._ledger,
                killed=first.pid,
                finisher=second.pid,
            )

    async def _kill_in_the_fatal_step(self, worker: subprocess.Popen[bytes]) -> None:
        self._stage.tell(f"worker {worker.pid} starts, and claims the task")
        await self._until(worker, lambda: bool(self._ledger.pids(What.BEGAN, FATAL_STEP)))
        began = time.monotonic()
        await self._until(worker, lambda: time.monotonic() > began + _INTO_THE_STEP)
        worker.kill()
        worker.wait()
        self._stage.lose(worker.pid)
        self._stage.show(self._ledger)
        self._stage.tell(f"SIGKILL for worker {worker.pid}, in the middle of step 8, {FATAL_STEP}")

    async def _finish(self, handle: Handle[str], worker: subprocess.Popen[bytes]) -> None:
        self._stage.tell(f"worker {worker.pid} starts; it has to wait for the end of the dead one's lease")
        await self._until(worker, lambda: any(entry.pid == worker.pid for entry in self._ledger.entries))
        self._stage.tell(f"worker {worker.pid} takes over: completed steps replay, step 8 runs again")
        result = asyncio.create_task(handle.result(timeout=_PATIENCE))
        await self._until(worker, result.done)
        self._stage.show(self._ledger)
        self._stage.tell(f"completed: {await result}")
        worker.terminate()  # SIGTERM: it drains, and leaves
        await asyncio.to_thread(worker.wait)

    @contextmanager
    def _worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start ``holdfast worker``; whatever happens, it is gone after the block."""
        command = [sys.executable, "-m", "holdfast", "worker", "holdfast.cli.demo.application:hold"]
        command += ["--queues", self._queue, "--lease", str(LEASE), "--quiet"]
        # The URL may hold a password: it travels in the environment, not where `ps` shows it.
        environment = os.environ | {"HOLDFAST_DATABASE_URL": self._url}
        with (
            self._words_file.open("ab") as words,
            subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=words) as worker,  # noqa: S603
        ):
            self._stage.enter(worker.pid)
            try:
                yield worker
            finally:
                worker.kill()

    async def _until(self, worker: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
        """Show what goes on until something has happened."""
        give_up = time.monotonic() + _PATIENCE
        while not happened():
            if worker.poll() is not None or time.monotonic() > give_up:
                words = self._words_file.read_text(encoding="utf-8", errors="replace").strip()
                raise HoldfastError(f"worker {worker.pid} did not get on (exit code {worker.poll()}): {words}")
            self._stage.show(self._ledger)
            await asyncio.sleep(_LOOK_EVERY)

    @property
    def _ledger(self) -> Ledger:
        return read(self._ledger_file)
