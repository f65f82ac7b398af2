"""Everything about one task on one page: what it is, where it stands, what it used, what happened last."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.agent.text_stream import TEXT
from holdfast.engine.api.holdfast import Holdfast
from holdfast.engine.manage.fork import fork
from holdfast.engine.manage.fork.ancestry import Origin
from holdfast.engine.manage.message import inbox
from holdfast.engine.steps.waits import event_channel
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Approval
from holdfast.model.budget import Ledger
from holdfast.model.doubt import Doubt
from holdfast.model.errors import NotFound
from holdfast.model.pause import Pause, pause_of
from holdfast.model.queries import TaskFilter
from holdfast.model.records import ArtifactLink, Event
from holdfast.model.step import Step, StepState
from holdfast.model.task import JsonValue, Task
from holdfast.model.transitions import OPEN, TaskState, Transition
from holdfast.model.worker import Worker
from holdfast.service import forms
from holdfast.service.limits import keys_waited_for, read_uses
from holdfast.service.situation import Situation, SituationEvidence, situation_of

_LAST_EVENTS = 20
_PAGE = 500
_MOST_READ = 5_000
"""Events that are looked through, the latest first, for those that are not pieces of streamed text."""
_FAMILY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One line of an agent's plan."""

    text: str
    is_done: bool
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One task, as one page shows it."""

    task: Task
    situation: Situation
    pause: Pause | None
    """What keeps it from being claimed."""
    at: datetime
    """When it was read, by the store's clock."""
    steps: Sequence[Step]
    history: Sequence[Transition]
    approvals: Sequence[Approval]
    """The open ones."""
    doubts: Sequence[Doubt]
    budget: Ledger
    worker: Worker | None
    """Who holds it."""
    children: Mapping[TaskState, int]
    origin: Origin | None
    """What it was forked from."""
    state: AgentState | None
    artifacts: Sequence[ArtifactLink]
    events: Sequence[Event]
    """The last events it reported, oldest first. Pieces of streamed text are left out: the steps have all of it."""
    earlier_events: int | None
    """How many it reported before these; None where there are too many to count."""
    messages: Sequence[Event]
    """The last messages that were sent to it."""
    earlier_messages: int
    """How many were sent to it before these."""
    family: Sequence[Task]
    """The first of its children."""

    @property
    def plan(self) -> tuple[PlanStep, ...]:
        """The agent's plan, with what is done of it."""
        if self.state is None:
            return ()
        done, current = set(self.state.completed_steps), self.state.current_step
        return tuple(
            PlanStep(text=text, is_done=text in done, is_current=text == current and text not in done)
            for text in self.state.plan
        )

    @property
    def step_counts(self) -> dict[StepState, int]:
        """How many steps of the current round are in which state."""
        newest = max((step.round for step in self.steps), default=1)
        states = [step.state for step in self.steps if step.round == newest]
        return {state: states.count(state) for state in StepState if state in states}

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form."""
        return {
            "task": forms.task_form(self.task),
            "now": self.situation.now,
            "why": self.situation.why,
            "then": [upcoming.to_json() for upcoming in self.situation.then],
            "next": [advice.to_json() for advice in self.situation.next],
            "paused": None if self.pause is None else forms.pause_form(self.pause),
            "at": forms.moment(self.at),
            "plan": [{"text": step.text, "is_done": step.is_done, "is_current": step.is_current} for step in self.plan],
            "steps": {str(state): count for state, count in self.step_counts.items()},
            "budget": forms.budget_form(self.budget),
            "approvals": [forms.approval_form(approval) for approval in self.approvals],
            "doubts": [forms.doubt_form(doubt) for doubt in self.doubts],
            "worker": None if self.worker is None else forms.worker_form(self.worker),
            "children": {str(state): count for state, count in self.children.items()},
            "forked_from": None if self.origin is None else {"task_id": self.origin.task_id, "step": self.origin.step},
            "artifacts": [forms.artifact_form(link) for link in self.artifacts],
            "history": [forms.transition_form(move) for move in self.history],
            "events": [forms.event_form(event) for event in self.events],
            "messages": [forms.event_form(message) for message in self.messages],
        }


async def read_overview(hold: Holdfast, task_id: str) -> Overview:
    """Read everything about a task. Raises NotFound."""
    store = hold.store
    task = await store.get(task_id)
    if task is None:
        raise NotFound("task", task_id)
    # In this order, so that a reader who follows the task sees a step before the move that came after it.
    history, steps = await store.history(task_id), await store.steps(task_id)
    workers, at = await store.workers(), await store.now()
    children = await store.count(TaskFilter(parent_id=task_id))
    approvals, doubts = await hold.approvals(task_id), await hold.doubts(task_id)
    reports, earlier = await last_reports(hold, task_id)
    messages, last_message = await _last_events(hold, inbox(task_id))
    pauses = await store.pauses()
    pause = pause_of(pauses, task_id=task.id, name=task.name, queue=task.queue)
    evidence = SituationEvidence(
        task=task,
        steps=steps,
        approvals=approvals,
        doubts=doubts,
        open_children=sum(count for state, count in children.items() if state in OPEN),
        workers=workers,
        at=at,
        pause=pause,
        pauses=pauses,
        uses=await read_uses(hold, keys_waited_for(task, steps)),
        is_gone=task.owner is not None and hold.services.is_gone(task.owner, workers),
    )
    return Overview(
        task=task,
        situation=situation_of(evidence),
        pause=None if task.state.is_terminal else pause,
        at=at,
        steps=steps,
        history=history,
        approvals=approvals,
        doubts=doubts,
        budget=await hold.budget(task_id),
        worker=next((worker for worker in workers if worker.id == task.owner), None),
        children=children,
        origin=await fork.forked_from(store, task_id),
        state=await hold.state(task_id) if task.version else None,
        artifacts=await store.artifact_links(task_id),
        events=reports,
        earlier_events=earlier,
        messages=messages,
        earlier_messages=last_message - len(messages),
        family=(await store.find(TaskFilter(parent_id=task_id), limit=_FAMILY, newest_first=False)).items,
    )


async def last_reports(hold: Holdfast, task_id: str, most: int = _LAST_EVENTS) -> tuple[list[Event], int | None]:
    """Return the last events a task reported, oldest first, and how many came before them; None if not known.

    Text that a model streams is not among them: one answer comes in dozens of pieces.
    """
    channel, found = event_channel(task_id), deque[Event]()
    behind = last = await hold.store.position(channel)
    while behind > 0 and last - behind < _MOST_READ:
        begin = max(0, behind - _PAGE)
        page = await hold.store.events(channel, after=begin, limit=behind - begin)
        found.extendleft(event for event in reversed(page) if not _is_piece(event))
        behind = begin
    reports = list(found)
    return reports[-most:], None if behind else max(0, len(reports) - most)


def _is_piece(event: Event) -> bool:
    return isinstance(event.payload, dict) and event.payload.get("kind") == TEXT


async def _last_events(hold: Holdfast, channel: str) -> tuple[list[Event], int]:
    """Return the last events of a channel, oldest first, and how many there were."""
    last = await hold.store.position(channel)
    return await hold.store.events(channel, after=max(0, last - _LAST_EVENTS), limit=_LAST_EVENTS), last
