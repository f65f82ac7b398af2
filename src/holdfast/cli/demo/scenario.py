"""What happens in the demo: two real workers, a real SIGKILL for the first of them, and one decision."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast import Handle
from holdfast.cli.demo.application import FATAL_STEP, GOAL, deploy, hold
from holdfast.cli.demo.ledger import What
from holdfast.cli.demo.outcome import Outcome
from holdfast.cli.demo.snapshot import Snapshot, look
from holdfast.cli.demo.stage import DemoStage
from holdfast.cli.demo.worker_processes import DemoWorkers
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.effect import EffectState
from holdfast.model.errors import HoldfastError, InvalidValue

DECIDER, NOTE = "the demo's script", "3 of 3 replicas are healthy"

_PATIENCE = 45.0
_LOOK_EVERY = 0.08
_TO_READ, _TO_DECIDE = 0.5, 1.2
"""Seconds to read: the armed effect before the kill, and the question before its answer."""


class Scenario:
    """One run of the demo."""

    def __init__(self, processes: DemoWorkers, stage: DemoStage, *, pace: float) -> None:
        """``pace`` is how many times slower than usual everything goes."""
        self._processes, self._stage, self._pace = processes, stage, pace
        self._handle: Handle[str]

    async def play(self, url: str, queue: str) -> Outcome:
        """Submit a deployment, kill its worker, let another one finish, and return what came of it."""
        hold.url = url
        async with hold:
            if not hold.store.capabilities.multi_process:
                raise InvalidValue("the demo runs two worker processes; give it a sqlite: or postgresql: URL")
            began = time.monotonic()
            with self._stage:
                self._handle = await hold.submit(deploy, GOAL, queue=queue)
                await self._kill_between_effect_and_record()
                await self._take_over_and_finish()
                last = await self._look()
            return Outcome(last=last, seconds=time.monotonic() - began)

    async def _kill_between_effect_and_record(self) -> None:
        worker = self._processes.start()
        await self._until(worker, _was_made)
        await self._until(worker, _passed(_TO_READ * self._pace))
        self._processes.kill(worker)
        await self._look()

    async def _take_over_and_finish(self) -> None:
        worker = self._processes.start()
        asked = await self._until(worker, lambda now: bool(_open(now)) or _is_over(now))
        for approval in _open(asked):
            await self._until(worker, _passed(_TO_DECIDE * self._pace))
            await hold.approve(approval.id, by=DECIDER, note=NOTE)
        await self._until(worker, _is_over)
        await asyncio.to_thread(self._processes.dismiss, worker)

    async def _until(self, worker: str, happened: Callable[[Snapshot], bool]) -> Snapshot:
        """Show what goes on until something has happened."""
        give_up = time.monotonic() + _PATIENCE * self._pace
        while not happened(now := await self._look()):
            gone = next(member.exit_code for member in now.processes if member.label == worker)
            if gone is not None or time.monotonic() > give_up:
                why = f"ended with exit code {gone}" if gone is not None else "did not get on"
                raise HoldfastError(
                    f"{worker} of the demo {why}: {self._processes.last_output(worker) or 'it printed nothing'}"
                )
            await asyncio.sleep(_LOOK_EVERY)
        return now

    async def _look(self) -> Snapshot:
        now = await look(self._handle, self._processes)
        self._stage.show(now)
        return now


def _passed(seconds: float) -> Callable[[Snapshot], bool]:
    """Return a condition that is true once some time has passed."""
    until = time.monotonic() + seconds
    return lambda _now: time.monotonic() >= until


def _was_made(now: Snapshot) -> bool:
    """Return whether the ledger has the call that the journal has only as an intent."""
    effect = now.effect(FATAL_STEP)
    armed = effect is not None and effect.state is EffectState.ARMED
    return armed and bool(now.world.pids(What.DID, FATAL_STEP))


def _open(now: Snapshot) -> list[Approval]:
    return [approval for approval in now.approvals if approval.state is ApprovalState.OPEN]


def _is_over(now: Snapshot) -> bool:
    """Return whether the task ended, or waits for a person to settle a doubt."""
    return now.task.state.is_terminal or any(doubt.decisions for doubt in now.doubts)
