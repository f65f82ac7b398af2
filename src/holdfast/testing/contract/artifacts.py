"""Artifacts: bytes under their own hash, stored once, read in parts."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import InvalidValue, NotFound, StoreError
from holdfast.model.operations import LinkArtifact
from holdfast.model.records import Artifact, ArtifactLink
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import apply_outside, row, submit_one
from holdfast.testing.contract.base import ContractBase

LARGE = bytes(range(256)) * 1025
"""More than any store would keep in one piece, and not a multiple of a usual chunk."""


PIECE = 1 << 20
"""How much of a stream our own stores write in one transaction."""


class TornError(Exception):
    """A source that failed."""


async def stream(content: bytes, step: int = 70_000) -> AsyncIterator[bytes]:
    """Yield ``content`` in parts."""
    for start in range(0, len(content), step):
        await asyncio.sleep(0)
        yield content[start : start + step]


class ArtifactsContract(ContractBase):
    """Storing, reading and linking artifacts."""

    @pytest.mark.parametrize("content", [b"", b"\x00", b"hello", LARGE], ids=["empty", "nul", "text", "large"])
    async def test_an_artifact_is_its_bytes(self, store: StateStore, clock: ManualClock, content: bytes) -> None:
        """Its id is their SHA-256."""
        artifact = await store.put_artifact(content, media_type="text/plain")
        assert artifact == Artifact(
            id=hashlib.sha256(content).hexdigest(),
            size=len(content),
            media_type="text/plain",
            created_at=clock.now(),
        )
        assert await store.artifact(artifact.id) == artifact
        assert await store.read_artifact(artifact.id) == content

    async def test_the_same_bytes_are_the_same_artifact(self, store: StateStore, clock: ManualClock) -> None:
        """With the description of the first store call and the age of the last one."""
        first = await store.put_artifact(b"hello", media_type="text/plain")
        clock.advance(1)
        again = await store.put_artifact(b"hello", media_type="image/png")
        assert again == replace(first, created_at=clock.now())
        assert await store.artifact(first.id) == again

    async def test_a_range_is_read_without_the_rest(self, store: StateStore) -> None:
        """Like a slice in Python."""
        artifact = await store.put_artifact(LARGE)
        for offset, length in (
            (0, 0),
            (0, 1),
            (10, 5),
            (65_530, 20),
            (131_072, 65_536),
            (len(LARGE) - 3, 100),
            (len(LARGE), 1),
            (len(LARGE) + 1, None),
            (100, None),
        ):
            with row(offset, length):
                end = None if length is None else offset + length
                assert await store.read_artifact(artifact.id, offset=offset, length=length) == LARGE[offset:end]

    @pytest.mark.parametrize("size", [0, 1, len(LARGE), PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 70_000])
    @pytest.mark.parametrize("step", [70_000, 3 * PIECE], ids=["in parts", "at once"])
    async def test_a_stream_is_its_bytes(self, store: StateStore, clock: ManualClock, size: int, step: int) -> None:
        """For any length and any division into parts, the artifact is the same as for the whole bytes."""
        content = (LARGE * 12)[:size]
        artifact = await store.put_artifact(stream(content, step), media_type="text/plain")
        assert artifact == Artifact(
            id=hashlib.sha256(content).hexdigest(), size=size, media_type="text/plain", created_at=clock.now()
        )
        assert await store.artifact(artifact.id) == artifact
        assert await store.read_artifact(artifact.id) == content
        for offset, length in ((PIECE - 5, 10), (PIECE + 70_000, 1 << 18), (size, 1), (1, None)):
            end = None if length is None else offset + length
            assert await store.read_artifact(artifact.id, offset=offset, length=length) == content[offset:end]

    async def test_the_same_bytes_as_a_stream_are_the_same_artifact(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """In either order."""
        content, other = LARGE * 9, LARGE * 10
        first = await store.put_artifact(content, media_type="text/plain")
        streamed = await store.put_artifact(stream(other), media_type="text/plain")
        clock.advance(1)
        assert await store.put_artifact(stream(content)) == replace(first, created_at=clock.now())
        assert await store.put_artifact(other) == replace(streamed, created_at=clock.now())
        assert await store.put_artifact(stream(other)) == replace(streamed, created_at=clock.now())
        assert await store.read_artifact(first.id) == content
        assert await store.read_artifact(streamed.id) == other

    async def test_a_stream_that_fails_leaves_nothing_to_read(self, store: StateStore) -> None:
        """Neither the parts that came nor the whole; the error reaches the caller."""
        content = LARGE * 12

        async def failing() -> AsyncIterator[bytes]:
            async for part in stream(content):
                yield part
            raise TornError

        with pytest.raises(TornError):
            await store.put_artifact(failing())
        assert await store.artifact(hashlib.sha256(content).hexdigest()) is None
        assert (await store.prune(timedelta(0))).artifacts == 0
        assert await store.read_artifact((await store.put_artifact(stream(content))).id) == content

    async def test_a_stream_whose_reader_is_cancelled_leaves_nothing_to_read(self, store: StateStore) -> None:
        """The caller is cancelled in the middle of it."""
        content = LARGE * 12
        reached = asyncio.Event()

        async def stalling() -> AsyncIterator[bytes]:
            async for part in stream(content):
                yield part
            reached.set()
            await asyncio.Event().wait()

        storing = asyncio.create_task(store.put_artifact(stalling()))
        await reached.wait()
        storing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await storing
        assert await store.artifact(hashlib.sha256(content).hexdigest()) is None

    async def test_a_stream_of_something_else_is_refused(self, store: StateStore) -> None:
        """Text has no bytes without an encoding."""

        async def text() -> AsyncIterator[str]:
            yield "text"

        with pytest.raises(InvalidValue, match="it has to give bytes"):
            await store.put_artifact(cast("AsyncIterator[bytes]", text()))

    async def test_many_store_the_same_at_once(self, store: StateStore) -> None:
        """All get the same artifact, and it is complete."""
        content = LARGE * 12
        sources: list[bytes | AsyncIterator[bytes]] = [stream(content, step) for step in (70_000, 300_000, 5 << 20)]
        stored = await asyncio.gather(*(store.put_artifact(source) for source in [*sources, content]))
        assert {artifact.id for artifact in stored} == {hashlib.sha256(content).hexdigest()}
        assert await store.read_artifact(stored[0].id) == content

    async def test_a_stream_that_was_pruned_on_its_way_is_not_an_artifact(
        self, store: StateStore, clock: ManualClock
    ) -> None:
        """A prune came while it was slow. It is stored or refused, but never with a part missing."""
        content = LARGE * 20

        async def slow() -> AsyncIterator[bytes]:
            async for part in stream(content, PIECE):
                yield part
                clock.advance(100)
                await store.prune(timedelta(seconds=50))

        stored = None
        with suppress(StoreError):
            stored = await store.put_artifact(slow())
        assert await store.artifact(hashlib.sha256(content).hexdigest()) == stored
        if stored is not None:
            assert await store.read_artifact(stored.id) == content

    async def test_a_slow_stream_that_goes_on_is_not_pruned(self, store: StateStore, clock: ManualClock) -> None:
        """The time of its last part counts."""
        content = LARGE * 20

        async def slow() -> AsyncIterator[bytes]:
            async for part in stream(content, PIECE):
                yield part
                clock.advance(100)
                await store.prune(timedelta(seconds=350))

        artifact = await store.put_artifact(slow())
        assert await store.read_artifact(artifact.id) == content

    async def test_an_unknown_artifact(self, store: StateStore) -> None:
        """Described by None; reading it raises."""
        assert await store.artifact("0" * 64) is None
        with pytest.raises(NotFound):
            await store.read_artifact("0" * 64)

    async def test_a_task_links_what_it_uses(self, store: StateStore, clock: ManualClock) -> None:
        """By artifact id; a file name is only metadata, and the artifact need not exist."""
        named = ArtifactLink(
            artifact_id="b",
            name="../../etc/passwd",
            type="log",
            summary="Ünï\nwith lines",
            bytes=12,
            step="collect",
            created_at=clock.now(),
        )
        plain = ArtifactLink(artifact_id="a", name="plain", type="text", summary="", bytes=0)
        await submit_one(store)
        clock.advance(1)
        await apply_outside(store, "task", LinkArtifact(named), LinkArtifact(plain))
        assert await store.artifact_links("task") == [replace(plain, created_at=clock.now()), named]
        assert await store.artifact_links("missing") == []

    async def test_linking_again_replaces(self, store: StateStore) -> None:
        """One link for each artifact."""
        link = ArtifactLink(artifact_id="a", name="old", type="text", summary="", bytes=0, step="s")
        await submit_one(store)
        await apply_outside(store, "task", LinkArtifact(link))
        await apply_outside(store, "task", LinkArtifact(replace(link, name="new", step=None)))
        assert [(found.name, found.step) for found in await store.artifact_links("task")] == [("new", None)]

    async def test_two_tasks_may_use_one_artifact(self, store: StateStore) -> None:
        """Each under its own name."""
        for task_id in ("a", "b"):
            await submit_one(store, task_id)
            link = ArtifactLink(artifact_id="shared", name=f"of {task_id}", type="text", summary="", bytes=0)
            await apply_outside(store, task_id, LinkArtifact(link))
        assert [found.name for found in await store.artifact_links("b")] == ["of b"]
