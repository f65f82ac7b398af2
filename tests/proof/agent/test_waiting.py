"""A worker that is killed while its agent waits: for another agent, or for a person."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest

from holdfast import Approval, Budget, TaskState
from tests.conftest import SOAK
from tests.proof.agent.casts import (
    ASKING_SCRIPT,
    FAMILY_SCRIPT,
    RESEARCHER_SCRIPT,
    Asking,
    Family,
)
from tests.proof.agent.endpoint import Endpoint
from tests.proof.agent.outcome import Outcome, outcome_of, recorded, spent_tokens
from tests.proof.agent.scene import Scene, insisting, side_by_side

WHILE_IT_WORKS = ("amid answer 1 of researcher", "did order_book", "before order_book:1.0 completed")
"""Places at which the lead waits, and the agent it waits for is at work."""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Of the lead, and of its researcher."""
    with (
        Endpoint.start(FAMILY_SCRIPT, tmp_path_factory.mktemp("lead")) as lead,
        Endpoint.start(RESEARCHER_SCRIPT, tmp_path_factory.mktemp("researcher")) as researcher,
    ):
        yield lead, researcher


async def test_a_kill_while_a_sub_agent_works(
    scene: Scene, endpoints: tuple[Endpoint, Endpoint], seeds: Sequence[int]
) -> None:
    expected, road = await delegate(endpoints, None, scene)
    assert set(WHILE_IT_WORKS) <= set(road)
    assert expected[0].result == FAMILY_SCRIPT[-1].text
    places = list(dict.fromkeys(road)) if SOAK else [*WHILE_IT_WORKS, random.Random(seeds[0]).choice(road)]
    killed = await side_by_side(insisting(partial(delegate, endpoints, place), scene.another()) for place in places)
    for place, outcome in zip(places, killed, strict=True):
        assert outcome == (expected, [place]), place


async def delegate(
    endpoints: tuple[Endpoint, Endpoint], place: str | None, scene: Scene
) -> tuple[tuple[Outcome, Outcome], list[str]]:
    """Have a family do its work, with a kill if a place is named; return both outcomes, and the road or that place."""
    hold, (lead, researcher) = scene.hold, endpoints
    cast = Family(lead.base_url, researcher.base_url, scene.ledger, scene.number)
    most_lost = 0
    if place is not None:
        with scene.start("victim", cast, trap=place) as victim:
            await victim.meet_its_trap()
        # Only one of the two thinks at a time. A machine that stands still costs another answer.
        most_lost = 2 if victim.lost_its_lease else 1
    with scene.start("heir", cast) as heir:
        await heir.finish()
    task, child = await scene.task(), await scene.child()
    assert len(scene.calls()) == 1
    paid = [*await scene.paid(lead, task), *await scene.paid(researcher, child)]
    kept = [*await recorded(hold, task), *await recorded(hold, child)]
    assert len(paid) - len(kept) <= most_lost
    # What the child used is the lead's expense too.
    assert await spent_tokens(hold, task) >= sum(usage.total for usage in paid)
    own, delegated = await outcome_of(hold, task), await outcome_of(hold, child)
    # Its share of what was left depends on the time, and on what a dead worker may have used.
    delegated = replace(delegated, agent_state=replace(delegated.agent_state, budget=Budget()))
    return (own, delegated), heir.places if place is None else [place]


@pytest.mark.parametrize(
    ("place", "leaves"), [("before waiting", TaskState.RUNNING), ("after waiting", TaskState.WAITING)]
)
async def test_a_kill_while_a_person_is_asked(scene: Scene, place: str, leaves: TaskState) -> None:
    await insisting(partial(ask_and_be_killed, place, leaves), scene)


async def ask_and_be_killed(place: str, leaves: TaskState, scene: Scene) -> None:
    hold, folder = scene.hold, scene.folder / f"endpoint-{scene.number}"
    folder.mkdir()
    with Endpoint.start(ASKING_SCRIPT, folder) as endpoint:
        cast = Asking(endpoint.base_url, scene.ledger, scene.number)

        async def ask_and_die(label: str) -> Approval:
            """Have a worker killed that has just asked a person; return what it asked for."""
            with scene.start(label, cast, trap=place) as life:
                await life.meet_its_trap()
            task = await scene.task()
            assert task.state is leaves
            [approval] = await hold.approvals(task.id)
            return approval

        question = await ask_and_die("first")
        await hold.answer(question.id, "staging", by="ann")
        leave = await ask_and_die("second")
        assert scene.calls() == []
        await hold.approve(leave.id, by="ben")
        with scene.start("third", cast) as third:
            await third.finish()
        task = await scene.task()
        outcome = await outcome_of(hold, task)
        assert (outcome.state, outcome.result) == (TaskState.COMPLETED, ASKING_SCRIPT[-1].text)
        assert [call.name for call in scene.calls()] == ["deploy"]
        [fact] = outcome.agent_state.known_facts
        assert (fact.key, fact.value, fact.source) == ("Which namespace?", "staging", "human:ann")
        assert outcome.agent_state.open_questions == ()
        # Each was asked once, and no agent had to think again because a worker died that only waited.
        decided = await hold.approvals(task.id, states=["answered", "approved", "open"])
        assert {approval.id for approval in decided} == {question.id, leave.id}
        assert len(await scene.paid(endpoint, task)) == len(await recorded(hold, task)) == len(ASKING_SCRIPT)
