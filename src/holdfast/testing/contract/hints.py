"""Hints that something changed. There may be hints without a change; within one process none is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from holdfast.model.clock import ManualClock
from holdfast.model.operations import ApplyPatch, Emit, RequestCancel, SubmitChild, UntilChildren
from holdfast.model.transitions import TaskState
from holdfast.store.base import Listener, StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    LEASE,
    apply_outside,
    move,
    new_task,
    outside,
    running_task,
    submit_one,
)
from holdfast.testing.contract.base import ContractBase

PATIENCE = 10.0
"""Seconds after which a hint counts as missing; usually it comes at once."""


async def wait_for_hints(listener: Listener, *topics: str) -> None:
    """Wait until hints for all these topics came, in one hint or in several."""
    missing = set(topics)
    async with asyncio.timeout(PATIENCE):
        while missing:
            missing -= await listener.wait()


async def hints_of(store: StateStore, act: Awaitable[Any], *topics: str) -> None:
    """Do something; hints for these topics must follow."""
    async with store.listen() as listener:
        await act
        await wait_for_hints(listener, *topics)


class HintsContract(ContractBase):
    """listen, within one process."""

    async def test_a_submitted_task_is_hinted_to_its_queue(self, store: StateStore) -> None:
        """A worker of that queue may claim it at once."""
        await hints_of(store, store.submit([new_task(queue="a"), new_task("other", queue="b")]), "queue:a", "queue:b")

    async def test_a_delayed_task_is_hinted_when_it_is_due(self, store: StateStore, clock: ManualClock) -> None:
        """By the sweep that made it claimable."""
        await submit_one(store, queue="q", available_at=clock.now() + timedelta(seconds=1))
        clock.advance(1)
        await hints_of(store, store.sweep(), "queue:q")

    async def test_a_task_taken_back_is_hinted(self, store: StateStore, clock: ManualClock) -> None:
        """It is claimable again."""
        await running_task(store, queue="default")
        clock.advance(LEASE)
        await hints_of(store, store.sweep(), "queue:default", "task:task")

    async def test_a_task_handed_back_is_hinted(self, store: StateStore) -> None:
        """So that another worker continues it."""
        await running_task(store, queue="default")
        await hints_of(store, store.retire("worker"), "queue:default", "task:task")

    async def test_a_move_is_hinted_to_those_who_watch_the_task(self, store: StateStore) -> None:
        """For example a caller that waits for its result."""
        await submit_one(store)
        await hints_of(store, store.commit([outside("task", CANCEL)]), "task:task")

    async def test_a_retry_is_hinted_to_its_queue(self, store: StateStore) -> None:
        """A task that returns can be claimed like a new one."""
        attempt = await running_task(store, queue="default")
        await hints_of(store, attempt.apply(move(TaskState.PENDING)), "queue:default", "task:task")

    async def test_a_patch_and_a_cancel_request_are_hinted(self, store: StateStore) -> None:
        """To the worker that holds the task, for example."""
        await running_task(store)
        await hints_of(store, apply_outside(store, "task", ApplyPatch(body=b"{}", author="a")), "task:task")
        await hints_of(store, apply_outside(store, "task", RequestCancel(reason="enough")), "task:task")

    async def test_an_event_is_hinted_to_its_channel(self, store: StateStore) -> None:
        """Emitted by itself or by a Commit."""
        await hints_of(store, store.emit("news", 1), "channel:news")
        await submit_one(store)
        await hints_of(store, apply_outside(store, "task", Emit(channel="other", payload=1)), "channel:other")

    async def test_a_woken_parent_is_hinted(self, store: StateStore) -> None:
        """By the Commit that ended its last child."""
        attempt = await running_task(store, "parent", queue="default")
        child = SubmitChild(new_task("child", queue="elsewhere"))
        join = move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("child",)),))
        await hints_of(store, attempt.apply(child, join), "queue:elsewhere", "task:parent")
        await hints_of(store, apply_outside(store, "child", CANCEL), "queue:default", "task:parent", "task:child")

    async def test_every_listener_hears_everything(self, store: StateStore) -> None:
        """A hint that one listener gets is not taken from the others."""
        async with store.listen() as one, store.listen() as two:
            await submit_one(store, queue="q")
            await wait_for_hints(one, "queue:q")
            await wait_for_hints(two, "queue:q")

    async def test_hints_wait_for_their_listener(self, store: StateStore) -> None:
        """Hints between two calls are not lost, and come together."""
        async with store.listen() as listener:
            await submit_one(store, "a", queue="a")
            await submit_one(store, "b", queue="b")
            await wait_for_hints(listener, "queue:a", "queue:b")

    async def test_a_listener_that_waits_is_woken(self, store: StateStore) -> None:
        """At once, not at its timeout."""
        async with store.listen() as listener:
            hearing = asyncio.create_task(wait_for_hints(listener, "channel:news"))
            await asyncio.sleep(0)
            await store.emit("news", 1)
            await hearing

    async def test_silence_is_an_empty_answer(self, store: StateStore) -> None:
        """After the timeout, the listener gets an empty set."""
        await submit_one(store)
        async with store.listen() as listener:
            hinted = frozenset({"*"})
            while hinted:  # there may be hints without a change
                hinted = await listener.wait(timeout=0.01)
            assert hinted == frozenset()
