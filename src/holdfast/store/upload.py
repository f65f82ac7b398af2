"""Storing a stream: piece by piece under the name of an upload, which becomes an artifact when the last piece is there.

The id of an artifact is the hash of all its bytes, so it is known at the end only. Until then the pieces belong to an
upload that cannot be read. What a dead process leaves of one goes with the next prune.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress

from holdfast.model.errors import HoldfastError, InvalidValue, StoreError
from holdfast.model.ids import new_id
from holdfast.model.limits import describe
from holdfast.model.records import Artifact

CHUNK = 256 << 10
"""Bytes of an artifact in one row."""

PIECE = 4 * CHUNK
"""Bytes of a stream in one transaction: large enough for the disk, small enough to let others write in between."""


_LAST = (1 << 31) - 1


class Uploads(ABC):
    """What a database does for the verb ``put_artifact``."""

    async def put_stream(self, pieces: AsyncIterator[bytes], media_type: str) -> Artifact:
        """Store what comes in pieces of PIECE bytes; one that is all there is stored as a whole."""
        first, second = await anext(pieces, b""), await anext(pieces, None)
        if second is None:
            return await self.put_whole(first, media_type)
        upload = new_id()
        try:
            await self.begin_upload(upload)
            async with aclosing(_chain(first, second, pieces)) as all_pieces:
                return await self._fill_upload(upload, all_pieces, media_type)
        except BaseException:
            with suppress(HoldfastError):  # prune does it later
                await self.discard_upload(upload)
            raise

    async def _fill_upload(self, upload: str, pieces: AsyncIterator[bytes], media_type: str) -> Artifact:
        sha, size = hashlib.sha256(), 0
        async for piece in pieces:
            await self.stage(upload, size // CHUNK, piece)  # every piece but the last is a multiple of a chunk
            sha.update(piece)
            size += len(piece)
        return await self.finish_upload(upload, sha.hexdigest(), size, media_type)

    @abstractmethod
    async def put_whole(self, content: bytes, media_type: str) -> Artifact:
        """Store bytes that are all there, in one transaction."""

    @abstractmethod
    async def begin_upload(self, upload: str) -> None:
        """Open an upload."""

    @abstractmethod
    async def stage(self, upload: str, number: int, piece: bytes) -> None:
        """Keep a piece as chunks from ``number`` on. Raises StoreError if the upload was pruned."""

    @abstractmethod
    async def finish_upload(self, upload: str, artifact_id: str, size: int, media_type: str) -> Artifact:
        """Make the upload the artifact, or drop it if that is there already. Raises StoreError if it was pruned."""

    @abstractmethod
    async def discard_upload(self, upload: str) -> None:
        """Drop an upload and its chunks."""


async def in_pieces(content: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Cut a stream into pieces of PIECE bytes and a last one of what is left, however it comes."""
    gathered = bytearray()
    async with iterating(content) as parts:
        async for part in parts:
            left = view_bytes(part)
            while left:
                room = PIECE - len(gathered)
                gathered += left[:room]
                left = left[room:]
                if len(gathered) == PIECE:
                    yield bytes(gathered)
                    gathered.clear()
    if gathered:
        yield bytes(gathered)


def iterating(content: AsyncIterable[bytes]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    """Go through a stream; a generator is over when the block is, not when it is found to be garbage."""
    iterator = aiter(content)
    return aclosing(iterator) if isinstance(iterator, AsyncGenerator) else nullcontext(iterator)


def view_bytes(part: object) -> memoryview:
    """Return what a stream gave as bytes; InvalidValue if it is something else."""
    if not isinstance(part, bytes | bytearray | memoryview):
        raise InvalidValue(f"the stream gave {describe(part)}; it has to give bytes")
    return memoryview(part).cast("B")


def in_chunks(data: bytes) -> list[bytes]:
    """Cut bytes into those of each row."""
    return [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]


def chunks_of(offset: int, length: int | None) -> tuple[int, int]:
    """Return the numbers of the first and the last chunk that the range lies in, as far as there are any."""
    return offset // CHUNK, (_LAST if length is None else (offset + length - 1) // CHUNK)


def cut_range(chunks: Sequence[bytes | None], offset: int, length: int | None) -> bytes:
    """Return the range out of its chunks; a store that has the artifact but no chunk of the range gives one None."""
    start = offset % CHUNK
    end = None if length is None else start + length
    return b"".join(chunk for chunk in chunks if chunk is not None)[start:end]


def pruned_meanwhile(what: str) -> StoreError:
    """Return the error for what a prune deleted before it was done."""
    return StoreError(f"{what} was pruned as it was stored; store it again, and prune only what is older")


async def _chain(first: bytes, second: bytes, rest: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    yield first
    yield second
    async for piece in rest:
        yield piece
