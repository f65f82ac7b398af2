"""Artifacts: bytes under their own hash, stored once, read in parts."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import NotFound
from holdfast.model.operations import LinkArtifact
from holdfast.model.records import Artifact, ArtifactLink
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import apply_outside, submit_one
from holdfast.testing.contract.base import ContractBase

LARGE = bytes(range(256)) * 1025
"""More than any store would keep in one piece, and no multiple of a usual chunk."""


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
        """Described as it was first stored, and as young as it was last wanted."""
        first = await store.put_artifact(b"hello", media_type="text/plain")
        clock.advance(1)
        again = await store.put_artifact(b"hello", media_type="image/png")
        assert again == replace(first, created_at=clock.now())
        assert await store.artifact(first.id) == again

    @pytest.mark.parametrize(
        ("offset", "length"),
        [
            (0, 0),
            (0, 1),
            (10, 5),
            (65_530, 20),
            (131_072, 65_536),
            (len(LARGE) - 3, 100),
            (len(LARGE), 1),
            (len(LARGE) + 1, None),
            (100, None),
        ],
    )
    async def test_a_range_is_read_without_the_rest(self, store: StateStore, offset: int, length: int | None) -> None:
        """As Python would slice it."""
        artifact = await store.put_artifact(LARGE)
        end = None if length is None else offset + length
        assert await store.read_artifact(artifact.id, offset=offset, length=length) == LARGE[offset:end]

    async def test_an_unknown_artifact(self, store: StateStore) -> None:
        """Described by None; reading it raises."""
        assert await store.artifact("0" * 64) is None
        with pytest.raises(NotFound):
            await store.read_artifact("0" * 64)

    async def test_a_task_links_what_it_uses(self, store: StateStore, clock: ManualClock) -> None:
        """By artifact id; a file name is only metadata, and the artifact need not be there."""
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
