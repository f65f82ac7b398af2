"""The people around a program: they answer, cancel, revive and fork, and decide doubts by what the records say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast import Decision, Doubt, Handle, Happened, Holdfast, StateStore, StepState, Task, TaskFilter, TaskState
from holdfast.engine.manage.fork.ancestry import MARKER
from holdfast.model.budget import Meter
from holdfast.model.errors import Conflict, HoldfastError, NotFound, StoreUnavailable
from holdfast.model.task import DEFAULT_QUEUE
from holdfast.model.transitions import OPEN
from tests.proof.program_fuzz.grammar import Case
from tests.proof.program_fuzz.outage import PAUSE, persist
from tests.proof.program_fuzz.outcomes import truth
from tests.proof.program_fuzz.outside import OutsideAgents, label_of
from tests.proof.program_fuzz.records import Records

MOST = 1000
PRUNED_AFTER = timedelta(seconds=1)
"""How long ago something ended that is pruned."""
LOOKS_AT_PAUSED = 30
"""After so many looks a paused task goes on, whether or not it has left its worker."""

CHANGES_LIMIT_EVERY = 7
"""Looks between two changes of how many tasks may be at work."""
LATER = 300.0
"""Seconds that a task which is brought back gets, if it had a deadline."""
OVER = frozenset({StepState.COMPLETED, StepState.FAILED})


@dataclass(frozen=True)
class Fork:
    """A fork, and the keys that it got completed from its origin: of the round that they share, and of all."""

    task_id: str
    origin: str
    round: int
    shared: frozenset[str]
    known: frozenset[str]


@dataclass
class Office:
    """Acts on one root task and its forks whenever nothing else goes on."""

    case: Case
    records: Records
    hold: Holdfast
    store: StateStore
    outside_lease: float
    """Seconds that an agent outside may stay silent."""
    root: str = ""
    pruned: dict[str, Task] = field(default_factory=dict)
    """What was pruned, as it had ended."""
    forks: list[Fork] = field(default_factory=list)
    revived: int = 0
    cancelled: bool = False
    forked: bool = False

    def __post_init__(self) -> None:
        self._dice = random.Random(f"people {self.case.seed}")
        self._emitted: dict[str, int] = {}
        self._rounds = 0
        self._paused_in: int | None = None
        self._is_paused = True
        self._is_pruned = False
        self._talkative = {node.id: node["messages"] for node in self.case.body.walk() if node["messages"]}
        self._outside = OutsideAgents(self.case, self.records, self.hold, seconds=self.outside_lease, fork=self._fork)

    async def begin(self, labels: Mapping[str, str]) -> None:
        """Submit the program. Where few of its tasks may be at work, that is so from the beginning,
        and they take turns."""
        if self.case.concurrency is not None:
            await self.hold.queue(DEFAULT_QUEUE, concurrency=self.case.concurrency, fair_by="tenant")
        self.root = (await self.hold.submit("main", labels=labels)).id

    async def attend(self) -> bool:
        """Do what is to be done now; say whether all is over."""
        self._rounds += 1
        await self._intervene()
        await self._emit()
        await self._send()
        await self._outside.attend()
        answered = await self._answer() + await self._resolve()
        counts = await self.store.count()
        if answered or set(counts) & OPEN:
            return False
        return not await self._revive()

    async def _intervene(self) -> None:
        size = self.records.size()
        case = self.case
        if case.cancel_after is not None and not self.cancelled and size >= case.cancel_after:
            self.cancelled = True
            self.records.write("cancelled", self.root)
            with suppress(NotFound):  # it had ended, and was pruned
                await persist(lambda: self.hold.cancel(self.root))
        if case.concurrency is not None and self._rounds % CHANGES_LIMIT_EVERY == 0:
            limit = self._dice.choice([case.concurrency, case.concurrency + 1, case.concurrency + 1, None])
            label = None if limit == case.concurrency else "tenant"
            await persist(lambda: self.hold.queue(DEFAULT_QUEUE, concurrency=limit, fair_by=label))
        if case.pause_after is not None and size >= case.pause_after:
            await self._pause_for_a_while()
        if case.fork_after is not None and not self.forked and size >= case.fork_after:
            self.forked = True
            await self._fork(self.root)
        if case.prune_after is not None and not self._is_pruned and size >= case.prune_after:
            await self._prune()

    async def _pause_for_a_while(self) -> None:
        """Pause the task once; unpause it when it has left its worker, or after some looks."""
        if self._paused_in is None:
            self._paused_in = self._rounds
            with suppress(NotFound, Conflict):  # it had ended, and may have been pruned
                await persist(lambda: self.hold.pause(self.root))
        elif self._is_paused:
            task = await persist(lambda: self.store.get(self.root))
            if task is None or task.owner is None or self._rounds > self._paused_in + LOOKS_AT_PAUSED:
                self._is_paused = False
                await persist(lambda: self.hold.unpause(self.root))

    async def _prune(self) -> None:
        """Prune what has ended a while ago: nothing else may go."""
        self._is_pruned = True
        looked_at, before = await persist(self.store.now), await persist(self.tasks)
        await persist(lambda: self.store.prune(PRUNED_AFTER))
        # Where the prune came at once, what went was over when it was looked at.
        is_fast = await persist(self.store.now) - looked_at < PRUNED_AFTER
        for task_id in before.keys() - (await persist(self.tasks)).keys():
            task = self.pruned[task_id] = before[task_id]
            if not task.state.is_terminal and is_fast:
                self.records.write("wrong", task.id, note=f"{task.name} was pruned while it was {task.state}")
            elif not task.state.is_terminal:
                self.records.write("unclear", task.id)

    async def charged(self) -> int:
        """Return what was counted against the budget of the root."""
        return (await self.hold.budget(self.root)).lines[Meter.COST_MICROS].spent

    async def _fork(self, origin: str) -> None:
        task = await persist(lambda: self.store.get(origin))
        if task is None:
            return  # it was pruned
        steps = [
            step.key
            for step in await persist(lambda: self.store.steps(origin))
            if step.round == task.round and step.state in OVER and not step.key.startswith(("holdfast:", "verify/"))
        ]
        at, key = self._dice.choice([None, *steps]), f"fork {len(self.forks)}"
        try:
            handle: Handle[Any] = await persist(lambda: self.hold.fork(origin, at=at, key=key))
        except HoldfastError:
            return  # nothing that can be shared from there
        fork, journal = await persist(handle.task), await persist(lambda: self.store.steps(handle.id))
        marker = next(step.position for step in journal if step.key == MARKER and step.round == fork.round)
        known = [step for step in journal if step.position < marker and step.state is StepState.COMPLETED]
        shared = frozenset(step.key for step in known if step.round == fork.round)
        self.forks.append(Fork(handle.id, origin, fork.round, shared, frozenset(step.key for step in known)))

    async def _emit(self) -> None:
        """Emit what is waited for; again after a while, should a new try wait for it, too."""
        for channel in {line["label"] for line in self.records.lines() if line["what"] == "hears"}:
            last = self._emitted.get(channel)
            if last is None or self._rounds - last >= 25:
                self._emitted[channel] = self._rounds
                await self.hold.emit(channel, f"{channel} after {self._rounds}")

    async def _send(self) -> None:
        """Say something to each agent that is to be talked to: as often as its node says, each time once."""
        for node_id, most in self._talkative.items():
            open_ones = TaskFilter(name=f"agent-{node_id}", states=OPEN)
            for task in (await self.store.find(open_ones, limit=MOST)).items:
                await self._send_to(task, most)

    async def _send_to(self, task: Task, most: int) -> None:
        said = self.records.count("sent", task.id)
        if said < most:
            text = f"{label_of(task)}!{said}"
            try:
                await persist(lambda: self.hold.send(task.id, text, key=text))
            except Conflict:
                return  # it has ended, or is about to be verified
            self.records.write("sent", task.id, text=text)
            with suppress(Conflict):  # as after a lost answer: the same message again
                await self.hold.send(task.id, text, key=text)

    async def _answer(self) -> int:
        answered = 0
        for asked in await self.hold.approvals(limit=MOST):
            what = asked.question.partition(" ")[0]
            try:
                if what in {"approve", "May"}:  # an agent may call its tool
                    await self.hold.approve(asked.id, by="anna")
                elif what == "reject":
                    await self.hold.reject(asked.id, by="ben")
                elif what == "answer":
                    await self.hold.answer(asked.id, f"answer {self._rounds}", by="carla")
                else:
                    continue  # about a doubt
            except Conflict:
                continue  # it was closed meanwhile
            answered += 1
        return answered

    async def _resolve(self) -> int:
        """Resolve every doubt by the records; return how many doubts there are."""
        doubts = await self.hold.doubts(limit=MOST)
        for doubt in doubts:
            if not doubt.decisions:
                continue
            said = truth(self.records, doubt.effect.effect_id)
            try:
                if Decision.UNDONE in doubt.decisions:
                    await self._undo_by_hand(doubt)
                elif isinstance(said, Happened):
                    await self.hold.resolve(doubt, Decision.HAPPENED, result=said.result, by="dora")
                else:
                    await self.hold.resolve(doubt, Decision.ABSENT, by="dora")
            except Conflict:
                continue  # a late report, or the end of its task, was faster
        return len(doubts)

    async def _undo_by_hand(self, doubt: Doubt) -> None:
        """Undo what the engine did not. It may ask for that only where the code of this round never got that far."""
        effect = doubt.effect
        task = await self.store.get(effect.task_id)
        assert task is not None
        if effect.round == task.round:
            self.records.write("stuck", f"{task.name}/{effect.step_key}", note=doubt.question)
        await self._resolve_as_undone(doubt)
        acts = [
            line for line in self.records.lines() if line["what"] == "act" and line.get("effect") == effect.effect_id
        ]
        for act in acts[-1:]:
            self.records.write("undo", act["label"], **{**_place(act), "how": "by hand"})

    async def _resolve_as_undone(self, doubt: Doubt) -> None:
        is_again = False
        while True:
            try:
                await self.hold.resolve(doubt, Decision.UNDONE, by="dora")
            except StoreUnavailable:
                is_again = True
                await asyncio.sleep(PAUSE)
                continue
            except Conflict:
                if not is_again:  # otherwise it was the answer to the first call that was lost
                    raise
            return

    async def _revive(self) -> bool:
        """Bring a failed task back, if the case says so; say whether it was."""
        task = await self.store.get(self.root)
        if task is None or task.state is not TaskState.FAILED or self.revived >= len(self.case.revive):
            return False
        how = self.case.revive[self.revived]
        self.revived += 1
        self.records.write("fixed", "")
        self.records.write("revived", self.root, how=how)
        later = None if self.case.deadline is None else LATER
        if how == "resume":
            await persist(lambda: self.hold.resume(self.root, deadline=later))
        else:
            await persist(lambda: self.hold.retry(self.root, feedback="once more", deadline=later))
        return True

    async def tasks(self) -> dict[str, Task]:
        """All tasks there are, by id."""
        found: dict[str, Task] = {}
        after: Any = None
        while True:
            page = await self.store.find(limit=500, after=after)
            found |= {task.id: task for task in page.items}
            after = page.next
            if after is None:
                return found


def _place(act: dict[str, Any]) -> dict[str, Any]:
    return {name: act[name] for name in ("node", "task", "round", "key", "branch", "value")}
