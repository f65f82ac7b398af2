"""Several agents outside on one task: claims, steps, silence, releases, in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import DataObject

from holdfast import Holdfast, ManualClock, Task, TaskState
from holdfast.engine.outside import LeaseToken
from holdfast.model.codec import decode
from holdfast.model.errors import Conflict, LeaseLost
from tests.service.handover.support import NOTHING, Outside, facts, outside_steps, task_of

T = TypeVar("T")

LEASES = (10.0, 30.0)
AGENTS = ("ada", "bob", "cat")
KEYS = tuple("abcdef")


@dataclass
class Held:
    """A granted lease, and until when it holds if its holder stays silent."""

    agent: str
    lease: LeaseToken
    seconds: float
    until: float
    over: bool = False
    """It was given back, or taken: silence ends it with the next sweep, and never sooner."""


class HandoverMachine(RuleBasedStateMachine):
    """One example: an empty store, one task, three agents; what should be true is kept beside it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.hold = Holdfast(url, clock=self.clock)
        self.run(self.hold.__aenter__())
        self.agents = {name: Outside(self.hold, name) for name in AGENTS}
        self.task_id = self.run(self.agents["ada"].offer()).id
        self.given: list[Held] = []
        self.recorded: dict[str, int] = {}
        """The steps that were accepted, with their outputs."""
        self.facts: set[str] = set()

    def teardown(self) -> None:
        self.run(self.hold.__aexit__(None, None, None))
        self.runner.close()

    def run(self, awaited: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(awaited)

    @property
    def now(self) -> float:
        return self.clock.boot()

    @property
    def task(self) -> Task:
        return self.run(task_of(self.hold, self.task_id))

    def is_valid(self, held: Held) -> bool:
        return not held.over and self.now < held.until

    def swept(self) -> None:
        """A holder that was silent for too long has lost the task now."""
        for held in self.given:
            held.over = held.over or self.now >= held.until

    def attempt(self, held: Held, awaited: Coroutine[Any, Any, T]) -> T | LeaseLost | Conflict:
        """Do something under a lease; it is let through if and only if the lease is not over."""
        try:
            answer = self.run(awaited)
        except LeaseLost as lost:
            assert held.over, "a lease that holds was refused"
            return lost
        except Conflict as conflict:  # a step under another output: refused for what it says, not for who says it
            held.until = self.now + held.seconds
            return conflict
        assert not held.over, "a stale holder was let through"
        held.until = self.now + held.seconds
        return answer

    # What agents do

    @rule(agent=st.sampled_from(AGENTS), seconds=st.sampled_from(LEASES), by_id=st.booleans())
    def claim(self, agent: str, seconds: float, by_id: bool) -> None:
        self.swept()  # every claim begins with it
        valid = [held for held in self.given if not held.over]
        try:
            taken = self.run(self.agents[agent].ask(self.task_id if by_id else None, seconds=seconds))
        except Conflict:
            assert valid or self.task.state.is_terminal, "a free task was refused"
            return
        if taken is None:
            assert valid or self.task.state.is_terminal, "a free task was not found"
            return
        assert not valid, "the task was given to two at once"
        self.given.append(Held(agent, taken.lease, seconds, self.now + seconds))

    @rule(data=st.data(), key=st.sampled_from(KEYS), output=st.integers(1, 2))
    def complete_step(self, data: DataObject, key: str, output: int) -> None:
        if (held := self.draw(data)) is None:
            return
        agent = self.agents[held.agent]
        fact = f"{key}={output}"
        answer = self.attempt(held, agent.step(held.lease, key, output, facts(**{fact: output})))
        if isinstance(answer, LeaseLost):
            return
        if isinstance(answer, Conflict):
            assert self.recorded[key] != output
        elif answer:
            assert self.recorded[key] == output
        else:
            assert key not in self.recorded
            self.recorded[key] = output
            self.facts.add(fact)

    @rule(data=st.data())
    def several_at_once(self, data: DataObject) -> None:
        free = [key for key in KEYS if key not in self.recorded][:3]
        if (held := self.draw(data)) is None or not free:
            return
        agent = self.agents[held.agent]
        calls = together(*(agent.step(held.lease, key, 1) for key in free))
        if not isinstance(self.attempt(held, calls), LeaseLost):
            self.recorded |= dict.fromkeys(free, 1)

    @rule(data=st.data())
    def report(self, data: DataObject) -> None:
        if (held := self.draw(data)) is not None:
            self.attempt(held, self.agents[held.agent].holding(held.lease).report("here", None))

    @rule(data=st.data())
    def release(self, data: DataObject) -> None:
        if (held := self.draw(data)) is None:
            return
        answer = self.attempt(held, self.agents[held.agent].holding(held.lease).release("", NOTHING))
        held.over = held.over or not isinstance(answer, LeaseLost)

    @rule(data=st.data())
    def with_a_forged_lease(self, data: DataObject) -> None:
        if (held := self.draw(data)) is None:
            return
        other = data.draw(st.sampled_from([one.lease.secret for one in self.given] + ["guess"]))
        fence = held.lease.fence + data.draw(st.integers(0, 2))
        forged = LeaseToken(self.task_id, fence, other)
        if any(one.lease == forged for one in self.given):
            return  # not forged at all
        try:
            self.run(self.agents[held.agent].step(forged, "forged", 1))
        except LeaseLost:
            # An agent that lives and shows its secret is alive, whatever fence it sends.
            for one in self.given:
                if one.lease.secret == other and not one.over:
                    one.until = self.now + one.seconds
        else:
            raise AssertionError("a forged lease was let through")

    # What time does

    @rule(seconds=st.sampled_from([1.7, 9.3, 11.1, 31.3]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        self.run(self.hold.store.sweep())
        self.swept()

    def draw(self, data: DataObject) -> Held | None:
        return data.draw(st.sampled_from(self.given)) if self.given else None

    # What is always true

    @invariant()
    def at_most_one_lease_holds(self) -> None:
        assert sum(not held.over for held in self.given) <= 1

    @invariant()
    def who_holds_it_is_whom_it_was_given_to(self) -> None:
        task = self.task
        holders = [held for held in self.given if self.is_valid(held)]
        if holders:
            assert task.state is TaskState.RUNNING
            assert (task.owner, task.fence) == (holders[0].lease.worker_id, holders[0].lease.fence)

    @invariant()
    def no_step_is_lost_or_doubled(self) -> None:
        lines = self.run(self.hold.store.steps(self.task_id))
        assert len(lines) == len({line.key for line in lines})
        written = self.run(outside_steps(self.hold, self.task_id))
        assert {key: decode(line.output or b"") for key, line in written.items()} == {
            f"outside:{key}": output for key, output in self.recorded.items()
        }

    @invariant()
    def no_fact_is_lost(self) -> None:
        state = self.run(self.hold.state(self.task_id))
        assert {fact.key for fact in state.known_facts} == self.facts


async def together(*calls: Coroutine[Any, Any, T]) -> list[T]:
    """Make calls at the same time; if one is refused, all were."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert not refused or len(refused) == len(answers), answers
    if refused:
        raise refused[0]
    return [answer for answer in answers if not isinstance(answer, BaseException)]
