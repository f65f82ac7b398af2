"""The answer to a claim that comes when the incarnation it was given to is over: none of its tasks is begun."""

from __future__ import annotations

from pathlib import Path

from holdfast import Holdfast
from holdfast.model.worker import Claim, Claimed
from tests.proof.engine.evidence import Evidence
from tests.proof.engine.workload import define_steps


async def test_a_claim_of_an_incarnation_that_is_over_is_not_worked_on(tmp_path: Path) -> None:
    hold, evidence = Holdfast("memory://"), Evidence(tmp_path / "evidence")
    steps = define_steps(hold, evidence)
    async with hold:
        claim_now, late = hold.store.claim, list[str]()

        async def claim_late(claim: Claim) -> list[Claimed]:
            claimed = await claim_now(claim)
            if claimed and not late:
                late.append(claim.worker_id)
                await hold.store.retire(claim.worker_id)  # as if a sweep had found it silent for too long
                await worker._host.register_again(claim.worker_id)
            return claimed

        vars(hold.store)["claim"] = claim_late
        handle = await hold.submit(steps, 1)
        async with hold.worker() as worker:
            assert await handle.result(timeout=60) == 3
            assert late == [late[0]] != [worker.id]
    assert set(evidence.runs().values()) == {1}
