"""Where a task stands, why, and what next: the sentences, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.engine.effects.doubt import ASKED_EARLY, NO_RECONCILE
from holdfast.model.approval import Approval
from holdfast.model.canonical import canonical
from holdfast.model.doubt import Decision, Doubt
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.failure import Failure, Try
from holdfast.model.pause import Pause
from holdfast.model.step import Step, StepState
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Worker, WorkerState
from holdfast.service.next_events import Upcoming
from holdfast.service.situation import SituationEvidence, current_steps, is_silent, situation_of

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
CLOCK = f"{LATER.astimezone():%Y-%m-%d %H:%M:%S}"

NOON = f"{NOW.astimezone():%Y-%m-%d %H:%M:%S}"
PAUSED_QUEUE = Pause(subject="queue:deploys", at=NOW, by="ann", reason="freeze")

TASK = Task(id="task-1", name="deploy", queue="deploys")
WORKER = Worker(
    id="worker-1",
    label="vulcan",
    lease=30,
    state=WorkerState.LIVE,
    claims=1,
    details={"queues": ["deploys"], "tasks": ["deploy"], "host": "db1", "pid": 7},
    started_at=NOW - timedelta(hours=1),
    seen_at=NOW - timedelta(seconds=5),
)
SILENT = replace(WORKER, seen_at=NOW - timedelta(seconds=42))
STEP = Step(key="apply", kind="step", position=1, state=StepState.RUNNING, started_at=NOW)
ASKED = Approval(id="approval-1", task_id="task-1", question="Deploy?", step_key="holdfast:approval")
DOUBT = Doubt(
    effect=Effect(
        effect_id="effect-1",
        task_id="task-1",
        step_key="charge",
        effect_class=EffectClass.ONCE,
        state=EffectState.NEEDS_HUMAN,
        fence=1,
    ),
    task_name="deploy",
    question="Did it happen?",
    arguments=[],
    decisions=(Decision.HAPPENED, Decision.ABSENT),
)
RETRIED = replace(
    STEP,
    state=StepState.PENDING,
    retry_at=LATER,
    error=canonical(
        Failure(type_name="shop.NoLuck", message="none")
        .after((Try(number=1, type_name="shop.NoLuck", message="none", at=NOW),), number=2, at=NOW)
        .to_json()
    ),
)
FAILED = Failure(type_name="shop.NoLuck", message="none", steps=("charge",), reason="3 attempts failed").to_json()


def look(
    task: Task = TASK,
    *,
    steps: Sequence[Step] = (),
    approvals: Sequence[Approval] = (),
    doubts: Sequence[Doubt] = (),
    open_children: int = 0,
    workers: Sequence[Worker] = (WORKER,),
    pause: Pause | None = None,
) -> SituationEvidence:
    return SituationEvidence(
        task=task,
        steps=steps,
        approvals=approvals,
        doubts=doubts,
        open_children=open_children,
        workers=workers,
        at=NOW,
        pause=pause,
    )


def task(state: TaskState, **more: object) -> Task:
    return replace(TASK, state=state, **more)  # type: ignore[arg-type]


RUNNING = task(TaskState.RUNNING, owner="worker-1", fence=2)
WAITING = task(TaskState.WAITING)


@pytest.mark.parametrize(
    ("seen", "now", "why", "advice"),
    [
        pytest.param(
            look(),
            "pending in queue 'deploys'",
            "workers are busy with others, or about to claim it",
            [],
            id="pending",
        ),
        *(
            pytest.param(
                look(workers=workers),
                "pending in queue 'deploys'",
                "no live worker takes 'deploy' tasks from this queue",
                ["worker "],
                id=f"pending: {name}",
            )
            for name, workers in {
                "no worker": [],
                "a dead worker": [replace(WORKER, state=WorkerState.DEAD)],
                "a draining worker": [replace(WORKER, state=WorkerState.DRAINING)],
                "a silent worker": [SILENT],
                "other queues": [replace(WORKER, details={"queues": ["others"]})],
                "other tasks": [replace(WORKER, details={"tasks": ["others"]})],
            }.items()
        ),
        pytest.param(
            look(pause=PAUSED_QUEUE, workers=[]),
            "pending, paused",
            f"queue:deploys is paused since {NOON} by ann: freeze",
            ["unpause queue:deploys"],
            id="pending: its queue is paused",
        ),
        pytest.param(
            look(RUNNING, pause=PAUSED_QUEUE),
            "running, on vulcan (db1, pid 7)",
            "",
            [],
            id="running: a paused queue lets it go on",
        ),
        pytest.param(
            look(RUNNING, pause=replace(PAUSED_QUEUE, subject=TASK.id)),
            "running, on vulcan (db1, pid 7); paused: it stops at its next step",
            f"it is paused since {NOON} by ann: freeze",
            [f"unpause {TASK.id}"],
            id="running: it is paused itself",
        ),
        pytest.param(
            look(workers=[replace(WORKER, details={})]),
            "pending in queue 'deploys'",
            "workers are busy with others, or about to claim it",
            [],
            id="pending: a worker that tells nothing may take it",
        ),
        pytest.param(
            look(replace(TASK, available_at=LATER)),
            f"pending until {CLOCK}",
            "it was asked not to begin before",
            [],
            id="delayed",
        ),
        pytest.param(
            look(replace(TASK, available_at=LATER, attempts=1)),
            f"pending until {CLOCK}",
            "it is tried again later",
            [],
            id="a retry",
        ),
        pytest.param(
            look(replace(TASK, deaths=2)),
            "pending in queue 'deploys'",
            "2 workers died with it, so one makes room to run it with as few others as it can",
            [],
            id="a suspect",
        ),
        pytest.param(
            look(replace(TASK, name="handover")),
            "pending in queue 'deploys'",
            "it waits for an agent that claims it over MCP (holdfast mcp, or holdfast serve)",
            [],
            id="for agents outside",
        ),
        pytest.param(
            look(replace(TASK, name="manual")),
            "pending",
            "it was saved by hand, and no worker claims it",
            [],
            id="saved by hand",
        ),
        pytest.param(
            look(RUNNING, steps=[STEP]), "running in 'apply', on vulcan (db1, pid 7)", "", [], id="running in a step"
        ),
        pytest.param(look(RUNNING), "running, on vulcan (db1, pid 7)", "", [], id="running between steps"),
        pytest.param(
            look(RUNNING, steps=[replace(STEP, key=f"s{number}") for number in range(5)]),
            "running in 's0', 's1', 's2' and 2 more, on vulcan (db1, pid 7)",
            "",
            [],
            id="running in many steps",
        ),
        pytest.param(look(RUNNING, workers=[]), "running, on worker-1", "", [], id="running on an unknown worker"),
        pytest.param(
            look(replace(RUNNING, cancel_requested="enough")),
            "running, on vulcan (db1, pid 7); asked to stop: enough",
            "",
            [],
            id="running, and asked to stop",
        ),
        pytest.param(
            look(RUNNING, workers=[SILENT]),
            "running, on a worker that is silent",
            "vulcan (db1, pid 7) was last heard of 42 s ago, and its lease is 30 s; the next worker that claims takes "
            "the task back",
            ["worker "],
            id="a silent worker, and no other",
        ),
        pytest.param(
            look(RUNNING, workers=[SILENT, replace(WORKER, id="worker-2")]),
            "running, on a worker that is silent",
            "vulcan (db1, pid 7) was last heard of 42 s ago, and its lease is 30 s; the next worker that claims takes "
            "the task back",
            [],
            id="a silent worker, and another",
        ),
        pytest.param(
            look(task(TaskState.RUNNING)),
            "running, without a worker",
            "no worker holds it: saved by hand",
            [],
            id="running by hand",
        ),
        pytest.param(
            look(replace(RUNNING, state=TaskState.REVIEW)),
            "being verified, on vulcan (db1, pid 7)",
            "",
            [],
            id="review",
        ),
        pytest.param(
            look(task(TaskState.REVIEW)),
            "being verified, without a worker",
            "its verifier has not begun",
            [],
            id="review without a worker",
        ),
        pytest.param(
            look(WAITING, approvals=[ASKED]),
            "waiting, and holds no worker",
            "a person has to decide: Deploy?",
            ["approve approval-1", "reject approval-1"],
            id="approval",
        ),
        pytest.param(
            look(WAITING, approvals=[replace(ASKED, kind="question", question="Where?")]),
            "waiting, and holds no worker",
            "a person has to decide: Where?",
            ["answer approval-1", "reject approval-1"],
            id="question",
        ),
        pytest.param(
            look(WAITING, approvals=[replace(ASKED, kind="budget", question="More?")]),
            "waiting, and holds no worker",
            "a person has to decide: More?",
            ["approve approval-1", "answer approval-1", "reject approval-1"],
            id="budget",
        ),
        pytest.param(
            look(WAITING, doubts=[DOUBT]),
            "waiting, and holds no worker",
            "whether 'charge' happened is not known",
            ["resolve effect-1"],
            id="doubt",
        ),
        pytest.param(
            look(WAITING, doubts=[replace(DOUBT, decisions=())]),
            "waiting, and holds no worker",
            "whether 'charge' happened is not known",
            [],
            id="a doubt that the engine still clears up",
        ),
        pytest.param(
            look(WAITING, steps=[replace(STEP, kind="sleep", state=StepState.PENDING, retry_at=LATER)]),
            "waiting, and holds no worker",
            f"it sleeps until {CLOCK}",
            [],
            id="sleep",
        ),
        pytest.param(
            look(WAITING, steps=[replace(STEP, key="event:release", kind="event", state=StepState.PENDING)]),
            "waiting, and holds no worker",
            "it waits for the event 'release'",
            [],
            id="event",
        ),
        pytest.param(
            look(WAITING, steps=[RETRIED]),
            "waiting, and holds no worker",
            "try 2 of 'apply' failed: NoLuck: none",
            [],
            id="a step that is tried again",
        ),
        pytest.param(
            look(RUNNING, steps=[RETRIED]),
            "running, on vulcan (db1, pid 7)",
            "try 2 of 'apply' failed: NoLuck: none",
            [],
            id="a step that is tried again soon, on its worker",
        ),
        pytest.param(
            look(RUNNING, steps=[replace(RETRIED, state=StepState.RUNNING, retry_at=None)]),
            "running in 'apply', on vulcan (db1, pid 7)",
            "try 2 of 'apply' failed: NoLuck: none",
            [],
            id="a step that is being tried again",
        ),
        pytest.param(
            look(steps=[RETRIED], workers=[]),
            "pending in queue 'deploys'",
            "no live worker takes 'deploy' tasks from this queue; try 2 of 'apply' failed: NoLuck: none",
            ["worker "],
            id="a step that is tried again, handed back",
        ),
        pytest.param(
            replace(look(RUNNING, steps=[STEP]), is_gone=True),
            "running in 'apply', on a worker whose process is gone",
            "vulcan (db1, pid 7) has died, and its lease of 30 s is not over yet",
            [],
            id="a worker that was killed",
        ),
        pytest.param(
            replace(look(RUNNING, workers=[replace(WORKER, details={"tasks": ["others"]})]), is_gone=True),
            "running, on a worker whose process is gone",
            "vulcan has died, and its lease of 30 s is not over yet",
            ["worker "],
            id="a worker that was killed, and no other is there",
        ),
        pytest.param(
            look(WAITING, open_children=1), "waiting, and holds no worker", "1 child has not ended", [], id="child"
        ),
        pytest.param(
            look(WAITING, open_children=3, approvals=[ASKED]),
            "waiting, and holds no worker",
            "a person has to decide: Deploy?; 3 children have not ended",
            ["approve approval-1", "reject approval-1"],
            id="several things at once",
        ),
        pytest.param(look(task(TaskState.COMPLETED)), "completed", "", [], id="completed"),
        pytest.param(
            look(task(TaskState.COMPLETED), doubts=[DOUBT]), "completed", "", ["resolve effect-1"], id="late doubt"
        ),
        pytest.param(
            look(task(TaskState.CANCELLED, cancel_requested="enough")), "cancelled", "enough", [], id="cancelled"
        ),
        pytest.param(
            look(task(TaskState.FAILED, error=FAILED)),
            "failed in step 'charge'",
            "NoLuck: none (3 attempts failed)",
            ["resume task-1", "retry task-1"],
            id="failed",
        ),
        pytest.param(
            look(task(TaskState.FAILED, error=FAILED), doubts=[DOUBT]),
            "failed in step 'charge'",
            "NoLuck: none (3 attempts failed)",
            ["resolve effect-1", "resume task-1", "retry task-1"],
            id="failed in doubt",
        ),
        pytest.param(
            look(task(TaskState.FAILED, error="lost")),
            "failed",
            "error: lost",
            ["resume task-1", "retry task-1"],
            id="failed by hand",
        ),
    ],
)
def test_where_it_stands(seen: SituationEvidence, now: str, why: str, advice: list[str]) -> None:
    said = situation_of(seen)
    assert (said.now, said.why) == (now, why)
    assert [f"{one.verb} {one.target}" for one in said.next] == advice
    assert all(one.why for one in said.next)


def test_current_steps_are_the_open_ones_of_the_newest_round() -> None:
    done = replace(STEP, key="done", state=StepState.COMPLETED)
    old = replace(STEP, key="old")
    new = replace(STEP, key="new", round=2)
    pending = replace(STEP, key="pending", round=2, state=StepState.PENDING)
    undone = replace(STEP, key="undone", round=2, undone_at=NOW)
    assert current_steps([done, old, new, pending, undone]) == [new, pending]
    assert current_steps([]) == []


@pytest.mark.parametrize(
    ("worker", "silent"),
    [
        (WORKER, False),
        (replace(WORKER, seen_at=NOW - timedelta(seconds=30)), False),
        (SILENT, True),
        (replace(SILENT, state=WorkerState.DRAINING), True),
        (replace(SILENT, state=WorkerState.DEAD), False),
    ],
)
def test_a_worker_is_silent_once_its_lease_is_over(worker: Worker, silent: bool) -> None:
    assert is_silent(worker, NOW) is silent


def settling(note: str, *, settles_in: float = 250) -> Doubt:
    """Return a call that has not settled yet, as one with the default timeout is seen a minute after it was made."""
    effect = replace(
        DOUBT.effect,
        state=EffectState.IN_DOUBT,
        note=note,
        dispatch_by=NOW - timedelta(seconds=55),
        settle_at=NOW + timedelta(seconds=settles_in),
    )
    return replace(DOUBT, effect=effect, decisions=(), early=(Decision.HAPPENED, Decision.ABSENT, Decision.ABANDON))


def test_a_doubt_shows_when_and_by_whom_it_is_looked_into_and_what_would_make_that_sooner() -> None:
    for note, what in (
        (f"lost; {ASKED_EARLY}: it did not happen so far", "reconcile is asked again"),
        (f"lost; {NO_RECONCILE}", "a person is asked"),
        ("lost", "reconcile is asked (a person, where the step has none)"),
    ):
        found = situation_of(look(WAITING, doubts=[settling(note)]))
        assert found.then == (Upcoming(what, NOW + timedelta(seconds=250)),)
        assert found.why == (
            f"whether 'charge' happened is not known: {note}. The call may still arrive, so it is not made again "
            "before it has settled. timeout= and settle= of the step allow it 305 s: shorter ones make this wait "
            "shorter next time"
        )
        [advice] = found.next
        assert (advice.verb, advice.target) == ("resolve", "effect-1")
        assert advice.why == "now, if you know better: happened or abandon; absent, for when the call has settled"
    short = situation_of(look(WAITING, doubts=[settling("lost", settles_in=5)]))
    assert "timeout=" not in short.why  # too short a time to mention it
    assert situation_of(look(WAITING, doubts=[settling("lost", settles_in=-1)])).then == ()


def test_what_happens_by_itself_comes_with_its_time() -> None:
    for seen, what, at in (
        (look(replace(TASK, available_at=LATER)), "it begins", LATER),
        (look(replace(TASK, available_at=LATER, attempts=1)), "the next attempt begins", LATER),
        (look(WAITING, steps=[RETRIED]), "try 3 of 'apply' begins", LATER),
        (look(RUNNING, steps=[RETRIED]), "try 3 of 'apply' begins", LATER),
        (
            look(WAITING, steps=[replace(STEP, kind="sleep", state=StepState.PENDING, retry_at=LATER)]),
            "it goes on",
            LATER,
        ),
        (
            replace(look(RUNNING), is_gone=True),
            "the next worker takes it over",
            WORKER.seen_at + timedelta(seconds=WORKER.lease),
        ),
    ):
        assert situation_of(seen).then == (Upcoming(what, at),)
    assert situation_of(look(RUNNING)).then == ()


def test_that_a_policy_gave_up_at_once_is_not_what_a_person_reads() -> None:
    refused = Failure(
        type_name="holdfast.ModelRefused", message="no key", reason="holdfast.ModelRefused is in give_up_on"
    )
    assert situation_of(look(task(TaskState.FAILED, error=refused.to_json()))).why == "ModelRefused: no key"


def test_a_call_in_doubt_is_not_taken_for_one_that_is_tried_again_while_another_branch_runs() -> None:
    waiting = replace(RETRIED, key="charge", effect_id="effect-1")
    for state in (RUNNING, TASK):
        found = situation_of(look(state, steps=[waiting], doubts=[settling("lost")]))
        assert "whether 'charge' happened is not known: lost" in found.why
        assert "try" not in found.why
        assert [one.what for one in found.then] == ["reconcile is asked (a person, where the step has none)"]
        assert [one.verb for one in found.next] == ["resolve"]
