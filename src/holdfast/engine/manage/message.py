"""Talking to a task: messages that it reads when it is ready for them."""

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
"""The kind of the line that says that a task has read one: with its number, its text, and who sent it."""

_LISTENING = frozenset({TaskState.PENDING, TaskState.RUNNING, TaskState.WAITING})


INBOX = "inbox:"
"""Channels with this beginning are for ``send`` alone."""


def inbox(task_id: str) -> str:
    """Return the channel on which a task is talked to."""
    return f"{INBOX}{task_id}"


def is_message(payload: JsonValue) -> bool:
    """Say whether an event of an inbox is what ``spoken`` makes: anybody who has the store can write there."""
    return isinstance(payload, dict) and isinstance(payload.get("text"), str)


def spoken(task_id: str, text: str, *, by: str, key: str | None = None) -> Emit:
    """Return what leaves a message for a task."""
    check_name("by", by)
    if not isinstance(text, str) or not text.strip():
        raise InvalidValue(f"the message is {text!r}; say something")
    check_text("the message", text)
    check_size("the message", text, MESSAGE_BYTES)
    return Emit(channel=inbox(task_id), payload={"text": text, "by": by}, key=key)


async def send(
    store: StateStore, definitions: Definitions, task_id: str, text: str, *, by: str, key: str | None
) -> None:
    """Leave a message for a task. Raises Conflict if the task would not read it any more.

    It is a Commit on the task, so that it comes either before the task ends, which then goes on, or is refused.
    """
    task = await store.get(task_id)
    if task is None:
        raise NotFound("task", task_id)
    definition = definitions.get(task.name)
    if definition is not None and not definition.takes("after"):
        raise InvalidValue(
            f"task {task_id} ({task.name}) is no agent's and reads no messages; use hold.emit(channel, ...)"
        )
    guard, operations = Expect(states=_LISTENING), (spoken(task_id, text, by=by, key=key),)
    [verdict] = await store.commit([Commit(task_id=task_id, guard=guard, operations=operations, actor=by)])
    if verdict.applied:
        return
    task = await store.get(task_id)
    if task is None:
        raise NotFound("task", task_id)
    if task.state is TaskState.FAILED:
        raise Conflict(f"task {task_id} has failed; say it with hold.resume(task, message=...), which also resumes it")
    if task.state is TaskState.REVIEW:
        raise Conflict(f"task {task_id} is being verified and reads no messages; wait for the verdict, then send again")
    if task.state.is_terminal:
        raise Conflict(
            f"task {task_id} is {task.state}, nobody would read it; go on from where it ended with "
            "hold.submit(agent, text, after=handle)"
        )
    raise verdict.error()
