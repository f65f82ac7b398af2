"""Opening and closing: a store that is not open answers nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from holdfast.model.effect import Evidence
from holdfast.model.errors import StoreClosed, StoreError
from holdfast.model.flow_limit import Limit
from holdfast.model.queries import Noun
from holdfast.model.records import MemoryFact
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.base import Capabilities, StateStore
from holdfast.testing.contract._support import CANCEL, new_task, outside, row, submit_one
from holdfast.testing.contract.base import START, ContractBase

VERBS: dict[str, Callable[[StateStore], Awaitable[object]]] = {
    "submit": lambda store: store.submit([new_task("another")]),
    "register": lambda store: store.register(NewWorker(id="worker")),
    "heartbeat": lambda store: store.heartbeat("worker"),
    "drain": lambda store: store.drain("worker"),
    "retire": lambda store: store.retire("worker"),
    "claim": lambda store: store.claim(Claim(worker_id="worker", number=1, limit=1, names=("job",))),
    "acquire": lambda store: store.acquire("task", "worker"),
    "owned": lambda store: store.owned("worker"),
    "sweep": lambda store: store.sweep(),
    "commit": lambda store: store.commit([outside("task", CANCEL)]),
    "load": lambda store: store.load("task"),
    "pause": lambda store: store.pause("queue:default", by="person"),
    "unpause": lambda store: store.unpause("queue:default"),
    "pauses": lambda store: store.pauses(),
    "set_queue": lambda store: store.set_queue("default", max_pending=1),
    "queue_settings": lambda store: store.queue_settings(),
    "set_limit": lambda store: store.set_limit(Limit(name="openai", concurrency=1)),
    "limits": lambda store: store.limits(),
    "limit_uses": lambda store: store.limit_uses(),
    "take_permits": lambda store: store.take_permits([]),
    "return_permits": lambda store: store.return_permits([]),
    "close_limit": lambda store: store.close_limit([], START),
    "emit": lambda store: store.emit("news", 1),
    "get": lambda store: store.get("task"),
    "find": lambda store: store.find(),
    "count": lambda store: store.count(),
    "summary": lambda store: store.summary(),
    "queues": lambda store: store.queues(),
    "queued": lambda store: store.queued(),
    "ids": lambda store: store.ids(Noun.TASK, "t"),
    "vitals": lambda store: store.vitals(),
    "history": lambda store: store.history("task"),
    "steps": lambda store: store.steps("task"),
    "effects": lambda store: store.effects(),
    "evidence": lambda store: store.evidence("task", "effect"),
    "patches": lambda store: store.patches("task"),
    "checkpoints": lambda store: store.checkpoints("task"),
    "approvals": lambda store: store.approvals(),
    "approval": lambda store: store.approval("ask"),
    "accounts": lambda store: store.accounts("task"),
    "workers": lambda store: store.workers(),
    "events": lambda store: store.events("news"),
    "put_artifact": lambda store: store.put_artifact(b"x"),
    "artifact": lambda store: store.artifact("x"),
    "read_artifact": lambda store: store.read_artifact("x"),
    "artifact_links": lambda store: store.artifact_links("task"),
    "remember": lambda store: store.remember(MemoryFact(entity="e", attribute="a", value=1)),
    "recall": lambda store: store.recall(),
    "forget": lambda store: store.forget("fact"),
    "add_evidence": lambda store: store.add_evidence(Evidence(task_id="t", effect_id="e", fence=1, body=b"")),
    "prune": lambda store: store.prune(timedelta(days=1)),
}
"""Every method that reads or writes stored data, with valid arguments."""


class ClosingContract(ContractBase):
    """open and close."""

    async def test_a_closed_store_refuses_every_verb(self, store: StateStore) -> None:
        """With StoreClosed."""
        await submit_one(store)
        await store.close()
        for verb, use in VERBS.items():
            with row(verb), pytest.raises(StoreClosed):
                await use(store)

    async def test_closing_twice_is_fine(self, store: StateStore) -> None:
        """Cleaning up does not fail because the store is closed already."""
        await store.close()
        await store.close()

    async def test_opening_twice_is_refused(self, store: StateStore) -> None:
        """The open store stays usable."""
        with pytest.raises(StoreError):
            await store.open()
        await submit_one(store)

    async def test_a_store_can_be_opened_again(self, store: StateStore) -> None:
        """After it was closed; what it then holds depends on its durability."""
        await store.close()
        async with store:
            await submit_one(store)

    async def test_capabilities_are_named(self, store: StateStore) -> None:
        """A store for several machines is also one for several processes."""
        assert isinstance(store.capabilities, Capabilities)
        assert store.capabilities.multi_process or not store.capabilities.multi_machine
        assert self.leases_on_boot_clock or store.capabilities.multi_machine
