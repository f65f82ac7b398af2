"""What the demo makes of a run: every promise that does not hold is named, and it does not pass."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from holdfast.cli.demo.application import FATAL_STEP
from holdfast.cli.demo.ledger import DemoEntry, DemoLedger, What
from holdfast.cli.demo.outcome import Outcome
from holdfast.cli.demo.snapshot import Snapshot
from holdfast.cli.demo.summary import proof, verdict
from holdfast.cli.demo.worker_processes import DemoWorker
from holdfast.model.approval import ApprovalState
from holdfast.model.effect import EffectState
from holdfast.model.transitions import TaskState
from tests.cli.demo.support import FIRST, SECOND, changed_effect, effect_id, good_run


def outcome(run: Snapshot) -> Outcome:
    return Outcome(last=run, seconds=12.0)


def words(run: Snapshot) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(proof(outcome(run)), *verdict(outcome(run)), sep="\n")
    return console.export_text()


def with_entry(run: Snapshot, entry: DemoEntry) -> Snapshot:
    return replace(run, world=DemoLedger((*run.world.entries, entry)))


def test_a_run_in_which_everything_held() -> None:
    assert outcome(good_run()).complaints == []
    assert outcome(good_run()).is_good
    assert "nothing ran twice" in words(good_run())


@pytest.mark.parametrize("identifier", [effect_id("push_image"), "another-id"])
def test_an_effect_that_happened_twice(identifier: str) -> None:
    run = with_entry(good_run(), DemoEntry(SECOND, What.DID, "push_image", identifier))
    assert not outcome(run).is_good
    assert outcome(run).facts()["duplicates"] == 1
    assert outcome(run).complaints == ["push_image is in the ledger 2 times, not once, by worker-1, worker-2"]
    shown = words(run)
    assert "push_image is in the ledger 2 times" in shown
    assert "nothing ran twice" not in shown


def without_kill(run: Snapshot) -> Snapshot:
    return replace(run, processes=(DemoWorker("worker-1", FIRST, 0), *run.processes[1:]))


def ended_by_another_signal(run: Snapshot) -> Snapshot:
    return replace(run, processes=(DemoWorker("worker-1", FIRST, -15), *run.processes[1:]))


def without_takeover(run: Snapshot) -> Snapshot:
    return replace(run, task=replace(run.task, deaths=0))


def without_doubt(run: Snapshot) -> Snapshot:
    effect = run.effect(FATAL_STEP)
    assert effect is not None
    return changed_effect(run, replace(effect, result=None, note=None))


def left_to_a_person(run: Snapshot) -> Snapshot:
    effect = run.effect(FATAL_STEP)
    assert effect is not None
    return changed_effect(run, replace(effect, result=None, state=EffectState.NEEDS_HUMAN))


def settled_without_asking(run: Snapshot) -> Snapshot:
    asked = What.ASKED
    return replace(run, world=DemoLedger(tuple(entry for entry in run.world.entries if entry.what is not asked)))


def not_approved(run: Snapshot) -> Snapshot:
    return replace(run, approvals=tuple(replace(one, state=ApprovalState.EXPIRED) for one in run.approvals))


def failed(run: Snapshot) -> Snapshot:
    return replace(run, task=replace(run.task, state=TaskState.FAILED, result=None))


def never_done(run: Snapshot) -> Snapshot:
    return replace(run, world=DemoLedger(tuple(entry for entry in run.world.entries if entry.step != "run_tests")))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (without_kill, "0 workers were ended by SIGKILL, not one"),
        (ended_by_another_signal, "0 workers were ended by SIGKILL, not one"),
        (without_takeover, "no other worker took the task over"),
        (without_doubt, "the store knows of no doubt about apply_changes, which the kill should have left"),
        (left_to_a_person, "the doubt about apply_changes:8.0 was not settled by its reconcile: it is needs_human"),
        (settled_without_asking, "the doubt about apply_changes:8.0 was not settled by its reconcile: it is done"),
        (not_approved, "no approval was given"),
        (failed, "the task is failed, not completed"),
        (never_done, "run_tests is in the ledger 0 times, not once"),
    ],
)
def test_each_promise_that_does_not_hold(change: Callable[[Snapshot], Snapshot], complaint: str) -> None:
    run = change(good_run())
    assert outcome(run).complaints == [complaint]
    assert not outcome(run).is_good
    assert complaint in " ".join(words(run).split())
