"""What lives outside one task: artifacts, memory, evidence; how old things go; and what is refused at the door."""

from __future__ import annotations

from collections.abc import AsyncIterable, Collection
from contextlib import aclosing
from datetime import timedelta

from holdfast.model.checks import check_name
from holdfast.model.effect import Evidence
from holdfast.model.memory import Subject
from holdfast.model.queries import Pruned
from holdfast.model.records import Artifact, ArtifactLink, MemoryFact
from holdfast.store.backend import Backend, Pending
from holdfast.store.checks import (
    check_age,
    check_all_sought,
    check_content,
    check_evidence,
    check_limit,
    check_range,
    check_sought,
    check_string,
)
from holdfast.store.facts import check_facts, check_last_seen
from holdfast.store.upload import in_pieces


class KeepVerbs:
    """What lives outside one task: artifacts, memory, evidence; and how old things go."""

    _backend: Backend

    async def put_artifact(
        self, content: bytes | AsyncIterable[bytes], *, media_type: str = "application/octet-stream"
    ) -> Artifact:
        """Store bytes under their SHA-256; the same bytes again are the same artifact, stored once and young again.

        A stream is stored as it comes, and an artifact when it has ended. One that fails or is cut leaves nothing to
        be read; what a dead process leaves goes with a prune. Only whole bytes can be sent again.
        """
        check_content(content)
        check_name("media type", media_type)
        if isinstance(content, bytes):
            return await self._backend.put_whole(content, media_type)
        async with aclosing(in_pieces(content)) as pieces:
            return await self._backend.put_stream(pieces, media_type)

    def artifact(self, artifact_id: str) -> Pending[Artifact | None]:
        """Describe an artifact, or None."""
        check_sought("artifact id", artifact_id)
        return self._backend.artifact(artifact_id)

    def read_artifact(self, artifact_id: str, *, offset: int = 0, length: int | None = None) -> Pending[bytes]:
        """Read a range of it without touching the rest. Raises NotFound."""
        check_sought("artifact id", artifact_id)
        check_range(offset, length)
        return self._backend.read_artifact(artifact_id, offset, length)

    def artifact_links(self, task_id: str) -> Pending[list[ArtifactLink]]:
        """Return what the task uses, by artifact id."""
        check_sought("task id", task_id)
        return self._backend.artifact_links(task_id)

    def remember(self, *facts: MemoryFact, seen: Subject | None = None) -> Pending[list[MemoryFact]]:
        """Store facts of one subject, or replace them by their ids, all or none; return them with their dates.

        With ``seen``, only if the subject was not changed since it was read; raises Conflict otherwise. A fact that has
        the id of one about something else is refused with InvalidValue. The store keeps no other rules about facts:
        what follows from what is decided by ``holdfast.model.memory``.
        """
        check_facts(facts, seen)
        return self._backend.remember(facts, seen)

    def fact(self, fact_id: str) -> Pending[MemoryFact | None]:
        """Return one fact, or None."""
        check_sought("fact id", fact_id)
        return self._backend.fact(fact_id)

    def subject(
        self, entity: str, attribute: str, *, other: str | None = None, also: Collection[str] = ()
    ) -> Pending[Subject]:
        """Read a subject to change it: its mark and its live facts, at one moment, oldest first.

        ``other`` names the other entity of a relation; ``also`` are ids of facts of the subject that are read as well,
        if they are there, be they superseded or not.
        """
        check_sought("entity", entity)
        check_sought("attribute", attribute)
        check_sought("other entity", other, optional=True)
        check_all_sought("fact ids", also)
        return self._backend.subject(entity, attribute, other, also)

    def recall(
        self,
        entity: str | None = None,
        attribute: str | None = None,
        *,
        other: str | None = None,
        live: bool = False,
        contested: bool = False,
        after: MemoryFact | None = None,
        limit: int = 100,
    ) -> Pending[list[MemoryFact]]:
        """Return the facts that fit every given part, newest first: by (created_at, id), from ``after`` on.

        ``other`` asks for relations that lead there, ``live`` for what is not superseded, ``contested`` for live facts
        that are not alone on their subject (relations never are contested).
        """
        for what, value in (("entity", entity), ("attribute", attribute), ("other entity", other)):
            check_sought(what, value, optional=True)
        check_last_seen(after)
        check_limit(limit)
        return self._backend.recall(entity, attribute, other, live=live, contested=contested, after=after, limit=limit)

    def search(self, text: str, *, limit: int = 100) -> Pending[list[MemoryFact]]:
        """Return live facts that have words of ``text`` in entity, attribute or value, be it as their beginning.

        For each word of the text a fact gets a point if one of its words begins with it, and another if one is that
        very word. Most points first; then the one last said or verified, then the higher id. Any text will do: nothing
        in it is syntax.
        """
        check_string("text", text)
        check_limit(limit)
        return self._backend.search(text, limit)

    def forget(self, fact_id: str) -> Pending[bool]:
        """Delete a fact; say whether there was one."""
        check_sought("fact id", fact_id)
        return self._backend.forget(fact_id)

    def add_evidence(self, evidence: Evidence) -> Pending[None]:
        """Keep what a fenced worker learned too late. Changes no state."""
        check_evidence(evidence)
        return self._backend.add_evidence(evidence)

    def prune(self, older_than: timedelta, *, limit: int = 1000) -> Pending[Pruned]:
        """Delete tasks that ended longer ago than this, with all their rows, at most ``limit``.

        Children go only with their parent, and a tree of tasks only if all of it ended as long ago, nothing is reserved
        on an account of its tasks and none of their effects is in doubt. Also goes: events as old, artifacts as old
        that no task uses, uploads as long without a new piece, and workers as long dead. Events on a channel
        ``<word>:<id>`` stay while the task with that id is open, or the effect with that id is stored.
        """
        check_limit(limit)
        check_age(older_than)
        return self._backend.prune(older_than, limit)
