"""New tasks: from the arguments of ``submit`` to the task that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

from holdfast.engine.api.definition import Bound, Definitions, TaskDefinition
from holdfast.engine.api.handle import Handle
from holdfast.engine.api.start import Start, as_state, limits_with_start, link_artifacts, starting
from holdfast.engine.runtime.services import Services
from holdfast.model.checks import check_moment, check_queue
from holdfast.model.deadline import as_seconds, moment_of
from holdfast.model.errors import Conflict, InvalidValue, KeyConflict, NotFound, TaskExists
from holdfast.model.flow_limit import check_keys
from holdfast.model.ids import new_id
from holdfast.model.patch import StatePatch
from holdfast.model.payload import to_json
from holdfast.model.task import DEFAULT_QUEUE, NO_AGENT, IfExists, NewTask, Submitted, Task
from holdfast.store.backend import UserSubmission
from holdfast.store.base import StateStore

DEBOUNCES = 10
"""After so many times its ``debounce=`` a task begins, unless ``debounce_max=`` says otherwise."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task that is ready to be stored."""

    new: NewTask
    definition: TaskDefinition[..., Any] | None
    start: StatePatch | None
    """What an agent's state holds from the beginning."""


async def submit_task(
    services: Services,
    task: Any,  # noqa: ANN401 - a definition, with its arguments or without, or a name
    args: Sequence[Any],
    *,
    connection: object = None,
    **options: Any,  # noqa: ANN401
) -> Handle[Any]:
    """Store a task; return its handle. For options see ``prepare``. Raises KeyConflict if another task has its key."""
    if connection is not None:
        prepared, submission = await begin_submission(services, connection, task, args, **options)
        [answer] = await submission.write()
    else:
        prepared = await prepare(services, task, args, **options)
        answer = await services.submitter.put(prepared.new)
    return await finish(services, prepared, answer)


async def begin_submission(
    services: Services,
    connection: object,
    task: Any,  # noqa: ANN401 - as above
    args: Sequence[Any],
    **options: Any,  # noqa: ANN401
) -> tuple[Prepared, UserSubmission]:
    """Return a task, and how it is stored in the open transaction of the caller's connection; then ``finish`` it."""
    prepared = await prepare(services, task, args, **options)
    if prepared.start is not None and prepared.start.add_artifacts:
        raise InvalidValue(
            "artifacts= and connection= exclude each other: an artifact is linked to its task in a transaction of "
            "Holdfast's own, and the task is not there before yours is committed"
        )
    return prepared, await services.store.submission_on(connection, [prepared.new])


async def prepare(
    services: Services,
    task: Any,  # noqa: ANN401 - as above
    args: Sequence[Any],
    *,
    start: Start,
    after: str | None = None,
    **options: Any,  # noqa: ANN401
) -> Prepared:
    """Return the task to store. ``after`` is the id of the task that it continues; for options see ``new_task``."""
    store, definitions = services.store, services.definitions
    args, start = as_state(definitions, task, tuple(args), start)
    given: StatePatch | None = None
    if not start.is_empty:
        [task], given = await starting(store, definitions, task, [args], start)
        args = ()
    if after is not None:
        task, args = await continuing(store, definitions, task, args, after), ()
    new, definition = new_task(definitions, task, args, now=services.time.now(), **options)
    return Prepared(new, definition, given)


async def finish(services: Services, prepared: Prepared, answer: Submitted) -> Handle[Any]:
    """Return the handle of the task, from the store's answer to its submission. Raises KeyConflict."""
    handle = await handle_of(services, prepared.new, answer, prepared.definition)
    if prepared.start is not None:
        await link_artifacts(services.store, [handle.id], prepared.start, by=prepared.new.actor)
    return handle


async def handle_of(
    services: Services, new: NewTask, answer: Submitted, definition: TaskDefinition[..., Any] | None
) -> Handle[Any]:
    """Return the handle of a submitted task, from the store's answer. Raises KeyConflict."""
    if new.if_exists is IfExists.REJECT and not answer.created and answer.task_id != new.id:
        raise TaskExists(new.name, new.key or new.id, answer.task_id)
    if answer.conflict and not await was_submitted_before(services.store, services.definitions, new, answer.task_id):
        raise KeyConflict(new.name, new.key or new.id, answer.task_id, replaces=new.replaces)
    services.note_due(new.available_at)
    return Handle(services, answer.task_id, Any if definition is None else definition.returns)


def new_task(
    definitions: Definitions,
    task: TaskDefinition[..., Any] | Bound[Any] | str,
    args: Sequence[Any],
    *,
    now: datetime,
    key: str | None = None,
    queue: str | None = None,
    priority: int | None = None,
    deadline: float | timedelta | datetime | None = None,
    delay: float | timedelta | None = None,
    at: datetime | None = None,
    if_exists: IfExists | str = IfExists.RETURN,
    debounce: float | timedelta | None = None,
    debounce_max: float | timedelta | None = None,
    agent_id: str | None = None,
    labels: Mapping[str, str] | None = None,
    limits: Sequence[str] = (),
    by: str = "submit",
) -> tuple[NewTask, TaskDefinition[..., Any] | None]:
    """Return the task to store, and its definition if this process has it.

    A name without a definition here needs ``queue``: the task is then stored for workers in other processes that define
    it.
    """
    definition: TaskDefinition[..., Any] | None
    if isinstance(task, Bound):
        if args:
            raise InvalidValue("give the arguments to bind() or to submit(), not to both")
        definition, user_input = task.definition, task.user_input
    else:
        definition = definitions.get(task) if isinstance(task, str) else task
        if definition is None and queue is None:
            similar = get_close_matches(str(task), definitions.names, n=1)
            raise InvalidValue(
                f"no task named {task!r} is defined here"
                + (f" (did you mean {similar[0]!r}?)" if similar else "")
                + "; define it, or give its queue= to submit it for workers elsewhere"
            )
        if definition is not None and not isinstance(definition, TaskDefinition):
            raise InvalidValue(
                f"{task!r} is not a task; submit a function that is decorated with @hold.task, a task by its name, or "
                "what hold.register returned for an agent or a machine"
            )
        user_input = (
            [to_json(value, name=f"argument {number}") for number, value in enumerate(args, 1)]
            if definition is None
            else definition.write_input(args, {})
        )
    longest = longest_delay(debounce, debounce_max)
    if longest is not None and (delay is not None or at is not None):
        raise InvalidValue("debounce= says when the task begins; leave out delay= and at=")
    limit = deadline if deadline is not None else (definition.deadline if definition else None)
    new = NewTask(
        id=new_id(),
        name=definition.name if definition else str(task),
        user_input=user_input,
        agent_id=agent_id or (definition.agent_id if definition else NO_AGENT),
        queue=check_queue(queue) if queue else (definition.queue if definition else DEFAULT_QUEUE),
        priority=priority if priority is not None else (definition.priority if definition else 0),
        key=key,
        available_at=start_of(delay if debounce is None else debounce, at, now),
        deadline=None if limit is None else moment_of(limit, now),
        budget=limits_with_start(definition, user_input) if definition else {},
        actor=by,
        labels={} if labels is None else labels,
        limits=check_keys([*(definition.limits if definition else ()), *check_keys(limits)]),
        if_exists=as_if_exists(if_exists),
        debounce_max=longest,
    )
    return new, definition


def as_if_exists(given: IfExists | str) -> IfExists:
    """Return what to do with an existing task, given as a member or as its word."""
    try:
        return IfExists(given)
    except ValueError:
        raise InvalidValue(
            f"if_exists is {given!r}; choose one of {', '.join(map(repr, map(str, IfExists)))}"
        ) from None


def longest_delay(debounce: float | timedelta | None, longest: float | timedelta | None) -> timedelta | None:
    """Return how long submissions may put off a debounced task, in all; None without debounce."""
    if debounce is None:
        if longest is not None:
            raise InvalidValue("debounce_max= limits a debounce=; give both, or neither")
        return None
    seconds = as_seconds(debounce, what="debounce")
    most = seconds * DEBOUNCES if longest is None else as_seconds(longest, what="debounce_max")
    if most < seconds:
        raise InvalidValue(f"debounce_max is {most:g} seconds, less than debounce with {seconds:g}; give more")
    return timedelta(seconds=most)


def start_of(delay: float | timedelta | None, at: datetime | None, now: datetime) -> datetime | None:
    """Return before which time a task is not claimed; None for one that can be claimed at once."""
    if at is None:
        return None if delay is None else now + timedelta(seconds=as_seconds(delay, what="the delay"))
    if delay is not None:
        raise InvalidValue("delay= and at= both say when the task begins; give one of them")
    check_moment("at", at)
    return at if at > now else None


def is_same_input(definitions: Definitions, stored: Task, new: NewTask) -> bool:
    """Return whether two tasks have the same arguments. Earlier versions stored them unchecked."""
    definition = definitions.get(new.name)
    if definition is None:
        return bool(stored.user_input == new.user_input)
    return definition.is_same_input(stored.user_input, new.user_input)


async def was_submitted_before(store: StateStore, definitions: Definitions, new: NewTask, task_id: str) -> bool:
    """Return whether the stored task with this key is the same task, although its input is stored differently."""
    stored = await store.get(task_id)
    return stored is not None and stored.name == new.name and is_same_input(definitions, stored, new)


async def continuing(
    store: StateStore,
    definitions: Definitions,
    task: TaskDefinition[..., Any] | Bound[Any] | str,
    args: Sequence[Any],
    previous_id: str,
) -> Bound[Any]:
    """Return an agent's task with its arguments, which continues a task that has ended."""
    named: dict[str, Any] = {}
    definition: object = definitions.get(task) if isinstance(task, str) else task
    if isinstance(definition, Bound):
        if args:
            raise InvalidValue("give the arguments to bind() or to submit(), not to both")
        bound, definition = definition, definition.definition
        args, named = definition.read_input(bound.user_input)
    if not isinstance(definition, TaskDefinition) or not definition.takes("after"):
        raise InvalidValue(f"{task!r} cannot continue another task with after=; only agents registered here can")
    previous = await store.get(previous_id)
    if previous is None:
        where = "in this store to continue: it was pruned, or the id or the database URL is wrong"
        raise NotFound("task", previous_id, where=where)
    if not previous.state.is_terminal:
        raise Conflict(
            f"task {previous_id} is {previous.state} and has not ended; send it a message with hold.send(task, text), "
            "or wait for its result"
        )
    return definition.bind(*args, **{**named, "after": previous_id})
