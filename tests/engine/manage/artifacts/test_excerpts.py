"""What a model is shown of an artifact, and how little is read for it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Artifact, Holdfast, InvalidValue
from holdfast.model.excerpt import excerpt, grep

LOG = "".join(f"{number:06} {'ERROR' if number % 1000 == 0 else 'info'} größer\n" for number in range(60_000))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Holdfast], list[tuple[int, int]]]:
    """Watch which parts of artifacts are read."""

    def watch(hold: Holdfast) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        read = hold.store.read_artifact

        async def watched(artifact_id: str, *, offset: int = 0, length: int | None = None) -> bytes:
            assert length is not None
            seen.append((offset, length))
            return await read(artifact_id, offset=offset, length=length)

        monkeypatch.setattr(hold.store, "read_artifact", watched)
        return seen

    return watch


async def test_the_excerpts_of_an_artifact_are_those_of_its_text(hold: Holdfast) -> None:
    stored = await hold.artifacts.write(LOG)
    shown = hold.artifacts.excerpt
    assert await shown(stored.id) == excerpt(LOG, max_bytes=4000)
    assert await shown(stored.id, "head", max_bytes=500) == excerpt(LOG, max_bytes=500, tail=0)
    assert await shown(stored.id, "tail", max_bytes=500) == excerpt(LOG, max_bytes=500, head=0)
    assert await shown(stored.id, "head_tail", max_bytes=10 << 20) == LOG
    for room in (500, 5000):
        found = await shown(stored.id, "grep", pattern="error", max_bytes=room, context=2)
        assert found == grep(LOG, "error", max_bytes=room, context=2)
        assert len(found.encode()) <= room


async def test_only_what_is_shown_is_read(quick: Holdfast, reads: Callable[[Holdfast], list[tuple[int, int]]]) -> None:
    stored = await quick.artifacts.write(LOG)
    seen = reads(quick)
    for how in ("head", "tail", "head_tail"):
        await quick.artifacts.excerpt(stored.id, how, max_bytes=1000)
    assert sum(length for _, length in seen) < 3000
    seen.clear()
    found = await quick.artifacts.excerpt(stored.id, "grep", pattern="ERROR", max_bytes=300)
    assert "no room for more" in found
    assert seen == [(0, 256 << 10)]
    seen.clear()
    assert (
        await quick.artifacts.excerpt(stored.id, "grep", pattern="no such") == "[0 of 60000 lines contain the pattern]"
    )
    assert [offset for offset, _ in seen] == list(range(0, stored.size, 256 << 10))


async def test_bytes_that_are_not_text_are_shown_as_bytes(hold: Holdfast) -> None:
    image = await hold.artifacts.write(b"\x89PNG\r\n\x1a\n\0\0" * 1000, name="plot.png")
    for how, pattern in (("head", None), ("tail", None), ("head_tail", None), ("grep", "PNG")):
        shown = await hold.artifacts.excerpt(image.id, how, pattern=pattern)  # type: ignore[arg-type]
        assert shown == "[no text: 10000 bytes of image/png]"
    named = await hold.artifacts.write(b"\0" * 1000, media_type="x" * 200)
    assert await hold.artifacts.excerpt(named.id, max_bytes=64) == "[no text: 1000 bytes]"


async def test_a_log_that_a_crash_filled_with_zeros_is_still_shown(quick: Holdfast) -> None:
    stored = await quick.artifacts.write(b"begun\n" * 50_000 + b"\0" * 300_000 + b"\nbegun again")
    shown = await quick.artifacts.excerpt(stored.id, max_bytes=200)
    assert shown.startswith("begun\n")
    assert shown.endswith("????\nbegun again")
    assert "50001 of 50002" in await quick.artifacts.excerpt(stored.id, "grep", pattern="begun", max_bytes=1 << 20)


async def test_mistakes_are_named(quick: Holdfast) -> None:
    stored = await quick.artifacts.write("text")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"how": "middle"}, "choose one of head, tail, head_tail, grep"),
        ({"how": "grep"}, 'only "grep" takes a pattern'),
        ({"how": "head", "pattern": "x"}, 'only "grep" takes a pattern'),
        ({"how": "grep", "pattern": ""}, "the pattern has 0 characters"),
        ({"max_bytes": 10}, "max_bytes is 10"),
        ({"how": "grep", "pattern": "x", "context": 21}, "context is 21"),
    ]
    for options, message in wrong:
        with pytest.raises(InvalidValue, match=message):
            await quick.artifacts.excerpt(stored.id, **options)


@given(st.binary(max_size=600) | st.text(max_size=300).map(str.encode), st.integers(64, 300))
async def test_no_excerpt_of_anything_is_too_large(data: bytes, room: int) -> None:
    async with Holdfast("memory://") as hold:
        stored: Artifact = await hold.artifacts.write(data)
        for how in ("head", "tail", "head_tail"):
            assert len((await hold.artifacts.excerpt(stored.id, how, max_bytes=room)).encode()) <= room
        found = await hold.artifacts.excerpt(stored.id, "grep", pattern="a", max_bytes=256 + room)
        assert len(found.encode()) <= 256 + room
