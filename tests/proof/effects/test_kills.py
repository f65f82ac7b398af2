"""SIGKILL at every place on the way of an effect, and again at the workers that clear up: judged by the ledger.

The ledger is a process and a file of its own. It counts what really was done, whatever the store believes.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import Holdfast, TaskState
from holdfast.model.effect import EffectState
from holdfast.testing.ledger import Entry, Ledger
from holdfast.testing.snapshot import all_tasks
from tests.conftest import SOAK
from tests.proof.effects.errand import expected_result
from tests.proof.effects.life import LEASE, LONGEST, Life, Orders
from tests.proof.effects.roads import KINDS, MOST_KILLS, Plan, Stop, deck, make_plans
from tests.store.postgres.support import break_rule

AT_ONCE = 12
"""Tasks whose workers die at the same time. Mostly they wait: for a lease to run out, for a call to settle."""

FEWEST_KILLS = 60

SOAKED_SEEDS = 10
"""Of the many seeds a soak offers: with these, on two databases, it makes over 3,000 kills."""


@dataclass
class Trial:
    """One plan carried out."""

    plan: Plan
    lives: list[Life] = field(default_factory=list)
    kills: list[Stop] = field(default_factory=list)
    calls: list[Entry] = field(default_factory=list)
    """What the ledger says."""

    @property
    def is_as_planned(self) -> bool:
        """Whether only killed workers lost a lease."""
        return not any(life.lost_its_lease for life in self.lives)

    @property
    def asked(self) -> bool:
        """Whether a person was asked what happened."""
        return any(life.said("asked about") for life in self.lives)


async def test_kills_at_every_place(new_database: Callable[[], str], seeds: Sequence[int], tmp_path: Path) -> None:
    for seed in seeds[: SOAKED_SEEDS if SOAK else 1]:
        print(f"HOLDFAST_SEED={seed} repeats this")  # noqa: T201
        url = new_database()
        await be_lenient(url)
        folder = tmp_path / str(seed)
        folder.mkdir()
        with Ledger.start(folder / "ledger.jsonl") as ledger:
            trials = await carry_out(make_plans(seed, amid=SOAK), url, ledger, folder, seed)
            for entry in ledger.entries():
                trials[entry.body - 1].calls.append(entry)

        check_that_the_kills_were_made(trials)
        for trial in trials:
            judge(trial)
        # The ledger can count: what may be done twice was, where its worker was killed at the wrong moment.
        assert [trial for trial in trials if trial.plan.kind == "idempotent" and len(trial.calls) > 1]
        await check_store(url, trials)


async def be_lenient(url: str) -> None:
    """Set the store up, and have it take no task for poison, however many workers die with it."""
    async with Holdfast(url):
        if url.startswith("postgresql"):  # elsewhere it is a rule of Holdfast's, which every life here suspends
            break_rule(url, "recover", "t.lone_deaths + 1 >= 3", "false")


async def carry_out(plans: Sequence[Plan], url: str, ledger: Ledger, folder: Path, seed: int) -> list[Trial]:
    room = asyncio.Semaphore(AT_ONCE)

    async def follow(plan: Plan) -> Trial:
        trial, dice = Trial(plan), random.Random(f"{seed}/{plan.number}")

        async def live(place: str | None) -> int:
            keeps_slot = dice.random() < 0.5
            lease = LEASE
            while True:
                orders = Orders(
                    url=url,
                    ledger=ledger,
                    log=folder / f"{plan.number}-{len(trial.lives)}.log",
                    number=plan.number,
                    kind=plan.kind,
                    manner=plan.manner,
                    trap=place,
                    has_person=True,
                    keeps_slot=keeps_slot,
                    lease=lease,
                )
                with Life(orders) as life:
                    trial.lives.append(life)
                    code = await life.end()
                if not life.starved or lease > LONGEST:
                    return code
                lease *= 4  # a machine this slow needs longer leases

        async with room:
            for stop in plan.stops:
                code, life = await live(stop.place), trial.lives[-1]
                if code != -signal.SIGKILL:
                    # It may have come another way if its lease ran out by itself; then its task is done.
                    assert code == 0, f"{plan}: {code} instead of a kill {stop.place}\n{life.log}"
                    assert life.lost_its_lease, f"{plan}: not killed {stop.place}\n{life.log}"
                    break
                assert life.was_at(stop.place), f"{plan}: killed, but not {stop.place}\n{life.log}"
                trial.kills.append(stop)
            assert await live(None) == 0, f"{plan}\n{trial.lives[-1].log}"
        return trial

    return await asyncio.gather(*map(follow, plans))


def check_that_the_kills_were_made(trials: Sequence[Trial]) -> None:
    kills = sum(len(trial.kills) for trial in trials)
    assert kills >= FEWEST_KILLS
    for kind in KINDS:
        mine = [trial for trial in trials if trial.plan.kind == kind]
        killed = {stop for trial in mine for stop in trial.kills}
        if all(len(trial.kills) == len(trial.plan.stops) for trial in mine):
            assert killed >= deck(kind, amid=SOAK)
        if kind in {"checked", "unchecked"}:
            in_a_row = {trial.plan.kills_in_recovery for trial in mine}
            assert {2, 3} <= in_a_row
            assert max(in_a_row) == MOST_KILLS - 1
    print(f"{kills} kills, {sum(len(trial.calls) for trial in trials)} calls of {len(trials)} tasks")  # noqa: T201


def judge(trial: Trial) -> None:
    """See that the world is as it should be."""
    plan, calls = trial.plan, trial.calls
    assert len({call.effect_id for call in calls}) == 1, f"{plan}: {calls}"
    if plan.kind in {"checked", "unchecked"}:
        assert len(calls) == 1, f"{plan}: {calls}"
    if not trial.is_as_planned:
        return
    if plan.kind != "unchecked":
        assert not trial.asked, plan
    elif plan.was_in_doubt:
        assert trial.asked, plan
    elif not any(stop.leaves.known == "either" for stop in plan.stops):
        assert not trial.asked, plan


async def check_store(url: str, trials: Sequence[Trial]) -> None:
    """See that the store knows it."""
    async with Holdfast(url) as hold:
        tasks = {task.user_input[0]: task for task in await all_tasks(hold.store)}
        assert len(tasks) == len(trials)
        assert await hold.doubts() == []
        for trial in trials:
            number, task = trial.plan.number, tasks[trial.plan.number]
            assert (task.state, task.result) == (TaskState.COMPLETED, expected_result(number)), trial.plan
            effects = await hold.store.effects(task_id=task.id)
            if trial.plan.kind in {"checked", "unchecked"}:
                [effect] = effects
                assert (effect.state, effect.effect_id) == (EffectState.DONE, trial.calls[0].effect_id), trial.plan
