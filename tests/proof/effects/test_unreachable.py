"""A worker that cannot reach the store while it makes a call: the next worker waits until the call has settled."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.model.effect import EffectState
from holdfast.testing.ledger import Ledger
from tests.proof.effects.errand import expected_result
from tests.proof.effects.scene import Scene

LONG_CALL = 10.0
"""Seconds the call may take. It takes effect later than its worker's lease is over, and sooner than this."""

TAKES_EFFECT_AFTER = 6000
"""Milliseconds."""

CLOCKS_DIFFER = 0.5
"""Seconds by which two processes may differ about the time of a store that has a clock of its own."""


@pytest.mark.parametrize("heals", [True, False])
async def test_a_call_that_outlives_its_workers_lease_is_waited_for(
    url: str, ledger: Ledger, tmp_path: Path, heals: bool
) -> None:
    """An earlier question would get "it did not happen", which would soon be wrong.

    If the worker can reach the store again in time, its late result is all that is needed; otherwise the tool is asked.
    """
    cut = tmp_path / "cut"
    async with Scene(url, ledger, tmp_path, timeout=LONG_CALL) as scene:
        with scene.start("lonely", cut=cut, trouble={"delay_before_ms": TAKES_EFFECT_AFTER}) as lonely:
            await lonely.until_it_says("at: entered")
            cut.touch()
            armed = await scene.effect()
            with scene.start("heir") as heir:
                await heir.until_it_says("at: after doubt")
                assert scene.calls() == []
                await lonely.until_it_says("at: answered")
                if heals:
                    cut.unlink()
                    await scene.until_evidence()
                assert await scene.handle.result(timeout=60) == expected_result(scene.number)
                await heir.leave()
            cut.unlink(missing_ok=True)
            await scene.until_evidence()
            await lonely.leave()

        assert armed.settle_at is not None
        assert [call.caller for call in scene.calls()] == [lonely.pid]
        assert (await scene.effect()).state is EffectState.DONE
        assert await scene.hold.doubts() == []
        settled = armed.settle_at.timestamp() - CLOCKS_DIFFER
        [found_out] = heir.was_at("before happened")
        asked = heir.was_at("before reconcile")
        assert len(asked) == (0 if heals else 1)
        assert all(moment >= settled for moment in (found_out, *asked))
        assert not heir.was_at("entered")
