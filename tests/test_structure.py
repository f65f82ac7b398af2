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


SAME_IDEA = {
    "Attempt": "one try at a task; the contract suite has a small one of its own",
    "Database": "the connections of a store, in both SQL folders",
    "Ledger": "what a budget counted, and the ledger outside of the test kit, which is a process",
    "Worker": "the record of a worker, and the worker",
}
"""Public class names that stand more than once, and why a reader is not misled."""


def test_a_class_name_stands_once_unless_it_is_the_same_idea() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert twice.keys() == SAME_IDEA.keys(), {name: twice[name] for name in twice.keys() - SAME_IDEA.keys()}


SMALL = 50
"""Lines below which a module needs a reason of its own if only one other module uses it."""

REASONS = {
    "__main__": "python -m holdfast",
    "agent.description": "what a model gets to know of a task; text apart from the loop",
    "agent.docstrings": "reads a docstring, and knows nothing of tools",
    "agent.openai_client": "the one place that imports the openai package",
    "agent.usage": "what an endpoint says of tokens, which is not believed blindly",
    "cli.render.feed": "one event on one line; the command only reads options",
    "cli.project.agents": "a template that `holdfast init` writes",
    "engine.api.sync.store": "the sync twin of the small store interface",
    "engine.manage.flow": "the verbs that steer all work, beside those about one task",
    "engine.runtime.store_time": "the store's clock",
    "mcp.client.error_meaning": "decides what an error of a server proves; a safety rule with a test of its own",
    "service.readiness": "what /readyz answers",
    "store.feed_verbs": "the door of one group of verbs, as the files beside it",
    "store.flow_verbs": "the door of one group of verbs, as the files beside it",
    "store.postgres.flow": "the same file name in both SQL folders",
    "store.postgres.sweep": "the same file name in both SQL folders",
}


def test_a_small_module_with_one_user_has_a_reason() -> None:
    files = {_name(path): path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"}
    users: dict[str, set[Path]] = {name: set() for name in files}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for name in {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & files.keys():
                    users[name].add(path)
    small = {
        name.removeprefix("holdfast.")
        for name, path in files.items()
        if len(path.read_text(encoding="utf-8").splitlines()) < SMALL and len(users[name]) <= 1
    }
    # A command of the command line is a file of its own, however short; so is a part of the demo's film.
    unexplained = {name for name in small if not name.startswith(("cli.commands.", "cli.demo."))} - REASONS.keys()
    assert not unexplained, f"join them to the module that uses them, or say why not: {sorted(unexplained)}"
