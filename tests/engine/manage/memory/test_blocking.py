"""hold.sync.memory is hold.memory."""

from __future__ import annotations

import inspect
from typing import assert_type

import pytest

from holdfast import Holdfast, MemoryFact, StoreClosed
from holdfast.engine.api.sync.memory import SyncMemory
from holdfast.engine.manage.memory import Memory


def test_blocking_calls_do_the_same() -> None:
    hold = Holdfast("memory://")
    with hold.sync as h:
        tea = h.memory.store("alice", "likes", "tea", source="bob")
        coffee = h.memory.store("alice", "likes", "coffee", source="carol")
        assert_type(tea, MemoryFact)
        assert {fact.id for fact in h.memory.recall("alice", "likes", limit=5)} == {tea.id, coffee.id}
        [conflict] = h.memory.conflicts("alice")
        assert len(conflict.facts) == 2
        assert h.memory.verify(tea.id, by="alice").verified_by == "alice"
        assert {fact.id for fact in h.memory.history("alice", "likes")} == {tea.id, coffee.id}
        knows = h.memory.relate("alice", "knows", "bob")
        assert h.memory.relations("bob") == [knows]
        assert h.memory.search("bob", limit=1) == [knows]
        document = h.memory.export()
        assert h.memory.forget(knows.id)
        assert h.memory.import_(document) == 1
    with pytest.raises(StoreClosed):
        hold.sync.memory.export()


def test_they_take_what_the_asynchronous_ones_take() -> None:
    for name, function in inspect.getmembers(Memory, inspect.isfunction):
        if not name.startswith("_"):
            taken = inspect.signature(getattr(SyncMemory, name)).parameters.values()
            expected = inspect.signature(function).parameters.values()
            assert [(one.name, one.default, one.kind, one.annotation) for one in taken] == [
                (one.name, one.default, one.kind, one.annotation) for one in expected
            ], name
