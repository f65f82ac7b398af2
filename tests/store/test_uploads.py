"""What streams leave in the database: nothing but artifacts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import apsw
import psycopg
import pytest

from holdfast.model.clock import ManualClock
from holdfast.model.errors import StoreError
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.upload import CHUNK, PIECE
from tests.postgres_server import PostgresServer

UploadingStore = SqliteStore | PostgresStore
CONTENT = bytes(range(256)) * 12_000
CHUNKS = -(-len(CONTENT) // CHUNK)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres18")
    url = server.create_store()
    yield url
    server.drop_database(url)


@pytest.fixture
def make_store(url: str, clock: ManualClock) -> Callable[[], UploadingStore]:
    kind = PostgresStore if url.startswith("postgres") else SqliteStore
    return lambda: kind(url, clock=clock)


@pytest.fixture
async def store(make_store: Callable[[], UploadingStore]) -> AsyncIterator[UploadingStore]:
    async with make_store() as store:
        yield store


def rows(url: str) -> tuple[int, int, int]:
    """How many artifacts, chunks and uploads there are."""
    tables = ("artifacts", "artifact_chunks", "uploads")
    if not url.startswith("postgres"):
        connection = apsw.Connection(url)
        found = [connection.execute(f"SELECT count(*) FROM {table}").get for table in tables]
        connection.close()
    else:
        with psycopg.connect(url) as server:
            counted = [server.execute(f"SELECT count(*) FROM holdfast.{table}").fetchone() for table in tables]
        found = [row[0] for row in counted if row is not None]
    artifacts, chunks, uploads = found
    return artifacts, chunks, uploads


async def stream(content: bytes = CONTENT) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 100_000):
        yield content[start : start + 100_000]


async def begin(store: UploadingStore, upload: str = "upload") -> None:
    """As a process would that dies in the middle of a stream."""
    await store._backend.begin_upload(upload)
    await store._backend.stage(upload, 0, CONTENT[:PIECE])


async def test_the_same_stream_again_leaves_no_second_copy(store: UploadingStore, url: str) -> None:
    for _ in range(2):
        await store.put_artifact(stream())
    assert rows(url) == (1, CHUNKS, 0)
    await asyncio.gather(*(store.put_artifact(stream()) for _ in range(3)))
    assert rows(url) == (1, CHUNKS, 0)


async def test_a_stream_that_fails_leaves_no_row(store: UploadingStore, url: str) -> None:
    seen = []

    async def torn() -> AsyncIterator[bytes]:
        async for part in stream():
            yield part
        seen.append(rows(url))
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store.put_artifact(torn())
    assert seen == [(0, 8, 1)]  # two pieces of four chunks were there
    assert rows(url) == (0, 0, 0)


async def test_a_stream_that_is_cancelled_leaves_no_row(store: UploadingStore, url: str) -> None:
    reached = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        async for part in stream():
            yield part
        reached.set()
        await asyncio.Event().wait()

    storing = asyncio.create_task(store.put_artifact(stalling()))
    await reached.wait()
    assert rows(url) == (0, 8, 1)
    storing.cancel()
    with suppress(asyncio.CancelledError):
        await storing
    assert rows(url) == (0, 0, 0)


async def test_what_a_dead_process_left_is_pruned_when_it_is_old(
    make_store: Callable[[], UploadingStore], url: str, clock: ManualClock
) -> None:
    async with make_store() as store:
        await begin(store)
    async with make_store() as store:
        clock.advance(60)
        await store.prune(timedelta(seconds=61))
        assert rows(url) == (0, 4, 1)
        await store.prune(timedelta(seconds=59))
        assert rows(url) == (0, 0, 0)


async def test_an_upload_is_as_old_as_its_last_piece(store: UploadingStore, url: str, clock: ManualClock) -> None:
    await begin(store)
    clock.advance(60)
    await store._backend.stage("upload", 4, CONTENT[PIECE : 2 * PIECE])
    clock.advance(30)
    await store.prune(timedelta(seconds=59))
    assert rows(url) == (0, 8, 1)


async def test_what_was_pruned_is_not_gone_on_with(store: UploadingStore, url: str, clock: ManualClock) -> None:
    """The artifact would have a hole."""
    await begin(store)
    clock.advance(60)
    await store.prune(timedelta(0))
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store._backend.stage("upload", 4, CONTENT[PIECE:]),
        lambda: store._backend.finish_upload("upload", "0" * 64, len(CONTENT), "text/plain"),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"pruned.*store it again"):
            await call()
    assert rows(url) == (0, 0, 0)


async def test_a_pruned_artifact_takes_its_chunks_along(store: UploadingStore, url: str, clock: ManualClock) -> None:
    await store.put_artifact(stream())
    await store.put_artifact(b"small")
    assert rows(url) == (2, CHUNKS + 1, 0)
    clock.advance(60)
    assert (await store.prune(timedelta(0))).artifacts == 2
    assert rows(url) == (0, 0, 0)


async def test_uploads_are_pruned_in_bounded_batches(store: UploadingStore, url: str, clock: ManualClock) -> None:
    for number in range(3):
        await begin(store, f"upload {number}")
    clock.advance(60)
    assert (await store.prune(timedelta(0), limit=2)).more
    assert rows(url) == (0, 4, 1)
    assert not (await store.prune(timedelta(0), limit=2)).more
    assert rows(url) == (0, 0, 0)


async def test_ending_an_upload_that_ended_leaves_the_artifact_alone(store: UploadingStore, url: str) -> None:
    """As it happens to a caller who is cancelled while the last transaction is on its way."""
    await begin(store)
    await store._backend.finish_upload("upload", "0" * 64, PIECE, "text/plain")
    await store._backend.discard_upload("upload")
    assert rows(url) == (1, 4, 0)
    assert await store.read_artifact("0" * 64) == CONTENT[:PIECE]


async def test_what_is_sent_again_after_a_lost_answer_changes_nothing(
    postgres18: PostgresServer, clock: ManualClock
) -> None:
    """Only PostgreSQL loses answers."""
    url = postgres18.create_store()
    async with PostgresStore(url, clock=clock) as store:
        for _ in range(2):
            await begin(store)
        once = await store._backend.finish_upload("upload", "0" * 64, PIECE, "text/plain")
        assert await store._backend.finish_upload("upload", "0" * 64, PIECE, "text/plain") == once
        assert await store.read_artifact(once.id) == CONTENT[:PIECE]
        assert rows(url) == (1, 4, 0)
    postgres18.drop_database(url)


async def test_a_stream_that_cannot_be_stored_is_closed(store: UploadingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and by the store: its owner may have kept no reference to it."""
    ended: list[str] = []

    class Source:
        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                for _ in range(3):
                    yield bytes(PIECE)
            finally:
                ended.append("source")

    async def fail(upload: str, number: int, piece: bytes) -> None:
        raise StoreError(f"the disk is full: {upload} {number} {len(piece)}")

    monkeypatch.setattr(store._backend, "stage", fail)
    before = asyncio.get_running_loop()._asyncgens.copy()  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="the disk is full") as kept:
        await store.put_artifact(Source())
    assert ended == ["source"]
    # The error still holds the frames of all generators; none of them is left to the garbage collector.
    left = [one for one in asyncio.get_running_loop()._asyncgens if one not in before]  # type: ignore[attr-defined]
    assert [one for one in left if one.ag_frame is not None] == [], kept
