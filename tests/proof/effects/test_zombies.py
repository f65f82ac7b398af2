"""Workers that sleep through their lease, at each place before and after the last check, and wake up again.

Before the check: nothing is written and nothing is called. After it: the call cannot be stopped, and what became of it
is recorded as evidence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import TaskState
from holdfast.model.canonical import parse
from holdfast.model.doubt import Decision
from holdfast.model.effect import EffectState
from holdfast.testing.ledger import Ledger
from tests.proof.effects.errand import expected_result
from tests.proof.effects.roads import Manner
from tests.proof.effects.scene import Scene, be_of_use_again, freeze_at_trap


@pytest.mark.parametrize(
    ("place", "manner"),
    [("before arm", "async"), ("after arm", "async"), ("after arm", "carried"), ("before check", "async")],
)
async def test_a_worker_that_slept_before_the_check_calls_and_writes_nothing(
    url: str, ledger: Ledger, tmp_path: Path, place: str, manner: Manner
) -> None:
    async with Scene(url, ledger, tmp_path, manner=manner) as scene:
        with scene.start("sleeper", trap=place, gate=scene.gate) as sleeper:
            await freeze_at_trap(scene, sleeper)
            with scene.start("heir") as heir:
                assert await scene.handle.result(timeout=60) == expected_result(scene.number)
                await heir.leave()
            before = await scene.everything()

            sleeper.thaw()
            await be_of_use_again(scene, sleeper)
            await sleeper.leave()

        assert [call.caller for call in scene.calls()] == [heir.pid]
        assert await scene.everything() == before
        assert await scene.evidence() == []
        assert await scene.hold.doubts() == []
        assert sleeper.lost_its_lease
        assert len(sleeper.was_at("entered")) == 1  # in the later task
        assert bool(heir.was_at("amid reconcile")) == (place != "before arm")


async def test_a_late_result_of_a_call_that_was_found_is_evidence_and_no_more(
    url: str, ledger: Ledger, tmp_path: Path
) -> None:
    async with Scene(url, ledger, tmp_path) as scene:
        with scene.start("sleeper", trap="recorded", gate=scene.gate) as sleeper:
            await freeze_at_trap(scene, sleeper)
            with scene.start("heir") as heir:
                assert await scene.handle.result(timeout=60) == expected_result(scene.number)
                await heir.leave()
            before = await scene.everything()

            sleeper.thaw()
            await scene.until_evidence()
            await sleeper.leave()

        assert [call.caller for call in scene.calls()] == [sleeper.pid]
        assert await scene.everything() == before
        assert scene.number in [parse(evidence.body)["result"] for evidence in await scene.evidence()]
        assert await scene.hold.doubts() == []


async def test_a_late_result_is_shown_to_the_decider(url: str, ledger: Ledger, tmp_path: Path) -> None:
    async with Scene(url, ledger, tmp_path, kind="unchecked") as scene:
        with scene.start("sleeper", trap="recorded", gate=scene.gate) as sleeper:
            await freeze_at_trap(scene, sleeper)
            with scene.start("heir") as heir:
                doubt = await scene.until_doubt()
                assert doubt.evidence == ()
                sleeper.thaw()
                await scene.until_evidence()
                doubt = await scene.until_doubt()
                assert scene.number in [parse(evidence.body)["result"] for evidence in doubt.evidence]
                assert (await scene.effect()).state is EffectState.NEEDS_HUMAN
                await scene.hold.resolve(doubt, "happened", result=scene.number, by="a person")
                assert await scene.handle.result(timeout=60) == expected_result(scene.number)
                await heir.leave()
            await sleeper.leave()
        assert [call.caller for call in scene.calls()] == [sleeper.pid]


async def test_a_call_that_awaits_something_before_it_sends_is_stopped_by_its_own_timeout(
    url: str, ledger: Ledger, tmp_path: Path
) -> None:
    """It passed the last check, and yet is not sent when its worker wakes up: by then its time is over."""
    async with Scene(url, ledger, tmp_path) as scene:
        with scene.start("sleeper", trap="entered", gate=scene.gate, hesitation=0.2) as sleeper:
            await freeze_at_trap(scene, sleeper)
            with scene.start("heir") as heir:
                assert await scene.handle.result(timeout=60) == expected_result(scene.number)
                await heir.leave()
            before = await scene.everything()

            sleeper.thaw()
            await be_of_use_again(scene, sleeper)
            await sleeper.leave()

        assert len(sleeper.was_at("entered")) == 2  # in both tasks
        assert [call.caller for call in scene.calls()] == [heir.pid]
        assert await scene.everything() == before
        assert await scene.hold.doubts() == []


async def test_the_one_gap_a_freeze_between_the_check_and_the_send_is_found_out_and_said(
    url: str, ledger: Ledger, tmp_path: Path
) -> None:
    """No check can close it: a process that is frozen right before it sends will send when it wakes up.

    The call is made twice then. That does not stay hidden: the late result contradicts what was found, and a person is
    asked.
    """
    async with Scene(url, ledger, tmp_path) as scene:
        with scene.start("sleeper", trap="sending", gate=scene.gate) as sleeper:
            await freeze_at_trap(scene, sleeper)
            with scene.start("heir") as heir:
                assert await scene.handle.result(timeout=60) == expected_result(scene.number)
                await heir.leave()
            before = await scene.everything()
            assert (await scene.effect()).state is EffectState.DONE

            sleeper.thaw()
            await scene.until_evidence()
            doubt = await scene.until_doubt()
            await sleeper.leave()

        # Twice, with the same effect id: the service outside can recognise that they are one.
        assert [call.caller for call in scene.calls()] == [heir.pid, sleeper.pid]
        assert len({call.effect_id for call in scene.calls()}) == 1
        assert heir.was_at("amid reconcile")
        assert doubt.effect.state is EffectState.NEEDS_HUMAN
        assert set(doubt.decisions) == {Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON}
        assert scene.number in [parse(evidence.body)["result"] for evidence in doubt.evidence]
        task = await scene.handle.task()
        assert (task.state, task.result) == (TaskState.COMPLETED, expected_result(scene.number))
        steps = f"steps of {task.id}"
        assert (await scene.everything())[steps] == before[steps]
        await scene.hold.resolve(doubt, "happened", result=scene.number, by="a person", note="refunded the second one")
        assert await scene.hold.doubts() == []
