"""Memory beyond any task."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.mcp.access import CallerAccess
from holdfast.mcp.addresses import fact_uri
from holdfast.model.memory import effective_confidence
from holdfast.model.records import MemoryFact
from holdfast.model.task import JsonValue
from holdfast.service.forms import moment

_LONGEST_NAME = 200


class MemoryTools:
    """Facts about entities."""

    def __init__(self, access: CallerAccess) -> None:
        """``access`` belongs to the request."""
        self._access = access
        self._memory = access.service.memory

    async def remember(
        self,
        *,
        entity: Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME, description="What it is about.")],
        attribute: Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME, description="Which property of it.")],
        value: Annotated[JsonValue, Field(description="What you know, as JSON.")],
        confidence: Annotated[float, Field(gt=0, le=1, description="How sure you are.")] = 1.0,
    ) -> dict[str, Any]:
        """Remember something beyond this task, for any agent.

        Call it for what will still be true when the task is over ("host db1", "disk", "2 TB"). What you said before
        about the same attribute is superseded; what others said stays beside it, as a conflict for people to settle.
        """
        fact = await self._memory.store(
            entity, attribute, value, confidence=confidence, source=self._access.caller.actor
        )
        return {"uri": fact_uri(entity)} | await self._form(fact)

    async def recall(
        self,
        *,
        entity: Annotated[str | None, Field(description="All that is known about this entity.")] = None,
        attribute: Annotated[str | None, Field(description="With an entity: only this property.")] = None,
        query: Annotated[str | None, Field(description="Words to search for, instead of an entity.")] = None,
        limit: Annotated[int, Field(ge=1, le=50, description="How many at most.")] = 20,
    ) -> dict[str, Any]:
        """Recall what was remembered: about an entity, or by words.

        Call it before you find out something again. An empty list means that nothing is known; it proves
        nothing more. "confidence" falls with the age of a fact.
        """
        service = self._access.service
        if query is not None:
            facts = await service.search_facts(query, limit=limit)
        else:
            facts = await service.facts(entity, attribute, limit=limit)
        return {"facts": [await self._form(fact) for fact in facts]}

    async def _form(self, fact: MemoryFact) -> dict[str, Any]:
        return {
            "entity": fact.entity,
            "attribute": fact.attribute,
            "value": fact.value,
            "confidence": round(effective_confidence(fact, await self._access.service.now()), 3),
            "source": fact.source,
            "said_at": moment(fact.verified_at or fact.created_at),
        }
