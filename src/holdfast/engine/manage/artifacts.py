"""hold.artifacts: large outputs, kept outside the context and shown to a model in excerpts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Literal, TypeAlias, get_args

from holdfast.engine.manage.artifact_sources import Source, capped, guess_media_type, stream
from holdfast.engine.runtime.services import Services
from holdfast.model.agent_state import ArtifactRef
from holdfast.model.checks import check_integer
from holdfast.model.errors import InvalidValue, NotFound
from holdfast.model.excerpt import join, share
from holdfast.model.failure import storable
from holdfast.model.line_search import LineSearch
from holdfast.model.records import Artifact, ArtifactLink
from holdfast.model.utf8 import decode, decode_anything, drop_cut_end, drop_cut_start, is_text

How: TypeAlias = Literal["head", "tail", "head_tail", "grep"]
"""Which part of an artifact an excerpt shows."""

MAX_BYTES: Final = 64 << 20
"""How large an artifact may be, unless the caller of ``write`` gives another ``max_bytes``."""

MAX_TEXT: Final = 8 << 20
EXCERPT: Final = 4000
PART: Final = 256 << 10
_NAME: Final = 120
_NOT_SHOWN: Final = {"head": {"tail": 0}, "tail": {"head": 0}, "head_tail": {}}


class Artifacts:
    """Write, read and show artifacts. Their id is the SHA-256 of their bytes: the same bytes are stored once."""

    __slots__ = ("_services",)

    def __init__(self, services: Callable[[], Services]) -> None:
        """Only Holdfast creates this."""
        self._services = services

    async def write(
        self, source: Source, *, media_type: str | None = None, name: str | None = None, max_bytes: int = MAX_BYTES
    ) -> Artifact:
        """Store the bytes of ``source`` as a stream; return the record of the artifact.

        Without ``media_type``, the type is guessed from the suffix of ``name`` or of the path; the name itself is not
        stored. If the source fails, or has more than ``max_bytes``, nothing is stored. A prune deletes artifacts that
        no task links.
        """
        check_integer("max_bytes", max_bytes, lowest=0)
        services = self._services()
        parts = capped(stream(source, services.threads), max_bytes)
        async with aclosing(parts):
            return await services.store.put_artifact(parts, media_type=media_type or guess_media_type(source, name))

    async def stat(self, artifact_id: str) -> Artifact:
        """Return the size, the type and the time of an artifact. Raises NotFound."""
        if (artifact := await self._services().store.artifact(artifact_id)) is None:
            raise NotFound("artifact", artifact_id)
        return artifact

    async def read(self, artifact_id: str) -> AsyncGenerator[bytes, None]:
        """Yield its bytes in parts. Raises NotFound, also half-way if it is pruned meanwhile."""
        size = (await self.stat(artifact_id)).size
        for offset in range(0, size, PART):
            yield await self.read_range(artifact_id, offset, PART)

    async def read_range(self, artifact_id: str, offset: int, length: int) -> bytes:
        """Return a part of it, without reading the rest. At the end it is shorter, or empty. Raises NotFound."""
        return await self._services().store.read_artifact(artifact_id, offset=offset, length=length)

    async def read_text(self, artifact_id: str, *, max_bytes: int = MAX_TEXT) -> str:
        """Return the whole text of an artifact. Raises NotFound, and InvalidValue if it is too large or not UTF-8."""
        artifact = await self.stat(artifact_id)
        if artifact.size > max_bytes:
            raise InvalidValue(
                f"artifact {artifact_id} has {artifact.size} bytes, and {max_bytes} are allowed; use read() or "
                "excerpt(), or allow more with max_bytes="
            )
        data = await self.read_range(artifact_id, 0, artifact.size)
        try:
            return decode(data)
        except UnicodeDecodeError as error:
            raise InvalidValue(
                f"artifact {artifact_id} ({artifact.media_type}) is not UTF-8 text: {error}; read() returns its bytes"
            ) from error

    async def excerpt(
        self,
        artifact_id: str,
        how: How = "head_tail",
        *,
        pattern: str | None = None,
        max_bytes: int = EXCERPT,
        context: int = 0,
    ) -> str:
        """Return an excerpt for a model: at most ``max_bytes``, with a note of what is missing. Raises NotFound.

        It is the beginning, the end, both, or the lines that contain ``pattern`` (plain text) with ``context`` lines
        around them: see ``LineSearch``. Only the shown bytes are read; ``grep`` reads until it has enough. For bytes
        that are not text, only the type and the size are returned.
        """
        if how not in get_args(How):
            raise InvalidValue(f"how is {how!r}; choose one of {', '.join(get_args(How))}")
        if (pattern is not None) != (how == "grep"):
            raise InvalidValue(f'how is {how!r} and pattern is {pattern!r}; only "grep" takes a pattern, and needs it')
        artifact = await self.stat(artifact_id)
        if how == "grep":
            shown = await self._grep(artifact, LineSearch(pattern or "", max_bytes=max_bytes, context=context))
        else:
            shown = await self._ends(artifact, share(artifact.size, max_bytes=max_bytes, **_NOT_SHOWN[how]))
        return _describe(artifact, max_bytes) if shown is None else shown

    async def _ends(self, artifact: Artifact, shares: tuple[int, int] | None) -> str | None:
        """Return beginning and end, or all of it; None if the bytes are not text."""
        head, tail = shares or (artifact.size, 0)
        first = await self.read_range(artifact.id, 0, head) if head else b""
        last = await self.read_range(artifact.id, artifact.size - tail, tail) if tail else b""
        if not is_text(first or last):
            return None
        if shares is None:
            return decode_anything(first)
        first, last = drop_cut_end(first), drop_cut_start(last)
        missing = artifact.size - len(first) - len(last)
        return join(decode_anything(first), decode_anything(last), missing=missing)

    async def _grep(self, artifact: Artifact, search: LineSearch) -> str | None:
        """Return the matching lines; None if the bytes are not text."""
        for offset in range(0, artifact.size, PART):
            part = await self.read_range(artifact.id, offset, PART)
            if offset == 0 and not is_text(part):
                return None
            search.feed(part)
            if search.is_full:
                break
        return search.finish(artifact.size)


def link_to(artifact: ArtifactRef) -> ArtifactLink:
    """Return the link that the store keeps for an artifact in the state.

    Its texts come from a tool or a model and may hold anything, so they are made safe for the columns of a database.
    """
    summary = storable(artifact.summary)
    return ArtifactLink(
        artifact_id=artifact.artifact_id,
        name=summary[:_NAME],
        type=storable(artifact.type),
        summary=summary,
        bytes=artifact.bytes,
        step=None if artifact.step is None else storable(artifact.step),
    )


def _describe(artifact: Artifact, max_bytes: int) -> str:
    described = f"[no text: {artifact.size} bytes of {artifact.media_type}]"
    return described if len(described.encode()) <= max_bytes else f"[no text: {artifact.size} bytes]"
