"""The table of meanings: every cell has a proof, every proof belongs to a cell, and the page says what the table says.

A proof is a small program in ``<row>.py``. It runs in a sandbox in memory, and again on a SQLite file where the
occasion is about what survives. A proof that stands elsewhere is only looked for: its own folder runs it.
"""

import asyncio
import importlib
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.testing import sandbox
from tests.semantics.page import PAGE, written
from tests.semantics.scene import Scene
from tests.semantics.table import (
    COLUMNS,
    HERE,
    ROOT,
    functions_in,
    proofs_in,
    read_not_yet,
    read_table,
)

TABLE = read_table()
NOT_YET = read_not_yet()

SURVIVING = {"resume", "take_over", "suspension", "deploy", "prune"}
"""Occasions whose proofs also run on a file."""

PATIENCE = 60.0
HOPELESS = 2.0
"""Seconds until a proof that has to fail, and hangs, counts as failed."""


def test_every_row_says_what_happens_on_every_occasion() -> None:
    assert len(TABLE) == 29
    for row in TABLE.values():
        assert set(row.cells) == set(COLUMNS), row.title
        for column, cell in row.cells.items():
            assert cell.brief, f"{row.title}, {column}"
            assert len(cell.brief) <= 20, f"{row.title}, {column}: {cell.brief!r} is too long for the overview"
            assert cell.text.endswith("."), f"{row.title}, {column}"
            assert cell.proofs, f"{row.title}, {column}: no proof"


def test_every_proof_is_there_and_belongs_to_a_cell() -> None:
    for row in TABLE.values():
        own, there = row.own_proofs(), proofs_in(HERE / f"{row.name}.py")
        assert sorted(own) == sorted(set(own)), f"{row.title}: a proof stands twice"
        assert set(own) == there, f"{row.title}: {set(own) ^ there}"
        for proof in (proof for cell in row.cells.values() for proof in cell.proofs if "::" in proof):
            path, name = proof.split("::")
            assert name in functions_in(ROOT / path), f"{row.title}: no {proof}"
    known = {f"{row.name}.{proof}" for row in TABLE.values() for proof in row.own_proofs()}
    assert set(NOT_YET) <= known


def test_the_page_says_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run: python -m tests.semantics.page"


@pytest.mark.parametrize("name", TABLE)
async def test_what_happens_is_what_the_table_says(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"tests.semantics.{name}")
    wrong: list[str] = []
    for column, cell in TABLE[name].cells.items():
        for proof in (proof for proof in cell.proofs if "::" not in proof):
            has_to_fail = f"{name}.{proof}" in NOT_YET
            for kind in ("memory", "sqlite") if column in SURVIVING and not has_to_fail else ("memory",):
                folder = tmp_path / proof / kind
                folder.mkdir(parents=True)
                url = "memory://" if kind == "memory" else f"sqlite:///{folder}/hold.db"
                why_not = await _refuted(getattr(module, proof), url, folder, has_to_fail=has_to_fail)
                if why_not is not None:
                    wrong.append(f"{name}.{proof}, {kind}: {why_not}")
    assert not wrong, "\n".join(wrong)


async def _refuted(
    proof: Callable[[Scene], Awaitable[None]], url: str, folder: Path, *, has_to_fail: bool
) -> str | None:
    """Return what is wrong with a proof; None if nothing is."""
    try:
        async with (
            sandbox(Holdfast("memory://"), url=url) as box,
            asyncio.timeout(HOPELESS if has_to_fail else PATIENCE),
        ):
            await proof(Scene(box, folder))
    except Exception:  # noqa: BLE001 - whatever a proof fails with, the others are still tried
        return None if has_to_fail else traceback.format_exc()
    return f"it passes now: take it out of {HERE.name}/table.toml, [not_yet]" if has_to_fail else None
