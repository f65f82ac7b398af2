"""How the code is laid out: what a reader may rely on when looking for something."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent


def imports(package: str) -> dict[str, set[str]]:
    """Return which modules of a package each of its modules imports, also for types alone and inside functions."""
    files = {_name(path): path for path in (SOURCE / package).rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                named = {f"{node.module}.{alias.name}" for alias in node.names} & files.keys()
                found |= named or ({node.module} & files.keys())
        graph[name] = found - {name}
    return graph


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_modules_of_the_engine_import_each_other_in_one_direction() -> None:
    graph = imports("engine")
    assert graph["holdfast.engine.steps.step"], "nothing was found"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("a cycle of imports; take a narrow Protocol instead: " + " <- ".join(error.args[1]))
