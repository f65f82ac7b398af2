"""Agents outside that claim the tasks of a program: each works under a lease, and some go silent, ask or let go.

An agent does one thing at a time whenever it is attended to, and makes a call again whose answer it did not get. What
it did and recorded it notes as a step does, so the same rules judge both.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast import Holdfast, StepState, Task, TaskState
from holdfast.engine.outside import ClaimedTask, LeaseHolder, claim
from holdfast.model.codec import decode
from holdfast.model.errors import Conflict, DeadlineExceeded, LeaseLost, StoreUnavailable
from holdfast.model.task import DEFAULT_QUEUE, HANDOVER
from tests.proof.program_fuzz.grammar import Case, Node
from tests.proof.program_fuzz.records import Records, checksum

REFUSED = (LeaseLost, DeadlineExceeded, Conflict)
"""How a holder learns that the task is no longer its own."""
BUSY = 0.6
"""How often an agent does the next thing at once."""
AGAIN = 0.3
"""How often an agent repeats a call that was answered, as one does that lost the answer."""


@dataclass
class Hand:
    """One claim, and how far its agent is."""

    taken: ClaimedTask
    holding: LeaseHolder
    label: str
    steps: int
    trouble: str
    gives_up: bool
    is_forked: bool
    recorded: set[str] = field(default_factory=set)
    under_way: str | None = None
    """What it did and has not recorded."""
    silent: bool = False

    @property
    def task(self) -> Task:
        return self.taken.task


class OutsideAgents:
    """All agents outside of one case."""

    def __init__(
        self,
        case: Case,
        records: Records,
        hold: Holdfast,
        *,
        seconds: float,
        fork: Callable[[str], Awaitable[None]],
    ) -> None:
        """``seconds`` is how long each may stay silent, ``fork`` forks a task."""
        self._records = records
        self._hold = hold
        self._seconds = seconds
        self._fork = fork
        self._nodes = {node.id: node for node in case.body.walk()}
        ops = [node for node in self._nodes.values() if node.op == "outside" or node["claimable"]]
        self._names = [HANDOVER, *(f"child-{node.id}" for node in ops if node["claimable"])]
        self._is_needed = bool(ops)
        self._hands: list[Hand] = []
        self._dice = random.Random(f"outside {case.seed}")

    async def attend(self) -> None:
        """Let each holder do the next thing, or more, then claim what there is."""
        if not self._is_needed:
            return
        for hand in self._hands.copy():
            try:
                while not (is_over := await self._go_on(hand)) and not hand.silent and self._dice.random() < BUSY:
                    pass
            except REFUSED:
                is_over = True
            except StoreUnavailable:
                continue  # the same again next time
            if is_over:
                self._hands.remove(hand)
        while await self._claim():
            pass

    async def _claim(self) -> bool:
        """Claim one task; return whether there was one."""
        by = f"outside {self._records.count('claims', '') + 1}"
        try:
            taken = await claim(self._hold, by=by, names=self._names, queues=[DEFAULT_QUEUE], seconds=self._seconds)
        except StoreUnavailable:
            return False  # if it was claimed, its lease lapses
        if taken is not None:
            self._hands.append(self._take(taken, by))
        return taken is not None

    def _take(self, taken: ClaimedTask, by: str) -> Hand:
        task = taken.task
        label = label_of(task)
        node = self._nodes[node_of(label)]
        self._records.write("claims", "")
        self._records.write("claimed", label)
        turn = self._records.count("claimed", label) - 1
        troubles = node["troubles"] or []
        hand = Hand(
            taken=taken,
            holding=LeaseHolder(self._hold, taken.lease, by=by),
            label=label,
            steps=node["steps"] or 1,
            trouble=troubles[turn] if turn < len(troubles) else self._visit(node),
            gives_up=0 <= turn - len(troubles) < (node["gives_up"] or 0),
            is_forked=turn == 0 and bool(node["forked"]),
        )
        for step in taken.steps:
            name = step.key.removeprefix("outside:")
            if step.state is StepState.COMPLETED and name != step.key and step.round == task.round:
                hand.recorded.add(name)
                self._note("value", hand, name, sum=checksum(decode(step.output or b"null")))
        return hand

    def _visit(self, node: Node) -> str:
        """A task that has code of its own mostly goes back to its worker."""
        return "release" if node.op == "child" and self._dice.random() < 0.7 else ""

    async def _go_on(self, hand: Hand) -> bool:
        """Do the next thing; return whether the agent is done with the task."""
        if hand.silent:
            return await self._speak_too_late(hand)
        task = await hand.holding.renew()
        if task.cancel_requested is not None:
            await hand.holding.release("to be cancelled")
            return True
        name = next((name for number in range(hand.steps) if (name := f"o{number}") not in hand.recorded), None)
        if name is None:
            return await self._end(hand)
        if await self._record(hand, name) and len(hand.recorded) == 1:
            return await self._be_in_trouble(hand)
        return False

    async def _record(self, hand: Hand, name: str) -> bool:
        """Do a step and record it; return whether it got that far."""
        value = f"{hand.label}/{name} under {hand.task.fence}"
        if hand.under_way != name:
            hand.under_way = name
            self._note("ran", hand, name)
            if hand.trouble == "silent before":
                hand.silent = True
                return False
        hand.recorded.add(name)
        try:
            await hand.holding.complete_step(name, value)
        except Conflict as error:
            self._accuse(hand, f"{name} was recorded before, and the claim did not show it: {error}")
            return True
        except StoreUnavailable:
            hand.recorded.discard(name)
            raise
        self._note("value", hand, name, sum=checksum(value))
        if self._dice.random() < AGAIN and not (await hand.holding.complete_step(name, value)).replayed:
            self._accuse(hand, f"{name} was recorded twice")
        return True

    async def _be_in_trouble(self, hand: Hand) -> bool:
        if hand.is_forked:
            await self._fork(hand.task.id)
        match hand.trouble:
            case "silent after":
                hand.silent = True
            case "ask":
                await hand.holding.ask(f"answer {hand.label}/{hand.task.fence}")
            case "release":
                await hand.holding.release("for the next one")
            case _:
                return False
        return not hand.silent

    async def _end(self, hand: Hand) -> bool:
        if hand.gives_up and hand.task.name == HANDOVER:
            await hand.holding.give_up("it cannot be done")
            return True
        result = f"{hand.label} in round {hand.task.round}"
        self._records.write("finishes", hand.task.id)
        await hand.holding.finish(result)
        if self._dice.random() < AGAIN and not (await hand.holding.finish(result)).replayed:
            self._accuse(hand, "it was finished twice")
        return True

    async def _speak_too_late(self, hand: Hand) -> bool:
        """Stay silent until the task is in other hands; then have everything refused."""
        task = await self._hold.store.get(hand.task.id)
        if task is not None and task.fence == hand.task.fence and task.state is TaskState.RUNNING:
            return False
        for call in (hand.holding.complete_step("too late", "too late"), hand.holding.finish("too late")):
            try:
                await call
            except (*REFUSED, StoreUnavailable):
                continue
            except Exception as error:  # noqa: BLE001 - its kind is the verdict
                if task is not None:
                    self._accuse(hand, f"a holder that lost the task got {error!r}")
                continue
            self._accuse(hand, "a holder that lost the task wrote to it")
        return True

    def _note(self, what: str, hand: Hand, name: str, **more: object) -> None:
        key = f"outside:{name}"
        about = {"node": node_of(hand.label), "task": hand.task.id, "round": hand.task.round, "key": key, "branch": ""}
        self._records.write(what, f"{hand.label}/{name}", **about, **more)

    def _accuse(self, hand: Hand, note: str) -> None:
        self._records.write("wrong", hand.label, note=note)


def label_of(task: Task) -> str:
    """Return what a task was submitted with: the label of its intent."""
    given: Any = task.user_input["args"] if isinstance(task.user_input, dict) else task.user_input
    return str(given[0])


def node_of(label: str) -> str:
    """Return the id of the node that a label speaks of: ``task/n4[0]/n5@2`` of ``n5``."""
    return re.split(r"[\[@]", label.rpartition("/")[2])[0]
