"""A store whose answers get lost: the engine asks again until it knows, and nothing is lost or done twice for that."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from holdfast import Holdfast, StateStore, StoreUnavailable, make_store
from holdfast.engine.steps import suspension
from holdfast.engine.worker import worker
from holdfast.model.transitions import OPEN
from holdfast.store import outage
from tests.proof.engine.conditions import PATIENCE, eventually
from tests.proof.engine.evidence import Evidence, note_acknowledgements
from tests.proof.engine.inspection import check_end
from tests.proof.engine.workload import define

VERBS = ("commit", "claim", "heartbeat", "sweep", "load", "acquire", "owned", "get", "events", "position")
LOST = 0.3
"""The part of all questions that is lost, on the way there or on the way back."""


@pytest.mark.parametrize("concurrency", [1, 100])
async def test_every_answer_may_get_lost(concurrency: int, seeds: Sequence[int], tmp_path: Path) -> None:
    lost: Counter[str] = Counter()
    for seed in seeds[:100]:
        evidence = Evidence(tmp_path / f"evidence-{seed}")
        await work_with_lost_answers(seed, concurrency, evidence, lost)
        # No worker died, so there was no reason to do anything twice, except where the task itself asked for that.
        flaky = {step: count for step, count in evidence.runs().items() if count > 1}
        assert {step[2] for step in flaky} == {"flaky"}, f"repeat with HOLDFAST_SEED={seed}"
    assert {"commit", "claim", "sweep", "load", "get", "events"} <= lost.keys()


async def work_with_lost_answers(seed: int, concurrency: int, evidence: Evidence, lost: Counter[str]) -> None:
    """Have one worker do a task of each kind; count how many answers of each verb were lost."""
    dice = random.Random(seed)

    def make_unreliable(url: str, **options: Any) -> StateStore:  # noqa: ANN401 - as make_store
        store = make_store(url, **options)
        for verb in VERBS:
            vars(store)[verb] = losing(verb, getattr(store, verb), dice, lost)
        note_acknowledgements(store, evidence)  # of what the engine gets to hear
        return store

    hold = Holdfast("memory://")
    kinds = define(hold, evidence)
    with (
        mock.patch("holdfast.engine.api.async_holdfast.make_store", make_unreliable),
        mock.patch.object(outage, "LONGEST_PAUSE", 0.01),
        mock.patch.object(worker, "LOOK_EVERY", 0.02),
        mock.patch.object(suspension, "LOOK_EVERY", 0.02),
        mock.patch.object(suspension, "HOLD_SLOT", 0.05),
    ):
        async with hold:
            for kind in kinds.values():
                await hold.submit(kind, seed)

            async def all_ended() -> bool:
                return not set(await hold.store.count()) & OPEN

            async with hold.worker(lease=PATIENCE, concurrency=concurrency):
                await eventually(f"all is done with HOLDFAST_SEED={seed}", all_ended)
            with mock.patch(f"{__name__}.LOST", 0.0):
                await check_end(hold.store, evidence)


def losing(verb: str, ask: Callable[..., Any], dice: random.Random, lost: Counter[str]) -> Callable[..., Any]:
    worst = LOST  # the first one is lost for sure, and the dice only say on which way

    async def ask_in_vain(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever the verb takes and answers
        nonlocal worst
        fate, worst = dice.random() * worst, 1.0
        await asyncio.sleep(0)  # on the way, in which others may come along
        if fate < LOST:
            lost[verb] += 1
        if fate < LOST / 2:
            raise StoreUnavailable("the question was lost")
        answer = await ask(*args, **options)
        if fate < LOST:
            raise StoreUnavailable("the answer was lost")
        return answer

    return ask_in_vain
