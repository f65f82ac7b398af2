"""Effects: their states follow one table, and doubt is never hidden."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.model.clock import ManualClock
from holdfast.model.commit import Refusal
from holdfast.model.effect import EFFECT_MOVES, Effect, EffectClass, EffectState, Evidence
from holdfast.model.operations import WriteEffect
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import Attempt, apply_outside, outside, row, running_task, send, submit_one
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import snapshot

LISTED_TOGETHER = (EffectState.ARMED, EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN, EffectState.FAILED)

LEGAL = [(before, after) for before, allowed in EFFECT_MOVES.items() for after in sorted(allowed - {before})]
ILLEGAL = [
    (before, after)
    for before, allowed in EFFECT_MOVES.items()
    for after in EffectState
    if after not in allowed and after is not before
]


def effect(state: EffectState, effect_id: str = "effect", **options: Any) -> Effect:  # noqa: ANN401 - fields of Effect
    """Describe an effect in this state."""
    return Effect(effect_id=effect_id, step_key="apply", effect_class=EffectClass.ONCE, state=state, **options)


def path_to(state: EffectState) -> list[EffectState]:
    """Return a shortest path of the table from nothing to this state."""
    paths: list[list[EffectState]] = [[first] for first in sorted(EFFECT_MOVES[None])]
    for path in paths:
        if path[-1] is state:
            return path
        paths += [[*path, after] for after in sorted(EFFECT_MOVES[path[-1]]) if after not in path]
    raise AssertionError(f"no way leads to {state}")


async def write_states(attempt: Attempt, state: EffectState | None, effect_id: str = "effect") -> None:
    """Let the worker write the states on the path one after the other; none for None."""
    for passed in [] if state is None else path_to(state):
        await attempt.apply(WriteEffect(effect(passed, effect_id)))


class EffectsContract(ContractBase):
    """The effects of a task, and evidence about them."""

    async def test_an_effect_is_stored_as_it_was_written(self, store: StateStore, clock: ManualClock) -> None:
        """Every field, with the task and the time filled in by the store."""
        written = effect(
            EffectState.ARMED,
            round=2,
            fence=1,
            attempt=3,
            arguments=b'["billing"]',
            arguments_hash="hash",
            approval_id="ask",
            dispatch_by=clock.now() + timedelta(seconds=5),
            settle_at=clock.now() + timedelta(seconds=65),
            result=b"",
            note="first try",
            compensable=True,
            thread_of="worker",
        )
        attempt = await running_task(store)
        await attempt.apply(WriteEffect(written))
        assert await store.effects() == [replace(written, task_id="task", updated_at=clock.now())]

    async def test_a_later_write_replaces_every_field(self, store: StateStore, clock: ManualClock) -> None:
        """Nothing of the earlier row is left."""
        attempt = await running_task(store)
        armed = effect(EffectState.ARMED, note="armed", arguments=b"[1]", compensable=True, thread_of="worker")
        await attempt.apply(WriteEffect(armed))
        clock.advance(1)
        done = effect(EffectState.DONE, result=b'"ok"')
        await attempt.apply(WriteEffect(done))
        assert await store.effects() == [replace(done, task_id="task", updated_at=clock.now())]

    async def test_the_table_of_moves_that_are_legal(self, store: StateStore) -> None:
        """From every state to every other that the table allows, by a worker and from outside."""
        attempt = await running_task(store)
        for before, after in LEGAL:
            for by in ("worker", "outside"):
                with row(before, after, by):
                    effect_id = f"{before} to {after}, {by}"
                    await write_states(attempt, before, effect_id)
                    write = WriteEffect(effect(after, effect_id))
                    verdict = await (attempt.send(write) if by == "worker" else send(store, outside("task", write)))
                    assert verdict.applied
                    assert [stored.state for stored in await store.effects(effect_id=effect_id)] == [after]

    async def test_the_table_of_moves_that_are_not(self, store: StateStore) -> None:
        """From every state to every other that the table does not allow: refused, and nothing changes."""
        attempt = await running_task(store)
        for before in EFFECT_MOVES:
            await write_states(attempt, before, f"{before}")
        seen = await snapshot(store)
        for before, after in ILLEGAL:
            write = WriteEffect(effect(after, f"{before}"))
            for by in ("worker", "outside"):
                with row(before, after, by):
                    commit = outside("task", write)
                    if by == "worker":
                        # A refused Commit does not use its number.
                        commit = replace(commit, guard=attempt.guard(attempt.sequence + 1))
                    assert (await send(store, commit)).refusal is Refusal.EFFECT
                    assert await snapshot(store) == seen

    async def test_writing_the_same_state_again(self, store: StateStore) -> None:
        """A worker may; if two people resolve one doubt, the second is refused."""
        attempt = await running_task(store)
        for state in EffectState:
            with row(state):
                await write_states(attempt, state, state)
                await attempt.apply(WriteEffect(effect(state, state, note="again")))
                verdict = await send(store, outside("task", WriteEffect(effect(state, state, note="me too"))))
                assert verdict.refusal is Refusal.EFFECT
                assert [stored.note for stored in await store.effects(effect_id=state)] == ["again"]

    async def test_two_writes_in_one_commit_follow_the_table(self, store: StateStore) -> None:
        """The second starts where the first left it."""
        attempt = await running_task(store)
        await attempt.apply(WriteEffect(effect(EffectState.ARMED)), WriteEffect(effect(EffectState.DONE)))
        assert [stored.state for stored in await store.effects()] == [EffectState.DONE]

    async def test_the_same_id_in_two_tasks_are_two_effects(self, store: StateStore) -> None:
        """An effect belongs to its task."""
        for task_id in ("a", "b"):
            await submit_one(store, task_id)
            await apply_outside(store, task_id, WriteEffect(effect(EffectState.ARMED)))
        assert [(stored.task_id, stored.effect_id) for stored in await store.effects()] == [
            ("a", "effect"),
            ("b", "effect"),
        ]

    async def test_effects_are_listed_by_task_and_id(self, store: StateStore) -> None:
        """Of one task or of all, in some states or in any, up to a limit."""
        armed, intended = EffectState.ARMED, EffectState.INTENDED
        await submit_one(store, "b")
        await submit_one(store, "a")
        await apply_outside(store, "b", WriteEffect(effect(armed, "2")), WriteEffect(effect(intended, "1")))
        await apply_outside(store, "a", WriteEffect(effect(armed, "3")))

        async def listed(**asked: Any) -> list[str]:  # noqa: ANN401 - the arguments of the verb
            return [f"{found.task_id}{found.effect_id}" for found in await store.effects(**asked)]

        assert await listed() == ["a3", "b1", "b2"]
        assert await listed(task_id="b") == ["b1", "b2"]
        assert await listed(states={armed}) == ["a3", "b2"]
        assert await listed(task_id="b", states={armed, EffectState.DONE}) == ["b2"]
        assert await listed(limit=2) == ["a3", "b1"]
        assert await listed(states=set()) == []
        assert await listed(task_id="unknown") == []

    async def test_an_effect_is_found_by_its_id_alone(self, store: StateStore) -> None:
        """A person who resolves a doubt knows only its id; if two tasks share an id, both are found."""
        armed, intended = EffectState.ARMED, EffectState.INTENDED
        for task_id, state in (("c", armed), ("a", intended), ("b", armed)):
            await submit_one(store, task_id)
            own = effect(armed, f"only {task_id}")
            await apply_outside(store, task_id, WriteEffect(own), WriteEffect(effect(state, "shared")))

        async def owners(**asked: Any) -> list[str]:  # noqa: ANN401 - the arguments of the verb
            return [found.task_id for found in await store.effects(**asked)]

        assert await owners(effect_id="only b") == ["b"]
        assert await owners(effect_id="shared") == ["a", "b", "c"]
        assert await owners(effect_id="shared", states={armed}) == ["b", "c"]
        assert await owners(effect_id="shared", task_id="c") == ["c"]
        assert await owners(effect_id="shared", limit=1) == ["a"]
        assert await owners(effect_id="only b", task_id="c") == []
        assert await owners(effect_id="share") == []

    async def test_effects_are_listed_by_any_states(self, store: StateStore) -> None:
        """Doubts alone, and doubts among others: the answer is the same with and without an index."""
        attempt = await running_task(store)
        for state in EffectState:
            for passed in path_to(state):
                await attempt.apply(WriteEffect(effect(passed, f"the {state} one")))
        for size in (1, 2, 3):
            for states in itertools.combinations(LISTED_TOGETHER, size):
                with row(*states):
                    found = await store.effects(states=set(states))
                    assert [one.effect_id for one in found] == sorted(f"the {state} one" for state in states)

    async def test_evidence_is_kept_beside_the_effect(self, store: StateStore, clock: ManualClock) -> None:
        """Oldest first; it changes no state."""
        attempt = await running_task(store)
        await attempt.apply(WriteEffect(effect(EffectState.ARMED)))
        before = await store.effects(), await store.get("task")
        first = Evidence(task_id="task", effect_id="effect", fence=1, body=b'"late"')
        await store.add_evidence(first)
        opened_at = clock.now()
        clock.advance(1)
        second = replace(first, fence=2, body=b"\x00", at=clock.now())
        await store.add_evidence(second)
        assert await store.evidence("task", "effect") == [replace(first, at=opened_at), second]
        assert await store.evidence("task", "another") == []
        assert (await store.effects(), await store.get("task")) == before

    async def test_evidence_needs_no_effect(self, store: StateStore) -> None:
        """It is kept for later readers, even for a task that is gone."""
        evidence = Evidence(task_id="gone", effect_id="effect", fence=1, body=b"1", at=await store.now())
        await store.add_evidence(evidence)
        assert await store.evidence("gone", "effect") == [evidence]
