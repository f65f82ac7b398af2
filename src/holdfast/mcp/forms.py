"""The JSON that agents are shown: the forms of ``holdfast.service``, without what only operators need."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.mcp.addresses import artifact_uri, state_uri
from holdfast.mcp.excerpts import shortened, shortened_value
from holdfast.model.agent_state import AgentState
from holdfast.model.step import Step
from holdfast.model.task import HANDOVER, JsonValue, Task
from holdfast.service.forms import Form, limit_waited_for, moment, plain_input, stored, task_form
from holdfast.service.outside import details_of, first_state, shown_steps, their_key

_GOAL = 300
_OUTPUT = 300
_STEPS = 10


def uri_of(task: Task) -> str:
    """Return where the state of a task is."""
    return state_uri(task.agent_id, task.id)


def goal_of(task: Task, state: AgentState | None = None) -> str:
    """Return in one line what a task is about."""
    if state is not None and state.goal:
        return shortened(state.goal, _GOAL)
    match plain_input(task.user_input):
        case [str() as goal, *_] | {"args": [str() as goal, *_]}:
            return shortened(goal, _GOAL)
    return task.name


def line_of(task: Task) -> Form:
    """Return a task as a list shows it."""
    line: Form = {
        "task_id": task.id,
        "name": task.name,
        "agent_id": task.agent_id,
        "state": str(task.state),
        "goal": goal_of(task),
        "queue": task.queue,
        "priority": task.priority,
        "created_at": moment(task.created_at),
        "updated_at": moment(task.updated_at),
        "uri": uri_of(task),
    }
    more: Form = {"labels": dict(task.labels)} if task.labels else {}
    if task.limits:
        more |= {"limits": list(task.limits), "waits_for": limit_waited_for(task)}
    return line | more


def state_form(task: Task, state: AgentState | None) -> Form:
    """Return the shared state of a task: what one agent leaves for the next."""
    known = state if state is not None else first_state(task)
    return {
        "uri": uri_of(task),
        "agent_id": task.agent_id,
        "task_id": task.id,
        "state": str(task.state),
        "plan": [] if known is None else list(known.plan),
        "artifacts": [] if known is None else [artifact_uri(one.artifact_id) for one in known.artifacts],
        "version": task.version,
        "agent_state": None if known is None else known.to_json(),
    }


def detail_of(task: Task) -> Form:
    """Return a task with its input and outcome, without its state."""
    form = task_form(task)
    wanted = ("user_input", "result", "error", "key", "deadline", "feedback", "cancel_requested")
    detail = line_of(task) | {name: form[name] for name in wanted if form[name] is not None}
    if task.name == HANDOVER:
        del detail["user_input"]  # the goal is above, the plan is in the state
        detail |= without_empty({"details": details_of(task)})
    match task.error:
        case {"type": str(), "message": str()}:
            # The place in the code is for people, in `holdfast show`: an agent cannot fix it.
            detail["error"] = without_empty({name: task.error.get(name) for name in ("type", "message", "reason")})
    return detail


def outcome_of(task: Task) -> Form:
    """Return a task's state, and its result or error: short, for a client that polls."""
    detail = detail_of(task)
    return {
        name: detail[name] for name in ("task_id", "state", "result", "error", "cancel_requested") if name in detail
    }


def shared_of(task: Task, state: AgentState | None) -> Form:
    """Return the state of a task for a model: with its version, and without what is empty."""
    known = state if state is not None else first_state(task)
    return {"version": task.version, "agent_state": None if known is None else without_empty(known.to_json())}


def steps_of(steps: Sequence[Step]) -> list[Form]:
    """Return the last steps with their results, under the keys that their agents gave them."""
    return [
        without_empty(
            {
                "key": their_key(step.key),
                "kind": step.kind,
                "state": str(step.state),
                "output": shortened_value(stored(step.output), _OUTPUT),
            }
        )
        for step in shown_steps(steps)[-_STEPS:]
    ]


def without_empty(form: Form) -> dict[str, JsonValue]:
    """Leave out empty values: they cost tokens."""
    return {name: value for name, value in form.items() if value not in (None, [], {}, "")}
