"""What the tests of effects share: a world that remembers what was done to it, and ways to look at effects."""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast import Absent, Doubt, Effect, EffectState, Handle, Happened, Holdfast, StepState, current_effect_id
from holdfast.model.commit import Commit, Verdict
from holdfast.model.operations import WriteEffect
from tests.engine.support import steps_of, until

PATIENCE = 60.0
"""Real seconds in which a function that hangs is let go at the latest."""

A_WHILE = 3.0
"""Real seconds: a timeout that a test waits for, and a busy machine still does everything that comes before it in."""

Send = Callable[[Sequence[Commit]], Awaitable[list[Verdict]]]


@dataclass(slots=True)
class World:
    """The service outside: what really happened there, by the id it was asked under."""

    happened: list[str] = field(default_factory=list)
    """The effect id of each call that took effect."""
    calls: list[str] = field(default_factory=list)
    """The effect id of each call that arrived."""
    amounts: list[Any] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The effect ids that a reconcile asked about."""
    raises: list[BaseException | None] = field(default_factory=list)
    """What the next calls raise, instead of taking effect; None: nothing."""
    on_call: Callable[[Any], Awaitable[None]] | None = None
    """What else happens while an asynchronous call is under way; it gets the amount."""
    gate: threading.Event = field(default_factory=threading.Event)
    """What a call that hangs waits for."""

    async def pay(self, amount: Any, effect_id: str) -> str:  # noqa: ANN401
        """Take effect, unless an error is due."""
        paid = self._pay(amount, effect_id)
        if self.on_call is not None:
            await self.on_call(amount)
        return paid

    def pay_blocking(self, amount: Any, effect_id: str) -> str:  # noqa: ANN401
        """Do the same in a thread."""
        return self._pay(amount, effect_id)

    def _pay(self, amount: Any, effect_id: str) -> str:  # noqa: ANN401
        assert current_effect_id() == effect_id
        self.calls.append(effect_id)
        self.amounts.append(amount)
        error = self.raises.pop(0) if self.raises else None
        if error is not None:
            raise error
        self.happened.append(effect_id)
        return f"paid {amount}"

    async def pay_then_lose_the_answer(self, amount: Any, effect_id: str) -> str:  # noqa: ANN401
        """Take effect, and fail all the same."""
        self._pay(amount, effect_id)
        raise ConnectionResetError("the connection was lost")

    async def hang(self, amount: Any, effect_id: str) -> str:  # noqa: ANN401
        """Never answer."""
        self._pay(amount, effect_id)
        await asyncio.Event().wait()
        raise AssertionError("this event is never set")

    def hang_blocking(self, amount: Any, effect_id: str) -> str:  # noqa: ANN401
        """Answer when the gate is opened."""
        self.calls.append(effect_id)
        assert self.gate.wait(PATIENCE)
        self.happened.append(effect_id)
        return f"paid {amount} late"

    async def was_paid(self, effect_id: str, amount: Any) -> Happened | Absent:  # noqa: ANN401
        """Return the truth about a call."""
        self.asked.append(effect_id)
        return Happened(f"paid {amount}") if effect_id in self.happened else Absent()

    def release(self) -> None:
        """Let whatever hangs go on."""
        self.gate.set()

    @property
    def doubled(self) -> list[str]:
        """What happened more than once."""
        return [effect_id for effect_id, times in Counter(self.happened).items() if times > 1]


async def never_paid(effect_id: str, *args: object) -> Absent:  # noqa: ARG001
    return Absent()


# Looking


async def effect_of(hold: Holdfast, handle: Handle[Any]) -> Effect:
    """Return the one effect of a task."""
    [effect] = await hold.store.effects(task_id=handle.id)
    return effect


async def effects_by_key(hold: Holdfast, handle: Handle[Any]) -> dict[str, Effect]:
    return {effect.step_key: effect for effect in await hold.store.effects(task_id=handle.id)}


async def stands(hold: Holdfast, handle: Handle[Any], state: EffectState) -> Effect:
    """Return the one effect of a task as soon as it is in this state."""

    async def is_there() -> bool:
        return [effect.state for effect in await hold.store.effects(task_id=handle.id)] == [state]

    await until(is_there)
    return await effect_of(hold, handle)


async def open_doubt(hold: Holdfast, handle: Handle[Any]) -> Doubt:
    """Return the one doubt about a task, as soon as a person is asked, or can be since the task has ended."""
    found: list[Doubt] = []

    async def is_open() -> bool:
        has_ended = (await handle.task()).state.is_terminal
        found[:] = [doubt for doubt in await hold.doubts(handle) if doubt.approval_id is not None or has_ended]
        return bool(found)

    await until(is_open)
    [doubt] = found
    return doubt


async def step_states(hold: Holdfast, handle: Handle[Any]) -> dict[str, StepState]:
    return {key: step.state for key, step in (await steps_of(hold, handle)).items()}


# Standing between the engine and the store


def stand_between(hold: Holdfast, around: Callable[[Sequence[Commit], Send], Awaitable[list[Verdict]]]) -> None:
    """Have ``around`` called in place of the store whenever an attempt commits."""
    send = hold.services.committer._send

    async def send_around(commits: Sequence[Commit]) -> list[Verdict]:
        return await around(commits, send)

    hold.services.committer._send = send_around


def commits_of(hold: Holdfast) -> list[Commit]:
    """Collect every Commit that a worker of this Holdfast sends from now on."""
    sent: list[Commit] = []

    async def around(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        sent.extend(commits)
        return await send(commits)

    stand_between(hold, around)
    return sent


def effects_in(commits: Sequence[Commit]) -> list[Effect]:
    """Return the effects that they write."""
    operations = [operation for commit in commits for operation in commit.operations]
    return [operation.effect for operation in operations if isinstance(operation, WriteEffect)]


def writes(commits: Sequence[Commit], state: EffectState) -> bool:
    """Say whether one of them writes an effect in this state."""
    return any(effect.state is state for effect in effects_in(commits))
