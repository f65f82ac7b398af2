"""The case study: a worker is killed in step 8 of 10. Another one does steps 8, 9 and 10, and nothing else."""

from __future__ import annotations

from pathlib import Path

from holdfast import Holdfast
from tests.proof.engine.processes import while_alive, workers
from tests.proof.engine.worker_process import GATED_STEP, STEPS, evidence_in, gate_in, ten_steps


async def test_another_process_goes_on_with_the_step_that_was_interrupted(url: str, tmp_path: Path) -> None:
    hold, evidence = Holdfast(url), evidence_in(tmp_path)
    async with hold:
        handle = await hold.submit(ten_steps(hold, tmp_path))
        with workers(url, tmp_path, "one", "two") as pair:
            await while_alive(pair, "a worker is inside step 8", lambda: (handle.id, 1, GATED_STEP) in evidence.runs())
            inside = evidence.lines("ran")[-1].pid
            [victim] = [worker for worker in pair if worker.pid == inside]
            [heir] = [worker for worker in pair if worker is not victim]
            victim.kill()
            gate_in(tmp_path).touch()
            assert await handle.result(timeout=60) == sum(range(1, 11))
            await heir.drain()
        task, history = await handle.task(), await hold.store.history(handle.id)

    expected = [(victim.pid, key) for key in STEPS[:8]] + [(heir.pid, key) for key in STEPS[7:]]
    assert [(line.pid, line.step[2]) for line in evidence.lines("ran")] == expected
    evidence.check_nothing_ran_again()
    assert [(move.to_state, move.reason) for move in history[2:3]] == [("pending", "its worker died")]
    assert (task.deaths, task.attempts) == (1, 0)
