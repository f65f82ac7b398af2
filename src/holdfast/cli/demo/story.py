"""What has happened so far, as one snapshot of store, ledger and processes shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from holdfast.cli.demo.application import FATAL_STEP, STEPS
from holdfast.cli.demo.ledger import What
from holdfast.cli.demo.snapshot import Snapshot, was_in_doubt
from holdfast.model.approval import Approval, ApprovalState
from holdfast.model.canonical import parse
from holdfast.model.effect import EffectState
from holdfast.model.transitions import TaskState, Transition

GOOD, BAD, ODD, PLAIN = "green", "bold red", "yellow", ""


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """Something that happened. The same event has the same key in every later snapshot."""

    key: str
    at: datetime
    words: str
    style: str = PLAIN


def tell(now: Snapshot) -> list[StoryEvent]:
    """Return all events in the order of their times; an event without a time gets the current one."""
    return sorted((*_moves(now), *_deaths(now), *_plan(now), *_steps(now), *_doubt(now), *_approvals(now)), key=_at)


def short(identifier: str | None) -> str:
    """Return the first part of an id: enough to recognise it."""
    return (identifier or "").partition("-")[0][:12]


def _at(event: StoryEvent) -> datetime:
    return event.at


def _moves(now: Snapshot) -> Iterator[StoryEvent]:
    taken_back, claims = False, 0
    for move in now.history:
        key = f"move {move.number}"
        if move.from_state is None:
            yield StoryEvent(key, move.at, f"submitted: task {move.task_id}")
        elif move.is_taken_back:
            taken_back = True
            yield StoryEvent(key, move.at, f"the lease is over, the task is taken back: {move.reason}", ODD)
        elif move.from_state is TaskState.RUNNING and move.to_state is TaskState.PENDING:
            yield StoryEvent(key, move.at, f"the task goes back into its queue: {move.reason}")
        elif move.to_state is TaskState.RUNNING:
            holder = now.holder(move.fence)
            who = "a worker" if holder is None else f"{holder.label} (pid {holder.details['pid']})"
            claims += 1
            if taken_back:
                words, style = f"{who} takes over; {_recorded(now, move.fence)} recorded steps replay", GOOD
            else:
                words, style = f"{who} {'claims the task' if claims == 1 else 'goes on'}", PLAIN
            taken_back = False
            yield StoryEvent(key, move.at, words, style)
        elif move.to_state is TaskState.WAITING:
            yield StoryEvent(key, move.at, "the task waits for a person, and holds no worker")
        elif move.to_state.is_terminal and now.task.state.is_terminal:
            # If the record was read before this move, the next look has its result.
            yield _end(key, move, now)


def _end(key: str, move: Transition, now: Snapshot) -> StoryEvent:
    if move.to_state is TaskState.COMPLETED:
        return StoryEvent(key, move.at, f"completed: {now.task.result}", f"bold {GOOD}")
    return StoryEvent(key, move.at, f"{move.to_state}: {move.reason}", BAD)


def _recorded(now: Snapshot, fence: int) -> int:
    """Count the steps of the plan that earlier holders of the task have recorded."""
    steps = [now.step(name) for name in STEPS if now.is_completed(name)]
    return sum(step is not None and step.fence < fence for step in steps)


def _deaths(now: Snapshot) -> Iterator[StoryEvent]:
    for member in now.processes:
        if member.was_killed:
            yield StoryEvent(
                f"death {member.label}", now.at, f"SIGKILL: {member.label} (pid {member.pid}) is gone", BAD
            )


def _plan(now: Snapshot) -> Iterator[StoryEvent]:
    planned = now.step("update_plan")
    if planned is not None and planned.finished_at is not None:
        yield StoryEvent("plan", planned.finished_at, f"the agent has a plan: {len(now.state.plan)} steps")


def _steps(now: Snapshot) -> Iterator[StoryEvent]:
    for number, name in enumerate(STEPS, 1):
        step, effect = now.step(name), now.effect(name)
        if not now.is_completed(name) or step is None or (effect is not None and was_in_doubt(effect)):
            continue
        holder = now.holder(step.fence)
        by = "" if holder is None else f", by {holder.label}"
        yield StoryEvent(f"step {name}", step.finished_at or now.at, f"step {number}, {name}: done{by}")


def _doubt(now: Snapshot) -> Iterator[StoryEvent]:
    """Yield the events of the effect during which the kill comes."""
    number, effect = STEPS.index(FATAL_STEP) + 1, now.effect(FATAL_STEP)
    if effect is None:
        return
    identifier, since = short(effect.effect_id), min(effect.updated_at or now.at, now.at)
    if now.world.pids(What.DID, FATAL_STEP):
        yield StoryEvent("armed", now.at, f"step {number}, {FATAL_STEP}: armed as {identifier}, and called", ODD)
        yield StoryEvent("reached", now.at, f"{identifier} is in the ledger: it happened, and is not recorded yet", ODD)
    if not was_in_doubt(effect):
        return
    yield StoryEvent("doubt", since, f"step {number} is in doubt: {effect.note}", ODD)
    for pid in now.world.pids(What.ASKED, FATAL_STEP):
        yield StoryEvent(f"asked {pid}", since, f"{now.label(pid)} asks the world about {identifier}: reconcile")
    if effect.state is EffectState.DONE:
        words = f"it happened: {parse(effect.result or b'null')}; recorded, not repeated"
        yield StoryEvent("settled", since, words, GOOD)
    elif effect.state is EffectState.NEEDS_HUMAN:
        yield StoryEvent("settled", since, f"reconcile found no answer: step {number} is left to a person", BAD)


def _approvals(now: Snapshot) -> Iterator[StoryEvent]:
    for approval in now.approvals:
        if approval.created_at is not None:
            yield StoryEvent(f"asked {approval.id}", approval.created_at, approval.question, ODD)
            yield StoryEvent(f"risk {approval.id}", approval.created_at, _terms(approval))
        if approval.state is not ApprovalState.OPEN:
            words = f"{approval.state} by {approval.decided_by}: {approval.note}"
            yield StoryEvent(f"decided {approval.id}", approval.decided_at or now.at, words, GOOD)


def _terms(approval: Approval) -> str:
    return f"because of {approval.risk}, for these arguments only: {approval.arguments_hash[:12]}"
