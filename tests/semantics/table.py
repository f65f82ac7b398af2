"""The table of meanings, as tests and page read it from ``table.toml``."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

COLUMNS = {
    "automatic_retry": "automatic retry",
    "resume": "resume",
    "take_over": "take-over",
    "suspension": "suspension",
    "deploy": "deploy",
    "retry": "retry",
    "new_round": "new round",
    "fork": "fork",
    "cancel": "cancel",
    "deadline": "deadline",
    "prune": "prune",
}
"""The occasions: their names in code, and on the page."""

NOT_YET = "not_yet"


@dataclass(frozen=True)
class Cell:
    """What happens to one thing on one occasion."""

    brief: str
    text: str
    proofs: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One thing of a task, and what happens to it."""

    name: str
    title: str
    about: str
    cells: dict[str, Cell]

    def own_proofs(self) -> list[str]:
        """Return the names of the functions that prove its cells, in tests/semantics/<name>.py."""
        return [proof for cell in self.cells.values() for proof in cell.proofs if "::" not in proof]


def read_table() -> dict[str, Row]:
    """Read the rows, in their order."""
    rows = {}
    for name, entry in _document().items():
        if name != NOT_YET:
            cells = {
                column: Cell(cell[0], cell[1], tuple(cell[2]))
                for column, cell in entry.items()
                if column not in {"title", "about"}
            }
            rows[name] = Row(name, entry["title"], entry["about"], cells)
    return rows


def read_not_yet() -> dict[str, str]:
    """Return which proofs have to fail, and why."""
    return dict(_document().get(NOT_YET, {}))


def _document() -> dict[str, dict[str, Any]]:
    return tomllib.loads((HERE / "table.toml").read_text(encoding="utf-8"))


def functions_in(path: Path) -> set[str]:
    """Return the names of the functions of a file, those of its classes included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def proofs_in(path: Path) -> set[str]:
    """Return the names of the proofs of a row's file: what takes a scene, and nothing else."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.AsyncFunctionDef)
        and not node.decorator_list
        and not node.name.startswith("_")
        and [argument.arg for argument in node.args.args] == ["scene"]
        and node.args.kwarg is None
    }
