"""Messages to a task, which it reads when it is ready."""

from __future__ import annotations

from holdfast.engine.api.definition import Definitions
from holdfast.model.checks import check_name, check_text
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import Conflict, InvalidValue, NotFound
from holdfast.model.operations import Emit
from holdfast.model.state_size import MESSAGE_BYTES, check_size
from holdfast.model.task import JsonValue
from holdfast.model.transitions import TaskState
from holdfast.store.base import StateStore

MESSAGE = "message"
"""The kind of the journal line of a message that the task has read: with its number, text and sender."""

_LISTENING = frozenset({TaskState.PENDING, TaskState.RUNNING, TaskState.WAITING})


INBOX = "inbox:"
"""The prefix of channels that only ``send`` may use."""


def inbox(task_id: str) -> str:
    """Return the channel of messages to a task."""
    return f"{INBOX}{task_id}"


def is_message(payload: JsonValue) -> bool:
    """Return whether an event of an inbox is a message from ``make_message``: anyone with the store can write there."""
    return isinstance(payload, dict) and isinstance(payload.get("text"), str)


def make_message(task_id: str, text: str, *, by: str, key: str | None = None) -> Emit:
    """Return the operation that leaves a message for a task."""
    check_name("by", by)
    if not isinstance(text, str) or not text.strip():
        raise InvalidValue(f"the message is {text!r}; give a text that is not empty")
    check_text("the message", text)
    check_size("the message", text, MESSAGE_BYTES)
    return Emit(channel=inbox(task_id), payload={"text": text, "by": by}, key=key)


async def send(
    store: StateStore, definitions: Definitions, task_id: str, text: str, *, by: str, key: str | None
) -> None:
    """Leave a message for a task. Raises Conflict if the task would not read it any more.

    It is a Commit on the task. So either it arrives before the task ends, and the task goes on, or it is refused.
    """
    task = await store.get(task_id)
    if task is None:
        raise NotFound("task", task_id)
    definition = definitions.get(task.name)
    if definition is not None and not definition.takes("after"):
        raise InvalidValue(
            f"task {task_id} ({task.name}) does not belong to an agent and reads no messages; use hold.emit(channel, "
            "...)"
        )
    guard, operations = Expect(states=_LISTENING), (make_message(task_id, text, by=by, key=key),)
    [verdict] = await store.commit([Commit(task_id=task_id, guard=guard, operations=operations, actor=by)])
    if verdict.applied:
        return
    task = await store.get(task_id)
    if task is None:
        raise NotFound("task", task_id)
    if task.state is TaskState.FAILED:
        raise Conflict(
            f"task {task_id} has failed; send the message with hold.resume(task, message=...), which also resumes it"
        )
    if task.state is TaskState.REVIEW:
        raise Conflict(f"task {task_id} is being verified and reads no messages; wait for the verdict, then send again")
    if task.state.is_terminal:
        raise Conflict(
            f"task {task_id} is {task.state} and reads no more messages; continue from its end with "
            "hold.submit(agent, text, after=handle)"
        )
    raise verdict.error()
