"""hold.artifacts: writing from any source, and reading it back."""

import asyncio
import hashlib
import io
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidValue, NotFound

CONTENT = bytes(range(256)) * 12_000  # three megabytes: several pieces, and no multiple of one


async def whole(hold: Holdfast, artifact_id: str) -> bytes:
    return b"".join([part async for part in hold.artifacts.read(artifact_id)])


async def trickle(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 100_001):
        yield content[start : start + 100_001]


def drops(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 500_000):
        yield content[start : start + 500_000]


async def test_every_source_gives_the_same_artifact(hold: Holdfast, tmp_path: Path) -> None:
    path = tmp_path / "content.bin"
    path.write_bytes(CONTENT)
    expected = hashlib.sha256(CONTENT).hexdigest()
    with path.open("rb") as file:
        sources: list[Any] = [CONTENT, bytearray(CONTENT), memoryview(CONTENT), path, file, io.BytesIO(CONTENT)]
        for source in [*sources, trickle(CONTENT), drops(CONTENT), [CONTENT[:5], CONTENT[5:]]]:
            stored = await hold.artifacts.write(source)
            assert (stored.id, stored.size) == (expected, len(CONTENT))
    assert await whole(hold, expected) == CONTENT
    assert (await hold.artifacts.stat(expected)).size == len(CONTENT)


async def test_text_is_stored_as_utf_8(hold: Holdfast) -> None:
    stored = await hold.artifacts.write("Größe 🙂")
    assert (stored.media_type, stored.size) == ("text/plain", len("Größe 🙂".encode()))
    assert await hold.artifacts.read_text(stored.id) == "Größe 🙂"
    lone = await hold.artifacts.write("half of one: \ud83d")
    assert await hold.artifacts.read_text(lone.id) == "half of one: \ud83d"


async def test_nothing_is_an_artifact_too(hold: Holdfast) -> None:
    stored = await hold.artifacts.write(b"")
    assert await whole(hold, stored.id) == b""
    assert await hold.artifacts.read_text(stored.id) == ""
    assert await hold.artifacts.excerpt(stored.id) == ""


@pytest.mark.parametrize(
    ("name", "media_type", "expected"),
    [
        (None, None, "application/octet-stream"),
        ("report.html", None, "text/html"),
        ("report.html", "text/plain", "text/plain"),
        ("backup.tar.gz", None, "application/octet-stream"),
        ("no ending", None, "application/octet-stream"),
        ("../../etc/passwd", None, "application/octet-stream"),
    ],
)
async def test_the_name_tells_the_media_type(
    quick: Holdfast, name: str | None, media_type: str | None, expected: str
) -> None:
    stored = await quick.artifacts.write(b"x", name=name, media_type=media_type)
    assert stored.media_type == expected


async def test_the_name_of_a_path_tells_it_too(quick: Holdfast, tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text("{}")
    assert (await quick.artifacts.write(path)).media_type == "application/json"


async def test_a_source_that_fails_leaves_nothing(hold: Holdfast) -> None:
    async def torn() -> AsyncIterator[bytes]:
        async for part in trickle(CONTENT):
            yield part
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await hold.artifacts.write(torn())
    with pytest.raises(NotFound, match="artifact"):
        await hold.artifacts.stat(hashlib.sha256(CONTENT).hexdigest())
    assert (await hold.store.prune(timedelta(0))).artifacts == 0


async def test_a_source_that_is_too_large_is_stopped_and_leaves_nothing(hold: Holdfast) -> None:
    given = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal given
        while True:
            given += 1
            yield b"x" * 100_000

    with pytest.raises(InvalidValue, match=r"more than 2500000 bytes.*max_bytes="):
        await hold.artifacts.write(endless(), max_bytes=2_500_000)
    assert given == 26
    assert (await hold.store.prune(timedelta(0))).artifacts == 0
    assert (await hold.artifacts.write(b"x" * 100, max_bytes=100)).size == 100
    with pytest.raises(InvalidValue, match="more than 99 bytes"):
        await hold.artifacts.write(b"x" * 100, max_bytes=99)


async def test_many_write_the_same_at_once(hold: Holdfast) -> None:
    stored = await asyncio.gather(*(hold.artifacts.write(trickle(CONTENT)) for _ in range(4)))
    assert len({artifact.id for artifact in stored}) == 1
    assert await whole(hold, stored[0].id) == CONTENT


async def test_what_no_artifact_can_be_written_from(quick: Holdfast, tmp_path: Path) -> None:
    wrong: Any
    for wrong in (5, object()):
        with pytest.raises(InvalidValue, match="cannot be written from"):
            await quick.artifacts.write(wrong)
    for wrong in (io.StringIO("text"), ["text"], [5]):
        with pytest.raises(InvalidValue, match="has to give bytes"):
            await quick.artifacts.write(wrong)
    with pytest.raises(FileNotFoundError):
        await quick.artifacts.write(tmp_path / "missing")
    with pytest.raises(InvalidValue, match="media type"):
        await quick.artifacts.write(b"x", media_type="\n")


async def test_a_file_is_read_in_a_thread_and_closed(quick: Holdfast, tmp_path: Path) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            threads.add(threading.current_thread())
            return super().read(size)

    threads: set[threading.Thread] = set()
    await quick.artifacts.write(Slow(b"content"))
    assert threads
    assert threading.current_thread() not in threads
    path = tmp_path / "file"
    path.write_bytes(b"too much")
    with pytest.raises(InvalidValue):
        await quick.artifacts.write(path, max_bytes=1)  # an open file would be a ResourceWarning, which is an error


async def test_a_stream_is_never_held_as_a_whole(tmp_path: Path) -> None:
    async def large() -> AsyncIterator[bytes]:
        for number in range(256):
            yield number.to_bytes(4) * (1 << 16)

    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        tracemalloc.start()
        try:
            stored = await hold.artifacts.write(large())
            size = 0
            async for part in hold.artifacts.read(stored.id):
                size += len(part)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert size == stored.size == 64 << 20
    assert most < 12 << 20


async def test_reading_what_is_not_there(quick: Holdfast) -> None:
    missing = "0" * 64
    for call in (quick.artifacts.stat, quick.artifacts.read_text, quick.artifacts.excerpt):
        with pytest.raises(NotFound, match=f"artifact {missing}|artifact '{missing}'"):
            await call(missing)
    with pytest.raises(NotFound):
        await whole(quick, missing)


async def test_reading_what_goes_half_way(hold: Holdfast) -> None:
    """It is an error, and no short read."""
    stored = await hold.artifacts.write(trickle(CONTENT))
    parts = hold.artifacts.read(stored.id)
    assert await anext(parts) == CONTENT[: 256 << 10]
    await asyncio.sleep(0.01)
    assert (await hold.store.prune(timedelta(0))).artifacts == 1
    with pytest.raises(NotFound):
        await anext(parts)


async def test_a_part_and_the_text(hold: Holdfast) -> None:
    stored = await hold.artifacts.write(trickle(CONTENT))
    assert await hold.artifacts.read_range(stored.id, 1_048_570, 20) == CONTENT[1_048_570:1_048_590]
    assert await hold.artifacts.read_range(stored.id, len(CONTENT) - 5, 20) == CONTENT[-5:]
    with pytest.raises(InvalidValue, match=r"3072000 bytes, and 1000 are allowed; use read\(\)"):
        await hold.artifacts.read_text(stored.id, max_bytes=1000)
    with pytest.raises(InvalidValue, match="not UTF-8 text"):
        await hold.artifacts.read_text(stored.id)


async def test_the_same_for_blocking_code(tmp_path: Path) -> None:
    def blocking() -> None:
        hold = Holdfast(f"sqlite:///{tmp_path}/hold.db")
        with hold.sync as h:
            stored = h.artifacts.write(drops(CONTENT), name="x.html")
            assert h.artifacts.stat(stored.id) == stored
            assert stored.media_type == "text/html"
            assert b"".join(h.artifacts.read(stored.id)) == CONTENT
            assert h.artifacts.read_range(stored.id, 5, 3) == CONTENT[5:8]
            text = h.artifacts.write("one\ntwo\n")
            assert h.artifacts.read_text(text.id) == "one\ntwo\n"
            assert h.artifacts.excerpt(text.id, "grep", pattern="two").startswith("2: two")
            with pytest.raises(InvalidValue, match="more than"):
                h.artifacts.write("text", max_bytes=1)

    await asyncio.to_thread(blocking)


@pytest.mark.parametrize("cause", ["too much", "the store fails"])
async def test_a_file_is_closed_when_a_failed_write_is_over(
    hold: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    """Also while a reference to the error keeps all that was under way."""
    path = tmp_path / "content.bin"
    path.write_bytes(CONTENT)
    files: list[io.IOBase] = []
    real = Path.open

    def spy(self: Path, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        file = real(self, *args, **options)
        if self == path:
            files.append(file)
        return file

    async def failing_put(content: AsyncIterator[bytes], **options: object) -> None:
        await anext(content)
        raise InvalidValue(f"the disk is full: {options}")

    monkeypatch.setattr(Path, "open", spy)
    if cause == "the store fails":
        monkeypatch.setattr(hold.store, "put_artifact", failing_put)
    with pytest.raises(InvalidValue) as kept:
        await hold.artifacts.write(path, max_bytes=len(CONTENT) - 1)
    assert [file.closed for file in files] == [True], kept
