"""Checkpoints: when an agent's journal is made durable, and snapshots of its state to resume from.

    strategy            durable after                        a crash costs at most
    every_step          every model answer and tool result   the call under way
    every_iteration     every round of answer and results    one model answer and its pure results
    on_state_change     every change of the task's state     model answers and lookups since then

Only model answers and results of pure tools wait. A call that touches the world, asks a person, calls another agent or
reserves part of a budget first makes everything before it durable.

A checkpoint is a cached fold of the patches in the journal, never the only copy of anything. A damaged checkpoint is
skipped: the one before it, or the journal alone, gives the same state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import canonical, parse
from holdfast.model.checks import check_integer
from holdfast.model.errors import CheckpointExpired, CodecError, HoldfastError, InvalidValue
from holdfast.model.operations import Operation, RotateCheckpoints, SaveCheckpoint
from holdfast.model.records import Checkpoint
from holdfast.model.transitions import TaskState, Transition

SCHEMA: Final = 1
"""The schema version of a checkpoint's body."""

SMALL: Final = 1_024
"""Bytes. A state up to this size is saved each time. A larger state is saved when the patches since the last checkpoint
are as large as that checkpoint. So the checkpoints together stay in proportion to the journal."""


SMALL_FOR_ITERATION: Final = 16_384
"""Bytes. With ``every_iteration``, a state up to this size is saved after every iteration. An iteration writes an
answer and its results, so the checkpoints stay in proportion to the journal."""


class CheckpointStrategy(StrEnum):
    """When an agent's journal is made durable."""

    EVERY_STEP = "every_step"
    EVERY_ITERATION = "every_iteration"
    ON_STATE_CHANGE = "on_state_change"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """A policy: ``Agent(checkpoint=Checkpoints("every_iteration", max_age=timedelta(hours=1)))``."""

    strategy: CheckpointStrategy | str = CheckpointStrategy.EVERY_STEP
    max_age: timedelta | None = timedelta(days=7)
    """A task idle for longer is resumed only with ``hold.resume(task, accept_stale=True)``. The time in which it waited
    is not counted. None: never too old."""
    max_count: int = 20
    """Checkpoints beyond this many that are also older than ``max_age`` are deleted."""

    def __post_init__(self) -> None:
        """Reject a policy that cannot be followed."""
        try:
            object.__setattr__(self, "strategy", CheckpointStrategy(self.strategy))
        except ValueError:
            raise InvalidValue(
                f"checkpoint is {self.strategy!r}; choose one of {', '.join(CheckpointStrategy)}, or write "
                'Checkpoints("every_step", max_age=..., max_count=...)'
            ) from None
        if self.max_age is not None and (not isinstance(self.max_age, timedelta) or self.max_age <= timedelta()):
            raise InvalidValue(f"max_age is {self.max_age!r}; give a timedelta above 0, or None for no limit")
        check_integer("max_count", self.max_count, lowest=1)

    def rotation(self, now: datetime) -> RotateCheckpoints:
        """Return the operation that deletes the checkpoints this policy does not keep."""
        before = now if self.max_age is None else now - self.max_age
        return RotateCheckpoints(keep=self.max_count, before=before)


class Saver:
    """Decides, for one task, whether a state is worth a checkpoint now, and makes it."""

    def __init__(self, policy: Checkpoints, last: Checkpoint | None, number: int) -> None:
        """``number`` is the highest number in use; ``last`` is the newest undamaged checkpoint."""
        self._policy = policy
        self._number = number
        self._last = (0, -1) if last is None else (len(last.body), last.version)
        self._position = -1 if last is None else last.position
        self._grown = 0

    def note(self, patch: bytes) -> None:
        """Count a patch that was applied since the last checkpoint."""
        self._grown += len(patch)

    def save(
        self, state: AgentState, version: int, position: int, now: datetime, *, ends_iteration: bool = False
    ) -> tuple[Operation, ...]:
        """Return the operations that save the state and delete old checkpoints; none if a checkpoint costs too much.

        ``ends_iteration``: every iteration gets a checkpoint, even if the state did not change, unless the state is
        large.
        """
        size, saved = self._last
        is_worth_it = version != saved and (size <= SMALL or self._grown >= size)
        if not is_worth_it and (not ends_iteration or position == self._position):
            return ()
        try:
            made = make_checkpoint(state, number=self._number + 1, version=version, position=position)
        except CodecError:
            return ()  # states of old stores can be too large for one value; the journal has all of it
        if not is_worth_it and len(made.body) > SMALL_FOR_ITERATION:
            return ()
        self._number += 1
        self._last, self._position, self._grown = (len(made.body), version), position, 0
        return SaveCheckpoint(made), self._policy.rotation(now)


def make_checkpoint(state: AgentState, *, number: int, version: int, position: int) -> Checkpoint:
    """Return the checkpoint of a state."""
    body = canonical(state.to_json())
    return Checkpoint(
        number=number, position=position, version=version, body=body, checksum=checksum_of(body), schema=SCHEMA
    )


def checksum_of(body: bytes) -> str:
    """Return the checksum of a checkpoint's body."""
    return hashlib.sha256(body).hexdigest()


def damage_of(checkpoint: Checkpoint) -> str | None:
    """Return what is wrong with a checkpoint; None if it is good."""
    if checkpoint.schema != SCHEMA:
        return f"its schema is {checkpoint.schema}, this version reads {SCHEMA}"
    if checksum_of(checkpoint.body) != checkpoint.checksum:
        return "its checksum does not match"
    try:
        AgentState.from_json(parse(checkpoint.body))
    except (HoldfastError, ValueError) as error:
        return f"its state cannot be read: {error}"
    return None


def age_of(history: Sequence[Transition], last_activity: datetime, now: datetime) -> timedelta:
    """Return the age of a task's knowledge: the time since its last activity, minus the time it waited."""
    waited = timedelta()
    for move, following in zip(history, [*history[1:], None], strict=True):
        if move.to_state is TaskState.WAITING:
            end = now if following is None else following.at
            waited += max(min(end, now) - max(move.at, last_activity), timedelta())
    return max(now - last_activity - waited, timedelta())


def check_age(policy: Checkpoints, task_id: str, age: timedelta) -> None:
    """Raise CheckpointExpired if the age is above the policy's ``max_age``."""
    if policy.max_age is not None and age > policy.max_age:
        raise CheckpointExpired(
            f"what task {task_id} knows is {_display(age)} old, more than max_age ({_display(policy.max_age)}): the "
            "world may have changed meanwhile. Continue with hold.resume(task, accept_stale=True), or start over with "
            "hold.retry"
        )


def _display(span: timedelta) -> str:
    return str(span - timedelta(microseconds=span.microseconds))
