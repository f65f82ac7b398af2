"""What the tests of checkpoints share: a tool that keeps facts, and the law that a checkpoint is a fold of patches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import apsw

from holdfast import Checkpoint, Handle, Holdfast, KnownFact, StatePatch, tool
from holdfast.engine.manage.past_state import fold
from holdfast.model.canonical import canonical
from holdfast.model.records import PatchRecord


@tool(risk="read_only")
async def note(key: str, size: int = 1) -> tuple[str, StatePatch]:
    """Note something."""
    return "noted", StatePatch(append_facts=(KnownFact(key=key, value="x" * size, source="note"),))


@tool(risk="read_only")
async def look(place: str = "here") -> str:
    """Look somewhere."""
    return f"nothing {place}"


def folded(patches: Iterable[PatchRecord], version: int) -> bytes:
    """Return the body that a checkpoint of this version must have."""
    return canonical(fold(record for record in patches if record.version <= version).to_json())


def assert_exact(checkpoints: Iterable[Checkpoint], patches: list[PatchRecord]) -> None:
    """Each is exactly the fold of the patches up to its version."""
    for saved in checkpoints:
        assert saved.body == folded(patches, saved.version), f"checkpoint {saved.number} at version {saved.version}"


async def facts_of(hold: Holdfast, task: Handle[str]) -> list[str]:
    return [fact.key for fact in (await hold.state(task)).known_facts]


def rewrite(path: Path, statement: str, *values: object) -> None:
    """Change a stored row without Holdfast."""
    connection = apsw.Connection(str(path))
    try:
        connection.execute(statement, values)
        assert connection.changes() > 0
    finally:
        connection.close()
