"""A worker that can be killed inside the process, as with SIGKILL, and whose attempts can be watched.

The engine's own classes do all the work; these only watch, and die where the test asks. A killed worker's attempts stop
at their next await and write nothing more. No task is handed back and the worker does not retire, so its lease has to
expire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.engine.api.definition import TaskDefinition
from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.attempt.outbox import Outbox, TransactedWork
from holdfast.engine.attempt.steps_under_way import StepsUnderWay
from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.runtime.committer import Committer
from holdfast.engine.runtime.services import Services
from holdfast.engine.steps.call import StepLine
from holdfast.engine.worker.host import Host
from holdfast.engine.worker.worker import Worker
from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.model.effect import Evidence
from holdfast.model.operations import Operation
from holdfast.model.step import Step, StepState
from holdfast.model.worker import Claimed
from holdfast.store.base import StateStore
from holdfast.store.transaction import StoreTransaction
from holdfast.testing.crashes import CrashPlan, Moment, steps_ended_by
from holdfast.testing.pulse import Pulse
from holdfast.testing.trace import Recorder

T = TypeVar("T")

KILL_TIMEOUT = 1.0
"""Real seconds for the code of a killed attempt to end, if it catches its cancellation."""


@dataclass(slots=True)
class Stage:
    """Shared by the sandbox and everything it watches."""

    pulse: Pulse = field(default_factory=Pulse)
    plan: CrashPlan = field(default_factory=CrashPlan)
    recorder: Recorder = field(default_factory=Recorder)
    dead: set[str] = field(default_factory=set)
    """The incarnations that were killed."""


class WatchedAttempt(Attempt):
    """An attempt that reports what it does, and kills its worker where the plan asks."""

    __slots__ = ("_host", "stage")

    def __init__(self, host: KillableHost, stage: Stage, *args: Any) -> None:  # noqa: ANN401 - Attempt's own
        """``args`` are those of every attempt."""
        super().__init__(*args)
        self._host = host
        self.stage = stage
        self.outbox = WatchedOutbox(self)
        self.under_way = WatchedSteps(self)
        stage.pulse.beat()

    @property
    def is_busy(self) -> bool:
        """Whether it takes real time: its code runs, and does not just wait through ``ctx``."""
        branches = self.residence.branches
        return bool(self.under_way.keys) or branches is None or branches.is_empty

    def find(self, key: str, kind: str) -> Step | None:
        """See Attempt."""
        found = super().find(key, kind)
        if found is not None and found.state is StepState.COMPLETED:
            self.stage.recorder.replayed(self.task.id, key)
        return found

    @property
    def leaves_calls_running(self) -> bool:
        """See Attempt. In a killed process, no call continues."""
        return self.over and not self._host.is_dead

    async def add_evidence(self, evidence: Evidence) -> None:
        """See Attempt. A dead worker reports nothing."""
        if not self._host.is_dead:
            await super().add_evidence(evidence)

    def die_if_planned(self, moment: Moment) -> None:
        """Kill the worker, and with it this attempt, if this is the planned moment."""
        if self.stage.plan.happens_at(moment):
            self._host.kill()
            raise Unwind


class WatchedSteps(StepsUnderWay):
    """The steps of a watched attempt."""

    __slots__ = ("_watched",)

    def __init__(self, attempt: WatchedAttempt) -> None:
        """See StepsUnderWay."""
        super().__init__(attempt)
        self._watched = attempt

    def begin(self, line: StepLine) -> None:
        """See StepsUnderWay. The step's function is called next."""
        attempt = self._watched
        attempt.die_if_planned(Moment(when="before_effect", steps=frozenset({line.key})))
        attempt.stage.recorder.ran(attempt.task.id, line.key)
        super().begin(line)
        attempt.stage.pulse.beat()

    def end(self, line: StepLine) -> None:
        """See StepsUnderWay."""
        super().end(line)
        self._watched.stage.pulse.beat()


class WatchedOutbox(Outbox):
    """What a watched attempt writes."""

    __slots__ = ("_watched",)

    def __init__(self, attempt: WatchedAttempt) -> None:
        """See Outbox."""
        super().__init__(attempt)
        self._watched = attempt

    async def commit(self, *operations: Operation) -> Verdict:
        """See Outbox."""
        attempt, stage = self._watched, self._watched.stage
        if attempt.over:
            raise Unwind
        number, steps = stage.recorder.sent(), steps_ended_by(operations)
        attempt.die_if_planned(Moment(when="after_effect", steps=steps, commit=number))
        with stage.pulse.asking():
            verdict = await super().commit(*operations)
        stage.pulse.beat()
        attempt.die_if_planned(Moment(when="after_commit", steps=steps, commit=number))
        return verdict

    async def transact(self, work: TransactedWork[T], *, timeout: float) -> T:
        """See Outbox. It counts as a normal Commit, with its function as the effect."""
        attempt, stage = self._watched, self._watched.stage
        number: int | None = None
        steps: frozenset[str] = frozenset()

        async def watched(transaction: StoreTransaction) -> tuple[T, tuple[Operation, ...]]:
            nonlocal number, steps
            value, operations = await work(transaction)
            number, steps = number or stage.recorder.sent(), steps_ended_by(operations)
            attempt.die_if_planned(Moment(when="after_effect", steps=steps, commit=number))
            return value, operations

        with stage.pulse.asking():
            value = await super().transact(watched, timeout=timeout)
        stage.pulse.beat()
        attempt.die_if_planned(Moment(when="after_commit", steps=steps, commit=number))
        return value


class KillableHost(Host):
    """Runs watched attempts, and can be killed."""

    def __init__(self, stage: Stage, services: Services, **options: Any) -> None:  # noqa: ANN401 - Host's own
        """``options`` are those of every host."""
        super().__init__(services, **options)
        self._stage = stage
        self._killed: list[asyncio.Task[None]] = []
        self.on_death: Callable[[], None] = lambda: None

    def make_attempt(self, claimed: Claimed, definition: TaskDefinition[..., Any]) -> Attempt:
        """See Host."""
        return WatchedAttempt(self, self._stage, claimed, definition, self.lease, self.services, self.slots)

    @property
    def is_busy(self) -> bool:
        """Whether any attempt runs code that takes real time."""
        return any(isinstance(attempt, WatchedAttempt) and attempt.is_busy for attempt in self.attempts.values())

    @property
    def is_dead(self) -> bool:
        """Whether it was killed."""
        return self.lease.worker_id in self._stage.dead

    def kill(self) -> None:
        """Die: no attempt continues, no heartbeat is sent, no task is handed back."""
        if self.is_dead:
            return
        self._stage.dead.add(self.lease.worker_id)
        self._killed = [*self._running.values(), *self._beating]
        self.abandon("its worker was killed")
        for task in self._killed:
            task.cancel()
        self.on_death()
        self._stage.pulse.beat()

    async def stop(self, grace: float) -> None:
        """See Host. A dead host finishes nothing; only wait for its cancelled tasks."""
        if not self.is_dead:
            await super().stop(grace)
        elif self._killed:
            await asyncio.wait(self._killed, timeout=KILL_TIMEOUT)


class KillableWorker(Worker):
    """A worker that can be killed."""

    def __init__(self, stage: Stage, services: Services, *, lease: float, label: str, **options: Any) -> None:  # noqa: ANN401
        """``options`` are those of every worker."""
        super().__init__(services, lease=lease, label=label, **options)
        self._stage = stage
        self._killable_host = KillableHost(
            stage,
            services,
            lease=lease,
            label=label,
            details={},
            on_free=self._freed,
            slots=self._concurrency,
        )
        self._killable_host.on_death = self._claim_no_more
        self._host = self._killable_host

    @property
    def is_busy(self) -> bool:
        """Whether it runs code that takes real time."""
        return self._killable_host.is_busy

    @property
    def is_dead(self) -> bool:
        """Whether it was killed."""
        return self._killable_host.is_dead

    def kill(self) -> None:
        """Die, as if the process had received SIGKILL."""
        self._killable_host.kill()

    async def _sweep(self) -> None:
        with self._stage.pulse.asking():
            await super()._sweep()

    async def _fill(self) -> bool:
        with self._stage.pulse.asking():
            return await super()._fill()

    def _claim_no_more(self) -> None:
        if self._work is not None:
            self._work.cancel()


class KillableCommitter(Committer):
    """Sends the Commits of living workers. A Commit that a dead worker had not sent yet is lost."""

    def __init__(self, store: StateStore, stage: Stage) -> None:
        """Commit to this store."""
        super().__init__(store)
        self._stage = stage
        self._store = store
        self._send = self._send_for_live_workers

    async def _send_for_live_workers(self, commits: Sequence[Commit]) -> list[Verdict]:
        lost = [self._is_from_dead_worker(commit) for commit in commits]
        living = [commit for commit, is_lost in zip(commits, lost, strict=True) if not is_lost]
        verdicts = iter(await self._store.commit(living) if living else [])
        return [
            Verdict(task_id=commit.task_id, refusal=Refusal.SUPERSEDED, detail="its worker was killed")
            if is_lost
            else next(verdicts)
            for commit, is_lost in zip(commits, lost, strict=True)
        ]

    def _is_from_dead_worker(self, commit: Commit) -> bool:
        return isinstance(commit.guard, Held) and commit.guard.owner in self._stage.dead
