"""Blocking functions run in threads, which cannot be stopped: "absent" counts only once the thread cannot go on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from holdfast import Absent, Context, Holdfast, Retry
from holdfast.engine.worker import liveness
from holdfast.model.canonical import parse
from holdfast.model.effect import EffectState
from holdfast.testing.ledger import Ledger
from tests.proof.effects.errand import expected_result
from tests.proof.effects.scene import Scene, be_of_use_again, freeze_at_trap

THREAD = "cannot be stopped"
"""What a person is shown."""


async def test_a_thread_that_outlives_its_timeout_is_not_declared_absent(
    url: str, ledger: Ledger, tmp_path: Path
) -> None:
    async with Scene(url, ledger, tmp_path, manner="blocking") as scene:
        with scene.start("slow", trap="entered", gate=scene.gate) as slow:
            doubt = await scene.until_doubt()
            assert slow.was_at("amid reconcile")  # it was asked, and said that nothing had happened
            assert scene.calls() == []
            assert THREAD in (doubt.effect.note or "")

            scene.gate.touch()
            await scene.until_evidence()
            doubt = await scene.until_doubt()
            assert scene.number in [parse(evidence.body)["result"] for evidence in doubt.evidence]
            await scene.hold.resolve(doubt, "happened", result=scene.number, by="a person")
            assert await scene.handle.result(timeout=60) == expected_result(scene.number)
            await slow.leave()
        assert [call.caller for call in scene.calls()] == [slow.pid]


async def test_nor_by_another_worker_while_its_process_lives(url: str, ledger: Ledger, tmp_path: Path) -> None:
    """A process that is frozen may wake up. Its thread then makes the call, long after its timeout."""
    async with Scene(url, ledger, tmp_path, manner="blocking") as scene:
        with scene.start("sleeper", trap="entered", gate=scene.gate) as sleeper:
            await freeze_at_trap(scene, sleeper)
            with scene.start("heir") as heir:
                doubt = await scene.until_doubt()
                assert heir.was_at("amid reconcile")
                assert THREAD in (doubt.effect.note or "")

                sleeper.thaw()
                await scene.until_evidence()
                assert (await scene.effect()).state is EffectState.NEEDS_HUMAN
                await scene.hold.resolve(doubt, "happened", result=scene.number, by="a person")
                assert await scene.handle.result(timeout=60) == expected_result(scene.number)
                await heir.leave()
            await sleeper.leave()
        assert [call.caller for call in scene.calls()] == [sleeper.pid]


async def test_nor_because_its_worker_gave_up_waiting_for_it(url: str, ledger: Ledger, tmp_path: Path) -> None:
    """A timeout ends the wait for a thread, and not the thread. Its worker is well, but has lost the task meanwhile."""
    cut = tmp_path / "cut"
    async with Scene(url, ledger, tmp_path, manner="blocking", timeout=6.0) as scene:
        with scene.start("slow", trap="entered", gate=scene.gate, cut=cut) as slow:
            await slow.until_it_says("held")
            cut.touch()
            with scene.start("heir") as heir:
                await heir.until_it_says("at: after doubt")
                cut.unlink()
                await slow.until_it_says("another worker has it")
                doubt = await scene.until_doubt()
                assert heir.was_at("amid reconcile")
                assert THREAD in (doubt.effect.note or "")
                assert await scene.evidence() == []  # whatever it could tell, it does not know how the call ends

                scene.gate.touch()
                await scene.until_evidence()
                await scene.hold.resolve(doubt, "happened", result=scene.number, by="a person")
                assert await scene.handle.result(timeout=60) == expected_result(scene.number)
                await heir.leave()
            await slow.leave()
        assert [call.caller for call in scene.calls()] == [slow.pid]


async def test_a_thread_is_over_when_its_process_is_killed(url: str, ledger: Ledger, tmp_path: Path) -> None:
    """On the same machine that is proven, and "absent" counts."""
    async with Scene(url, ledger, tmp_path, manner="blocking") as scene:
        with scene.start("victim", trap="entered", gate=scene.gate) as victim:
            await victim.until_it_says("held")
            await victim.kill()
        with scene.start("heir") as heir:
            assert await scene.handle.result(timeout=60) == expected_result(scene.number)
            assert heir.was_at("amid reconcile")
            await heir.leave()
        assert [call.caller for call in scene.calls()] == [heir.pid]
        assert not heir.was_at("before human")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is ever proven")
def test_a_killed_process_is_over_even_as_a_zombie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot be looked at may still run: another user's may be hidden."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        began = liveness._started(child.pid)
        assert began is not None
        with monkeypatch.context() as hidden:
            hidden.setattr(liveness, "_stat", lambda _: [])
            assert not liveness._has_ended(child.pid, began)
        assert not liveness._has_ended(child.pid, began)
        child.kill()
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
        assert liveness._has_ended(child.pid, began)
    assert liveness._has_ended(child.pid, began)


async def test_a_worker_that_slept_before_the_check_of_a_blocking_call_makes_none(
    url: str, ledger: Ledger, tmp_path: Path
) -> None:
    """That is unknown, so a person is asked; whatever the answer, it makes no call when it wakes up."""
    async with Scene(url, ledger, tmp_path, manner="blocking") as scene:
        with scene.start("sleeper", trap="before check", gate=scene.gate) as sleeper:
            await freeze_at_trap(scene, sleeper)
            with scene.start("heir") as heir:
                doubt = await scene.until_doubt()
                await scene.hold.resolve(doubt, "absent", by="a person")
                assert await scene.handle.result(timeout=60) == expected_result(scene.number)
                await heir.leave()
            before = await scene.everything()
            sleeper.thaw()
            await be_of_use_again(scene, sleeper)
            await sleeper.leave()
        assert [call.caller for call in scene.calls()] == [heir.pid]
        assert await scene.everything() == before


async def test_a_thread_is_over_when_its_function_raised() -> None:
    hold, calls = Holdfast("memory://"), list[str]()

    def pay(effect_id: str) -> str:
        calls.append(effect_id)
        if len(calls) == 1:
            raise ConnectionResetError("who knows")
        return "paid"

    async def was_not_paid(_: str) -> Absent:
        return Absent()

    @hold.task
    async def errand(ctx: Context) -> str:
        again = Retry(max_attempts=2, initial=0.01)
        return await ctx.step("pay", pay, effect="once", settle=0.01, reconcile=was_not_paid, retry=again)

    async with hold, hold.worker():
        handle = await hold.submit(errand)
        assert await handle.result(timeout=60) == "paid"
    assert len(calls) == 2
