"""A worker is killed in the middle of a step that has a timeout, and another one comes later than that timeout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

from holdfast import Handle, Holdfast, StepState
from holdfast.store.clock import SystemClock
from tests.engine.support import PATIENCE, steps_of, until
from tests.proof.engine import timed_step
from tests.proof.engine.processes import CLONE

LATER = 3600.0
"""Seconds: for how long no worker is there. More than the timeout of the step."""


class LaterClock(SystemClock):
    """The machine's clock an hour from now: what has to wait in reality need not wait here."""

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=LATER)

    def boot(self) -> float:
        return super().boot() + LATER


async def test_a_step_that_was_cut_off_by_a_kill_is_called_again_after_its_timeout(tmp_path: Path) -> None:
    url, calls = f"sqlite:///{tmp_path}/hold.db", tmp_path / "calls"
    assert timed_step.TIMEOUT < LATER
    async with timed_step.define(Holdfast(url), tmp_path) as hold:
        handle: Handle[str] = await hold.submit("agent")
        with subprocess.Popen(
            [sys.executable, "-m", timed_step.__name__, url, tmp_path], stdin=subprocess.DEVNULL, cwd=CLONE
        ) as process:

            async def is_noted() -> bool:
                assert process.poll() is None
                step = (await steps_of(hold, handle)).get("llm")
                return step is not None and step.state is StepState.RUNNING

            try:
                await until(is_noted)
            finally:
                process.kill()
                ended = process.wait(PATIENCE)
    assert ended == -signal.SIGKILL
    async with timed_step.define(Holdfast(url, clock=LaterClock()), tmp_path) as hold, hold.worker():
        assert await hold.handle(handle.id).result(timeout=PATIENCE) == "answer"
        assert (await steps_of(hold, handle))["llm"].attempts == 2
    assert calls.read_text().split() == [str(process.pid), str(os.getpid())]
