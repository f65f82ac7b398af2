"""hold.sync.memory: hold.memory for blocking code."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from holdfast.engine.manage.memory import HalfLife, Memory
from holdfast.model.memory import FactConflict
from holdfast.model.records import MemoryFact
from holdfast.model.task import JsonValue

T = TypeVar("T")


class Wait(Protocol):
    """Runs an asynchronous call and returns its result."""

    def __call__(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for the call."""


class SyncMemory:
    """The calls of Memory, which block until they are done."""

    __slots__ = ("_memory", "_wait")

    def __init__(self, memory: Memory, wait: Wait) -> None:
        """Only SyncHoldfast creates this."""
        self._memory = memory
        self._wait = wait

    def store(
        self,
        entity: str,
        attribute: str,
        value: JsonValue,
        *,
        confidence: float = 1.0,
        source: str = "user",
        half_life: HalfLife = "default",
    ) -> MemoryFact:
        """See Memory."""
        call = self._memory.store(entity, attribute, value, confidence=confidence, source=source, half_life=half_life)
        return self._wait(call)

    def relate(
        self,
        entity: str,
        relation: str,
        other: str,
        *,
        confidence: float = 1.0,
        source: str = "user",
        half_life: HalfLife = "default",
    ) -> MemoryFact:
        """See Memory."""
        call = self._memory.relate(entity, relation, other, confidence=confidence, source=source, half_life=half_life)
        return self._wait(call)

    def recall(self, entity: str, attribute: str | None = None, *, limit: int = 100) -> list[MemoryFact]:
        """See Memory."""
        return self._wait(self._memory.recall(entity, attribute, limit=limit))

    def search(self, text: str, *, limit: int = 20) -> list[MemoryFact]:
        """See Memory."""
        return self._wait(self._memory.search(text, limit=limit))

    def relations(self, entity: str, *, limit: int = 100) -> list[MemoryFact]:
        """See Memory."""
        return self._wait(self._memory.relations(entity, limit=limit))

    def verify(self, fact_id: str, *, by: str) -> MemoryFact:
        """See Memory."""
        return self._wait(self._memory.verify(fact_id, by=by))

    def conflicts(self, entity: str | None = None, *, limit: int = 100) -> list[FactConflict]:
        """See Memory."""
        return self._wait(self._memory.conflicts(entity, limit=limit))

    def history(self, entity: str, attribute: str) -> list[MemoryFact]:
        """See Memory."""
        return self._wait(self._memory.history(entity, attribute))

    def forget(self, fact_id: str) -> bool:
        """See Memory."""
        return self._wait(self._memory.forget(fact_id))

    def export(self) -> dict[str, JsonValue]:
        """See Memory."""
        return self._wait(self._memory.export())

    def import_(self, document: JsonValue) -> int:
        """See Memory."""
        return self._wait(self._memory.import_(document))
