"""What is printed and drawn of a run."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from holdfast.cli.demo.application import FATAL_STEP, PLAN, STEPS
from holdfast.cli.demo.ledger import DemoLedger
from holdfast.cli.demo.scene import frame, standing
from holdfast.cli.demo.snapshot import Snapshot
from holdfast.cli.demo.stage import DemoStage
from holdfast.cli.demo.story import tell
from holdfast.cli.demo.worker_processes import SIGKILLED, DemoWorker
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import ApprovalState
from holdfast.model.effect import EffectState
from holdfast.model.step import StepState
from holdfast.model.transitions import TaskState
from holdfast.model.worker import WorkerState
from tests.cli.demo.support import FIRST, after, changed_effect, good_run


def in_the_fatal_step() -> Snapshot:
    """Return the run as it was between the call of step 8 and its record."""
    run = good_run()
    effect, step, done = run.effect(FATAL_STEP), run.step(FATAL_STEP), tuple(PLAN.values())[:7]
    assert effect is not None
    assert step is not None
    run = changed_effect(run, replace(effect, state=EffectState.ARMED, result=None, note=None))
    return replace(
        run,
        at=after(8),
        task=replace(run.task, state=TaskState.RUNNING, deaths=0, fence=1),
        steps=(*run.steps[:8], replace(step, state=StepState.RUNNING, finished_at=None)),
        effects=tuple(effect for effect in run.effects if not effect.step_key.startswith("switch")),
        approvals=(),
        history=run.history[:2],
        workers=(replace(run.workers[0], state=WorkerState.LIVE, seen_at=after(7.5)),),
        state=AgentState(goal="", plan=tuple(PLAN.values()), completed_steps=done, current_step=PLAN[FATAL_STEP]),
        world=DemoLedger(run.world.entries[:8]),
        processes=(DemoWorker("worker-1", FIRST, None),),
    )


def lines_of(run: Snapshot) -> list[str]:
    return [event.words for event in tell(run)]


def test_the_whole_story_in_its_order() -> None:
    words = lines_of(good_run())
    order = [
        "worker-1 (pid 101) claims the task",
        "step 7, migrate_schema: done, by worker-1",
        "worker-2 (pid 102) takes over; 7 recorded steps replay",
        "step 8 is in doubt: its worker was lost before it could report",
        "worker-2 asks the world about 00000007: reconcile",
        "it happened: 3 replicas are up; recorded, not repeated",
        "step 9, verify_health: done, by worker-2",
        'May the agent call switch_traffic(service="billing", version="1.2")?',
        "approved by ann: go ahead",
        "step 10, switch_traffic: done, by worker-2",
        "completed: billing 1.2 is live.",
    ]
    assert [line for line in words if line in order] == order
    assert "because of external_action, for these arguments only: 81defc9f468e" in words
    assert "SIGKILL: worker-1 (pid 101) is gone" in words


def test_nothing_is_reported_before_it_happened() -> None:
    words = " ".join(lines_of(in_the_fatal_step()))
    assert "apply_changes: armed as 00000007, and called 00000007 is in the ledger" in words
    for later in ("SIGKILL", "takes over", "in doubt", "asks", "it happened:", "approved", "completed:"):
        assert later not in words


def test_the_end_is_reported_once_its_result_is_known() -> None:
    """The parts of a snapshot are read one after the other: the history may know more than the record."""
    run = good_run()
    early = replace(run, task=replace(run.task, state=TaskState.RUNNING, result=None))
    assert not any(words.startswith("completed:") for words in lines_of(early))


def test_every_event_is_shown_once() -> None:
    console = Console(file=io.StringIO(), width=80)
    stage = DemoStage(console)
    for run in (in_the_fatal_step(), in_the_fatal_step(), good_run(), good_run()):
        stage.show(run)
    lines = [line.plain for line in stage.log]
    assert len(lines) == len(set(lines)) == len(tell(good_run()))


def test_where_steps_stand() -> None:
    now = in_the_fatal_step()
    assert [standing(now, name)[0] for name in STEPS[6:]] == ["completed", "armed", "", ""]
    killed = replace(now, processes=(DemoWorker("worker-1", FIRST, SIGKILLED),))
    assert standing(killed, FATAL_STEP)[0] == "armed, worker killed"
    effect = now.effect(FATAL_STEP)
    assert effect is not None
    assert standing(changed_effect(now, replace(effect, state=EffectState.IN_DOUBT)), FATAL_STEP)[0] == "in doubt"
    assert standing(good_run(), FATAL_STEP)[0] == "completed, reconciled"
    asking = replace(
        good_run(),
        steps=good_run().steps[:-1],
        approvals=tuple(replace(one, state=ApprovalState.OPEN) for one in good_run().approvals),
    )
    assert standing(asking, "switch_traffic")[0] == "waits for approval"


def test_a_frame_fits_a_small_terminal() -> None:
    for run in (in_the_fatal_step(), good_run()):
        console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, color_system=None)
        stage = DemoStage(console)
        stage.show(run)
        console.print(stage._frame())
        assert isinstance(console.file, io.StringIO)
        lines = console.file.getvalue().splitlines()
        assert len(lines) < 24
        assert max(map(len, lines)) <= 80
        assert tell(run)[-1].words in lines[-1]


def test_the_lease_of_a_worker_runs_out_on_the_screen() -> None:
    now = in_the_fatal_step()
    for seconds, left in ((8.0, "lease 1.5 s"), (9.0, "lease 0.5 s"), (12.0, "lease 0.0 s")):
        console = Console(file=io.StringIO(), width=80, color_system=None)
        console.print(frame(replace(now, at=after(seconds)), [Text("log")]))
        assert isinstance(console.file, io.StringIO)
        assert left in console.file.getvalue()
