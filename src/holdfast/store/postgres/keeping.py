"""What lives outside one task: artifacts, memory facts, evidence; and how old things go."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.model.canonical import canonical, digest
from holdfast.model.checks import check_name
from holdfast.model.effect import Evidence
from holdfast.model.errors import NotFound, StoreError
from holdfast.model.queries import Pruned
from holdfast.model.records import Artifact, ArtifactLink, MemoryFact
from holdfast.model.task import fact_search_text
from holdfast.store.checks import check_age, check_limit, check_range
from holdfast.store.postgres.base import PostgresBase
from holdfast.store.postgres.rows import RECORDS

_TO_THE_END = 2**31 - 1 - 2**30
"""More bytes than one PostgreSQL value can hold, and still an integer when an offset is added."""


class Keeping(PostgresBase):
    """See holdfast.store.base.Keeping."""

    async def put_artifact(self, content: bytes, *, media_type: str = "application/octet-stream") -> Artifact:
        """See Keeping."""
        check_name("media type", media_type)
        artifact_id = digest(content)
        # Asked first: bytes that are there already need not travel again.
        if renewed := await self._fetch("renew_artifact", artifact_id, self._at()):
            return RECORDS.artifact(renewed[0])
        await self._fetch("put_artifact", artifact_id, len(content), media_type, self._at(), content)
        if (stored := await self.artifact(artifact_id)) is None:
            raise StoreError(f"artifact {artifact_id} was pruned as it was stored; store it again")
        return stored

    async def artifact(self, artifact_id: str) -> Artifact | None:
        """See Keeping."""
        found = await self._fetch("artifact", artifact_id)
        return RECORDS.artifact(found[0]) if found else None

    async def read_artifact(self, artifact_id: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """See Keeping."""
        check_range(offset, length)
        most = _TO_THE_END if length is None else min(length, _TO_THE_END)
        found = await self._fetch("read_artifact", artifact_id, min(offset, _TO_THE_END) + 1, most)
        if not found:
            raise NotFound("artifact", artifact_id)
        return bytes(found[0][0])

    async def artifact_links(self, task_id: str) -> list[ArtifactLink]:
        """See Keeping."""
        return [RECORDS.link(row) for row in await self._fetch("artifact_links", task_id)]

    async def remember(self, fact: MemoryFact) -> MemoryFact:
        """See Keeping."""
        value = canonical(fact.value, name="value")
        [(created_at,)] = await self._fetch(
            "remember",
            *(fact.id, fact.entity, fact.attribute, value, fact.confidence, fact.source, fact.created_at, self._at()),
            *(fact.verified_at, fact.superseded_by),
            fact_search_text(fact.entity, fact.attribute, fact.value, value),
        )
        return replace(fact, created_at=created_at)

    async def recall(
        self, entity: str | None = None, attribute: str | None = None, *, text: str | None = None, limit: int = 100
    ) -> list[MemoryFact]:
        """See Keeping."""
        needle = text.casefold() if text else None
        found = await self._fetch("recall", entity, attribute, needle, check_limit(limit))
        return [RECORDS.fact(row) for row in found]

    async def forget(self, fact_id: str) -> bool:
        """See Keeping."""
        return bool(await self._fetch("forget", fact_id))

    async def add_evidence(self, evidence: Evidence) -> None:
        """See Keeping."""
        values = (evidence.task_id, evidence.effect_id, evidence.fence, evidence.body, evidence.at, self._at())
        await self._fetch("add_evidence", *values, repeatable=False)
        self._publish({f"task:{evidence.task_id}"})

    async def prune(self, older_than: timedelta, *, limit: int = 1000) -> Pruned:
        """See Keeping."""
        check_age(older_than)
        [(tasks, events, artifacts)] = await self._fetch("prune", self._at(), older_than, check_limit(limit))
        return Pruned(tasks=tasks, events=events, artifacts=artifacts, more=limit in {tasks, events, artifacts})
