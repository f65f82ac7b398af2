"""Random sagas with random mishaps and random crashes: whatever was reserved is released, once, the last first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from holdfast import (
    Absent,
    Compensation,
    Context,
    EffectState,
    Handle,
    Happened,
    Holdfast,
    Retry,
    TaskCancelled,
    TaskFailed,
)
from holdfast.testing import CrashDidNotHappen, Sandbox, sandbox
from tests.engine.effects.compensation.support import ONE_TRY, Agency, Booking, states_of
from tests.engine.support import steps_of, until

PROGRAMS, CRASHES = 1, 4
"""For each seed: so many programs, and each of them so often with crashes."""

AT_ONCE = Retry(max_attempts=5, initial=0.0)


class Careless(Agency):
    """An agency that now and then refuses, or does what it is asked for and then does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.mishaps: dict[str, str] = {}
        self.happened: Counter[str] = Counter()

    async def reserve(self, what: str, effect_id: str) -> Booking:
        self._refuse_if_planned(what)
        booking = await super().reserve(what, effect_id)
        self._stay_silent_if_planned(what)
        return booking

    async def release(self, booking: Booking, what: str, effect_id: str) -> None:
        self._refuse_if_planned(f"-{what}")
        await super().release(booking, what, effect_id)
        self._stay_silent_if_planned(f"-{what}")

    async def was_reserved(self, effect_id: str, what: str) -> Happened | Absent:
        self.happened[f"asked about {what}"] += 1
        found = self.reserved.get(effect_id)
        return Absent() if found is None else Happened(found)

    async def was_released(self, effect_id: str, booking: Booking, what: str) -> Happened | Absent:
        self.happened[f"asked about -{what}: {booking.number}"] += 1
        return Happened() if effect_id in self.released else Absent()

    def _refuse_if_planned(self, what: str) -> None:
        if self.mishaps.get(what) == "refuses":
            del self.mishaps[what]
            self.happened["refusal"] += 1
            raise ConnectionRefusedError

    def _stay_silent_if_planned(self, what: str) -> None:
        if self.mishaps.get(what) == "does not answer":
            del self.mishaps[what]
            self.happened["silence"] += 1
            raise TimeoutError("no answer")


@dataclass
class Program:
    """What a task does: stages in turn, the steps of each stage side by side; then it ends badly."""

    stages: list[list[str]]
    effects: dict[str, str]
    undo_effects: dict[str, str]
    mishaps: dict[str, str]
    ends_by: str
    agency: Careless = field(default_factory=Careless)

    @classmethod
    def draw(cls, random: Random) -> Program:
        stages, count = [], 0
        for _ in range(random.randint(1, 4)):
            width = random.choice([1, 1, 1, 2, 3])
            stages.append([f"step {count + number}" for number in range(width)])
            count += width
        names = [name for stage in stages for name in stage]
        mishaps = {
            what: random.choice(["refuses", "does not answer"])
            for name in names
            for what in (name, f"-{name}")
            if random.random() < 0.3
        }
        return cls(
            stages,
            {name: random.choice(["once", "idempotent"]) for name in names},
            {name: random.choice(["once", "idempotent"]) for name in names},
            mishaps,
            random.choice(["failure", "cancel", "deadline"]),
        )

    async def run(self, ctx: Context) -> None:
        for stage in self.stages:
            await asyncio.gather(*(self._step(ctx, name) for name in stage))
        if self.ends_by == "failure":
            raise ValueError("no money left")
        await ctx.wait_event("never")

    async def _step(self, ctx: Context, name: str) -> Any:  # noqa: ANN401
        agency, options, undo_options = self.agency, {}, {}
        if self.effects[name] == "once":
            options = {"reconcile": agency.was_reserved, "settle": 1}
        if self.undo_effects[name] == "once":
            undo_options = {"reconcile": agency.was_released, "settle": 1}
        undo: Any = Compensation(agency.release, effect=self.undo_effects[name], retry=AT_ONCE, **undo_options)  # type: ignore[arg-type]
        effect = self.effects[name]
        return await ctx.step(name, agency.reserve, name, effect=effect, compensate=undo, retry=AT_ONCE, **options)  # type: ignore[call-overload]

    async def play(self, box: Sandbox, handle: Handle[None]) -> None:
        if self.ends_by == "cancel":

            async def waits_at_its_end() -> bool:
                return (await box.hold.store.history(handle.id))[-1].reason == "waits for an event"

            await until(waits_at_its_end)
            await handle.cancel("ill")
        with pytest.raises(TaskCancelled if self.ends_by == "cancel" else TaskFailed):
            await handle.result(timeout=5000)
        await self.check(box.hold, handle)

    async def check(self, hold: Holdfast, handle: Handle[None]) -> None:
        agency = self.agency
        done = [booking.what for booking in agency.reserved.values()]
        assert sorted(done) == sorted(self.effects), "not each of them was reserved once"
        assert sorted(agency.released.values(), key=str) == sorted(agency.reserved.values(), key=str)
        steps, states = await steps_of(hold, handle), await states_of(hold, handle)
        in_order = sorted(done, key=lambda name: steps[name].position, reverse=True)
        assert [line for line in agency.book if line[0] == "-"] == [f"-{name}" for name in in_order]
        assert all(states[name] is EffectState.COMPENSATED and steps[name].undone_at for name in done)
        assert await hold.doubts() == []
        count = f"({len(done)} {'step' if len(done) == 1 else 'steps'} undone)"
        assert (await hold.store.history(handle.id))[-1].reason.endswith(count)


async def test_whatever_happens_everything_is_undone(seeds: Sequence[int]) -> None:
    hold = Holdfast("memory://")
    programs: list[Program] = []
    happened: Counter[str] = Counter()

    @hold.task(retry=ONE_TRY)
    async def travel(ctx: Context, number: int) -> None:
        await programs[number].run(ctx)

    async def play(program: Program, random: Random, numbers: Sequence[int]) -> int:
        program.agency = Careless()
        program.agency.mishaps = {**program.mishaps}
        commits = 0
        # A crash may save some Commits, for example those of a mishap that it took the place of.
        with suppress(CrashDidNotHappen):
            async with sandbox(hold) as box:
                crashes = [box.crash_at_commit(number, durable=random.random() < 0.5) for number in numbers]
                deadline = 3600.0 if program.ends_by == "deadline" else None
                handle = await hold.submit(travel, programs.index(program), deadline=deadline)
                await program.play(box, handle)
                commits = box.commits
                happened["crash"] += sum(crash.happened for crash in crashes)
        happened.update(program.agency.happened.keys() & {"refusal", "silence"})
        happened[program.ends_by] += 1
        return commits

    for seed in seeds:
        random = Random(seed)
        for _ in range(PROGRAMS):
            programs.append(Program.draw(random))
            commits = await play(programs[-1], random, ())
            for _ in range(CRASHES):
                await play(programs[-1], random, random.sample(range(1, commits + 1), k=2))
    assert {"refusal", "silence", "failure", "cancel", "deadline"} <= {*happened}, happened
    assert happened["crash"] >= len(programs) * CRASHES, happened
