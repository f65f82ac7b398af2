"""A worker that is frozen amid an answer and wakes up when another one has its task: its answer does not count."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast import Meter
from tests.proof.agent import mission
from tests.proof.agent.casts import Mission
from tests.proof.agent.endpoint import Endpoint
from tests.proof.agent.life import Missed
from tests.proof.agent.mission import STEPS
from tests.proof.agent.outcome import outcome_of, recorded, spent_tokens
from tests.proof.agent.scene import Scene, insisting


@pytest.mark.parametrize("place", ["amid answer 3", "before llm:3 completed"])
async def test_what_a_worker_hears_after_its_lease_is_not_recorded(
    scene: Scene, endpoint: Endpoint, place: str
) -> None:
    await insisting(partial(oversleep, endpoint, place), scene)


async def oversleep(endpoint: Endpoint, place: str, scene: Scene) -> None:
    hold = scene.hold
    gate, enough = (scene.folder / f"{name}-{scene.number}" for name in ("gate", "enough"))
    cast = Mission(endpoint.base_url, scene.ledger, scene.number, "every_step", limited=True)
    with scene.start("sleeper", cast, trap=place, gate=gate, enough=enough) as sleeper:
        await sleeper.until_it_says("held")
        is_late = sleeper.lost_its_lease
        if is_late:
            raise Missed(f"not held {place} in its first life\n{sleeper.log}")
        await sleeper.freeze()
        gate.touch()  # so that it goes on from there when it wakes up
        with scene.start("heir", cast) as heir:
            await heir.finish()
        before = await scene.everything()
        outcome = await outcome_of(hold, await scene.task())

        sleeper.thaw()
        await sleeper.until_it_says("another worker has it")
        await sleeper.until_it_says("was silent for longer than its lease")  # its heartbeat may come later than that
        await sleeper.leave()

    assert place in sleeper.places
    mission.check_end(outcome)
    mission.check_world(scene.calls())
    # Nothing that the sleeper did or had reserved changed anything any more.
    assert await scene.everything() == before
    task = await scene.task()
    paid, kept = await scene.paid(endpoint, task), await recorded(hold, task)
    assert len(paid) - len(kept) == 1
    spent = (await hold.budget(task.id)).lines
    assert (spent[Meter.STEPS].spent, spent[Meter.STEPS].reserved) == (STEPS, 0)
    assert await spent_tokens(hold, task) >= sum(usage.total for usage in paid)
    assert not [line for line in spent.values() if line.limit is not None and line.spent > line.limit]
    assert not sleeper.said("Traceback")
