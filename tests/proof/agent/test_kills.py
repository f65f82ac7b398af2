"""SIGKILL at every place of an agent's run: it goes on as if nothing had happened, and costs what its strategy says.

    HOLDFAST_SOAK=1 python -m pytest -s tests/proof/agent/test_kills.py

kills at every place there is, and prints the bill. Otherwise it kills at the costliest place of every setting, and at
another one: of every setting in `make test-all`, of one that the seed chooses every day.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tests.conftest import SOAK
from tests.everyday import FULL
from tests.proof.agent import mission
from tests.proof.agent.bill import Setting, table
from tests.proof.agent.casts import Mission
from tests.proof.agent.endpoint import Endpoint
from tests.proof.agent.mission import STRATEGIES
from tests.proof.agent.outcome import Outcome, outcome_of, recorded, spent_tokens
from tests.proof.agent.scene import Scene, insisting, side_by_side

SAMPLE = 1
"""Places for each setting, beside the costliest, where not all of them are tried. The seed chooses them."""

FEWEST_PLACES = 45
"""Of a road: where as little as possible is written, six answers and six calls still come past as many."""

COSTLIEST = "before llm:3 completed"
"""Right before the record of an answer that has to be durable: everything that waited for it is lost as well."""

SETTINGS = tuple(itertools.starmap(Setting, itertools.product(STRATEGIES, (False, True))))


@dataclass(frozen=True)
class Baseline:
    """An undisturbed mission."""

    setting: Setting
    road: list[str]
    """The places its worker came past."""
    outcome: Outcome


@dataclass(frozen=True)
class Kill:
    """A worker that was killed, and a mission that came to its end all the same."""

    setting: Setting
    place: str
    paid_twice: int
    is_alone: bool
    """Whether nothing else went wrong: a machine that stands still makes a worker lose its lease before its time."""


async def test_a_kill_at_every_place(scene: Scene, endpoint: Endpoint, seeds: Sequence[int]) -> None:
    dice = random.Random(seeds[0])
    baselines = await side_by_side(run_undisturbed(scene.another(), endpoint, each) for each in SETTINGS)
    sampled = SETTINGS if FULL else (dice.choice(SETTINGS),)
    plans = [
        (baseline, place)
        for baseline in baselines
        for place in places(baseline, dice, SAMPLE if baseline.setting in sampled else 0)
    ]
    kills = await side_by_side(
        insisting(partial(kill_at, endpoint, baseline, place), scene.another()) for baseline, place in plans
    )
    print(table((kill.setting, kill.paid_twice) for kill in kills if kill.is_alone))  # noqa: T201
    for kill in kills:
        if kill.is_alone:
            assert kill.paid_twice <= kill.setting.most_lost, kill
            # And the promise is not too high: a kill at the worst place costs exactly that much.
            assert kill.place != COSTLIEST or kill.paid_twice == kill.setting.most_lost, kill


def places(baseline: Baseline, dice: random.Random, sample: int) -> list[str]:
    """Return where to kill: at every place of the road, or at some of them."""
    road = list(dict.fromkeys(baseline.road))
    assert len(road) >= FEWEST_PLACES
    road.remove(COSTLIEST)
    return [COSTLIEST, *(road if SOAK else dice.sample(road, sample))]


async def run_undisturbed(scene: Scene, endpoint: Endpoint, setting: Setting) -> Baseline:
    with scene.start("only", cast(scene, endpoint, setting)) as life:
        await life.finish()
    task = await scene.task()
    outcome = await outcome_of(scene.hold, task)
    mission.check_end(outcome)
    mission.check_world(scene.calls())
    used = sum(usage.total for usage in await recorded(scene.hold, task))
    assert await spent_tokens(scene.hold, task) == used
    return Baseline(setting, life.places, outcome)


async def kill_at(endpoint: Endpoint, baseline: Baseline, place: str, scene: Scene) -> Kill:
    """Kill a worker, see what that cost, have another one finish, and see that the result is the same."""
    hold, setting = scene.hold, baseline.setting
    with scene.start("victim", cast(scene, endpoint, setting), trap=place) as victim:
        await victim.meet_its_trap()
    task = await scene.task()
    lost = len(await scene.paid(endpoint, task)) - len(await recorded(hold, task))
    with scene.start("heir", cast(scene, endpoint, setting)) as heir:
        await heir.finish()

    task, where = await scene.task(), f"{setting}, killed {place}\n{victim.log}\n{heir.log}"
    assert await outcome_of(hold, task) == baseline.outcome, where
    mission.check_world(scene.calls())
    paid, kept = await scene.paid(endpoint, task), await recorded(hold, task)
    paid_twice, is_alone = len(paid) - len(kept), not victim.lost_its_lease
    assert paid_twice == lost or not is_alone, where  # the heir asked for nothing that was there already
    # Where nothing limits them, tokens are not reserved, and what a dead worker used is nowhere written down.
    assert await spent_tokens(hold, task) >= sum(usage.total for usage in (paid if setting.limited else kept)), where
    return Kill(setting, place, paid_twice, is_alone)


def cast(scene: Scene, endpoint: Endpoint, setting: Setting) -> Mission:
    return Mission(endpoint.base_url, scene.ledger, scene.number, setting.strategy, setting.limited)
