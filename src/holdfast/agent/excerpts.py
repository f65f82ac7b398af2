"""Artifacts in the conversation: excerpts of large results, and results of read_artifact.

If the budget limits them, the newest excerpts stay, and the older ones shrink to id and summary. These are pure
functions: the same conversation and state give the same messages on every replay. No call loses its result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.model.agent_state import AgentState
from holdfast.model.excerpt import SMALLEST_EXCERPT, excerpt
from holdfast.model.message import Message
from holdfast.model.state_size import size_of

READ_ARTIFACT = "read_artifact"

_KEPT = re.compile(r"\[(\d+) bytes, kept as artifact ([^\s;\]]+); read_artifact shows more of it\]")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SUMMARY_BYTES = 200


def kept_note(artifact_id: str, size: int) -> str:
    """Return the note after the excerpt of a result that is kept as an artifact."""
    return f"[{size} bytes, kept as artifact {artifact_id}; {READ_ARTIFACT} shows more of it]"


@dataclass(frozen=True, slots=True)
class _Shown:
    """A message that shows a part of an artifact."""

    place: int
    body: str
    """The excerpt."""
    note: str
    """The note that follows it."""
    short: str
    """What stays without the excerpt: the id and the summary."""
    bare: str
    """The id alone."""

    @property
    def content(self) -> str:
        return self.body + self.note


def needed_bytes(messages: Sequence[Message], state: AgentState) -> int:
    """Return how many bytes of artifacts the messages show without a limit."""
    return sum(size_of(one.content) for one in _find(messages, state))


def limit_excerpts(messages: Sequence[Message], state: AgentState, max_bytes: int) -> list[Message]:
    """Return the messages with no more than ``max_bytes`` of artifacts in them: the oldest excerpts shrink first.

    The ids and summaries that stay count as well. If the ids alone take more, they stay: without its id, a model could
    not ask for an artifact.
    """
    found = list(_find(messages, state))
    texts = {one.place: one.content for one in found}
    left = max_bytes - sum(map(size_of, texts.values()))
    if left >= 0:
        return list(messages)
    texts = {one.place: one.short for one in found}
    left = max_bytes - sum(map(size_of, texts.values()))
    for one in found:
        if left < 0:
            texts[one.place] = one.bare
            left += size_of(one.short) - size_of(one.bare)
    for one in reversed(found):
        more = size_of(one.content) - size_of(texts[one.place])
        if more > left:
            if one is found[-1]:  # the newest one does not fit as a whole: show its beginning and its end
                texts[one.place] = _cut(one, left + size_of(texts[one.place])) or texts[one.place]
            break
        texts[one.place], left = one.content, left - more
    return [
        replace(message, content=texts[place]) if place in texts else message for place, message in enumerate(messages)
    ]


def _cut(one: _Shown, max_bytes: int) -> str | None:
    room = max_bytes - size_of(one.note)
    return None if room < SMALLEST_EXCERPT else excerpt(one.body, max_bytes=room) + one.note


def _find(messages: Sequence[Message], state: AgentState) -> Iterator[_Shown]:
    """Return the messages that show more of an artifact than its id and summary, the oldest first."""
    summaries = {artifact.artifact_id: artifact.summary for artifact in state.artifacts}
    reads: dict[str, str] = {}
    for place, message in enumerate(messages):
        for call in message.tool_calls:
            # Some models number their calls from 1 in every message: an id means the newest call with it.
            reads.pop(call.id, None)
            if call.name == READ_ARTIFACT and (artifact_id := _artifact_in(call.arguments)) is not None:
                reads[call.id] = artifact_id
        if message.role == "tool":
            one = _shown(place, message, summaries, reads.get(message.tool_call_id or ""))
            if one is not None and size_of(one.short) < size_of(one.content):
                yield one


def _shown(place: int, message: Message, summaries: Mapping[str, str], read: str | None) -> _Shown | None:
    content = message.content
    if read is not None:
        again = f"; {READ_ARTIFACT} shows it again]"
        what = f"[An excerpt of artifact {read}"
        return _Shown(place, content, "", f"{what}{_summary(summaries.get(read))}{again}", f"{what}{again}")
    # The last note of an existing artifact: a tool may print text that looks like such a note. A full state does not
    # know all artifacts, so an id that is a digest counts as well.
    notes = [one for one in _KEPT.finditer(content) if one.group(2) in summaries or _DIGEST.fullmatch(one.group(2))]
    if not notes:
        return None
    note = notes[-1]
    size, artifact_id = note.groups()
    what, behind = f"[{size} bytes, kept as artifact {artifact_id}", content[note.end() :]
    return _Shown(
        place,
        content[: note.start()],
        content[note.start() :],
        f"{what}{_summary(summaries.get(artifact_id))}; {READ_ARTIFACT} shows it]{behind}",
        f"{what}]{behind}",
    )


def _summary(summary: str | None) -> str:
    return "" if not summary else f": {json.dumps(excerpt(summary, max_bytes=_SUMMARY_BYTES), ensure_ascii=False)}"


def _artifact_in(arguments: str) -> str | None:
    try:
        named = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    artifact_id = named.get("artifact_id") if isinstance(named, dict) else None
    # A model may write anything there: no id is longer than this.
    return artifact_id if isinstance(artifact_id, str) and 0 < len(artifact_id) <= _SUMMARY_BYTES else None
