"""Sources that an artifact can be written from, as a stream of bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from contextlib import aclosing
from mimetypes import MimeTypes
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from holdfast.engine.runtime.threads import DaemonThreads
from holdfast.model.errors import InvalidValue
from holdfast.model.limits import describe
from holdfast.model.utf8 import encode
from holdfast.store.upload import iterating, view_bytes

Source: TypeAlias = bytes | bytearray | memoryview | str | Path | BinaryIO | AsyncIterable[bytes] | Iterable[bytes]
"""Bytes, a text (stored as UTF-8), a path, a file opened with "rb", or an iterable of bytes, sync or async.
An async generator is closed at the end, also if the write fails half-way."""

_PART = 1 << 20


def stream(source: Source, threads: DaemonThreads) -> AsyncIterable[bytes]:
    """Return the source's bytes as a stream. Blocking reads run in a thread."""
    match source:
        case str():
            return _once(encode(source))
        case bytes() | bytearray() | memoryview():
            return _once(bytes(source))
        case Path():
            return _read_path(source, threads)
        case AsyncIterable():
            return source
        case _ if hasattr(source, "read"):
            return _read_file(cast("BinaryIO", source), threads)
        case Iterable():
            return _iterate(source, threads)
        case _:
            raise InvalidValue(
                f"an artifact cannot be written from {describe(source)}; give bytes, a str, a Path, a binary file, or "
                "an iterator of bytes"
            )


def guess_media_type(source: Source, name: str | None) -> str:
    """Return the media type of the source, by its name or kind.

    It comes from Python's own table, so that every machine returns the same.
    """
    name = source.name if name is None and isinstance(source, Path) else name
    guessed, packed = MimeTypes().guess_type(name) if name is not None else (None, None)
    if guessed is not None and packed is None:
        return guessed
    return "text/plain" if isinstance(source, str) else "application/octet-stream"


async def capped(parts: AsyncIterable[bytes], max_bytes: int) -> AsyncGenerator[bytes, None]:
    """Pass the parts on. Raise InvalidValue when they have more than ``max_bytes`` in all."""
    size = 0
    async with iterating(parts) as each:
        async for part in each:
            size += len(view_bytes(part))
            if size > max_bytes:
                raise InvalidValue(
                    f"the source has more than {max_bytes} bytes, and nothing was stored; store less, or allow more "
                    "with max_bytes="
                )
            yield part


async def _once(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


async def _read_path(path: Path, threads: DaemonThreads) -> AsyncGenerator[bytes, None]:
    file = await threads.run(lambda: path.open("rb"))
    try:
        async with aclosing(_read_file(file, threads)) as parts:
            async for part in parts:
                yield part
    finally:
        # In a thread, because close() waits for a read that is still under way.
        await threads.run(file.close)


async def _read_file(file: BinaryIO, threads: DaemonThreads) -> AsyncGenerator[bytes, None]:
    while part := await threads.run(file.read, _PART):
        yield part


async def _iterate(parts: Iterable[bytes], threads: DaemonThreads) -> AsyncGenerator[bytes, None]:
    iterator = iter(parts)
    while (part := await threads.run(next, iterator, None)) is not None:
        yield part
