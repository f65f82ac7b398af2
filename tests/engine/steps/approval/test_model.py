"""Approvals against a small model of them: whatever is done in whichever order, the records are those of the model."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from holdfast import Approval, Conflict, Context, Handle, Holdfast, InvalidValue, TaskState
from holdfast.testing import Sandbox, sandbox
from tests.engine.steps.approval.support import ONE_TRY, all_approvals, stored

TASKS, EVENTS = 3, 15
"""For each seed, and for each of its tasks."""


@dataclass
class Record:
    """One question, as it should be stored."""

    details: int
    expires_at: datetime | None
    state: str = "open"
    by: str | None = None


@dataclass
class Model:
    """One task that asks for one thing, and what should become of it."""

    deciders: tuple[str, ...]
    expires: float | None
    default: str
    deployed: int = 1
    """The details that the code asks about now."""
    task: str = "waiting"
    records: list[Record] = field(default_factory=list)

    @property
    def open(self) -> Record | None:
        return next((record for record in self.records if record.state == "open"), None)

    def ask(self, now: datetime) -> None:
        expires_at = None if self.expires is None else now + timedelta(seconds=self.expires)
        self.records.append(Record(self.deployed, expires_at))
        self.task = "waiting"

    def decide(self, state: str, by: str, now: datetime) -> bool:
        """Say whether the decision counts."""
        if self.open is None or (self.deciders and by not in self.deciders):
            return False
        self._end(self.open, state, by, now)
        return True

    def pass_time(self, now: datetime) -> None:
        if (record := self.open) is not None and record.expires_at is not None and record.expires_at <= now:
            self._end(record, "expired", None, record.expires_at)

    def run_again(self, now: datetime) -> None:
        if (record := self.open) is not None and record.details != self.deployed:
            record.state, record.by = "void", "the engine"
            self.ask(now)

    def cancel(self) -> None:
        if self.open is not None:
            self.open.state = "closed"
        if self.task == "waiting":
            self.task = "cancelled"

    def _end(self, record: Record, state: str, by: str | None, now: datetime) -> None:
        record.state, record.by = state, by
        if record.details != self.deployed:  # that was about something else
            self.ask(now)
            return
        holds = self.default if state == "expired" else state
        self.task = "completed" if holds == "approved" else "failed"


@dataclass
class Play:
    """The model and the engine, side by side."""

    box: Sandbox
    handle: Handle[int]
    model: Model
    random: Random
    happened: Counter[str] = field(default_factory=Counter)

    async def act(self) -> None:
        acts: list[Callable[[], object]] = [
            *(self.decide, self.decide, self.decide, self.answer),
            *(self.pass_time, self.pass_time, self.redeploy, self.redeploy, self.wake, self.wake),
            *(self.resume, self.resume, self.cancel),
        ]
        chosen = self.random.choice(acts)
        self.happened[chosen.__name__] += 1
        await chosen()  # type: ignore[misc]

    async def decide(self) -> None:
        """Decide one of the questions, open or not, as one of three people."""
        verb, state = self.random.choice([("approve", "approved"), ("reject", "rejected")])
        by = self.random.choice(["anna", "bert", "eve"])
        approval = self.random.choice(await all_approvals(self.box.hold, self.handle))
        before = await stored(self.box.hold, approval)
        counts = approval.state.value == "open" and self.model.decide(state, by, self.box.clock.now())
        try:
            await getattr(self.box.hold, verb)(approval.id, by=by)
        except Conflict:
            assert not counts, f"{verb} by {by} was refused"
            assert await stored(self.box.hold, approval) == before
        else:
            assert counts, f"{verb} by {by} was taken"
        self.happened["counted" if counts else "refused"] += 1

    async def answer(self) -> None:
        approval = self.random.choice(await all_approvals(self.box.hold, self.handle))
        try:
            await self.box.hold.answer(approval.id, "yes", by="anna")
        except InvalidValue:
            return
        raise AssertionError("an approval was answered")

    async def pass_time(self) -> None:
        await self._advance(self.random.choice([1, 30, 70]))

    async def redeploy(self) -> None:
        """Change what the code asks about; it does not run again because of that."""
        self.model.deployed = self.random.randint(1, 2)

    async def wake(self) -> None:
        await self.box.hold.emit(f"again:{self.handle.id}")
        await self.box.idle()
        self.model.run_again(self.box.clock.now())

    async def resume(self) -> None:
        await self.box.idle()
        if self.model.task == "failed":
            await self.box.hold.resume(self.handle)
            self.model.ask(self.box.clock.now())

    async def cancel(self) -> None:
        if self.random.random() < 0.3:
            await self.handle.cancel("enough")
            self.model.cancel()

    async def _advance(self, seconds: float) -> None:
        await self.box.advance(seconds)
        self.model.pass_time(self.box.clock.now())

    async def compare(self) -> None:
        await self.box.idle()
        records = await all_approvals(self.box.hold, self.handle)
        assert sorted(map(self._seen, records)) == sorted(map(self._expected, self.model.records))
        task = await self.handle.task()
        assert task.state.value == self.model.task
        if task.state is TaskState.COMPLETED:
            assert task.result == self.model.records[-1].details

    def _seen(self, record: Approval) -> str:
        by = "the engine" if record.state.value == "void" else record.decided_by
        return f"{record.arguments} {record.state.value} by {by}, until {record.expires_at}"

    def _expected(self, record: Record) -> str:
        return f"{record.details} {record.state} by {record.by}, until {record.expires_at}"


async def test_approvals_are_those_of_the_model(seeds: Sequence[int]) -> None:
    hold = Holdfast("memory://")
    models: list[Model] = []
    happened: Counter[str] = Counter()

    @hold.task(retry=ONE_TRY)
    async def work(ctx: Context, number: int) -> int:
        model = models[number]
        details = model.deployed
        leave = asyncio.create_task(
            ctx.approval(
                "Go on?", details=details, deciders=model.deciders, expires=model.expires, default=model.default
            )
        )
        while not leave.done():
            again = asyncio.create_task(ctx.wait_event(f"again:{ctx.task_id}"))
            await asyncio.wait({leave, again}, return_when=asyncio.FIRST_COMPLETED)
        leave.result()
        return details

    for seed in seeds:
        random = Random(seed)
        async with sandbox(hold) as box:
            with box.frozen():
                for _ in range(TASKS):
                    model = Model(
                        deciders=random.choice([(), ("anna", "bert")]),
                        expires=random.choice([None, 100.0]),
                        default=random.choice(["approved", "rejected"]),
                    )
                    models.append(model)
                    handle = await hold.submit(work, len(models) - 1)
                    model.ask(box.clock.now())
                    play = Play(box, handle, model, random)
                    await play.compare()
                    for _ in range(EVENTS):
                        await play.act()
                        await play.compare()
                    happened += play.happened
    assert {"counted", "refused", "redeploy", "resume", "cancel"} <= {*happened}
    ends = Counter(record.state for model in models for record in model.records)
    assert {"void", "approved", "rejected", "expired", "closed"} <= {*ends}, ends
