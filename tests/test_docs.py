"""Every code block in the README and the docs is run, and the output they show is the output they give."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.transitions import mermaid
from holdfast.store.jsonfile import JsonStore
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlite import SqliteStore

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in _BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


SNIPPETS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(blocks(page, "python"))
    if "asyncio.run" not in code  # a whole program: run as one, below
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_a_snippet_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compiled = compile(code, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(compiled, {})  # noqa: S307 - our own documentation
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)


def test_the_readme_program_crashes_and_resumes_as_shown(tmp_path: Path) -> None:
    (program,) = [code for code in blocks(ROOT / "README.md", "python") if "asyncio.run" in code]
    (session,) = blocks(ROOT / "README.md", "console")
    (tmp_path / "deploy.py").write_text(program, encoding="utf-8")
    (tmp_path / "python").symlink_to(sys.executable)
    commands = [line.removeprefix("$ ") for line in session.splitlines() if line.startswith("$ ")]
    shown = [line for line in session.splitlines() if not line.startswith("$ ")]
    printed: list[str] = []
    for command in commands:
        script = command.replace("python ", f"{sys.executable} ")
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
        printed += done.stdout.splitlines()
        if done.returncode in {-9, 137}:
            printed.append("Killed")
        else:
            assert done.returncode == 0, done.stderr
    assert printed == shown


def test_the_capabilities_in_the_docs_are_those_of_the_stores() -> None:
    text = (ROOT / "docs/stores.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+):.*?` \| (\w+) \| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$", text, re.MULTILINE)
    stores: dict[str, type[SimpleInterface]] = {
        "memory": MemoryStore,
        "json": JsonStore,
        "sqlite": SqliteStore,
        "postgresql": PostgresStore,
    }
    assert [row[0] for row in rows] == list(stores)
    for scheme, *said in rows:
        has = stores[scheme].capabilities
        assert [word == "yes" for word in said] == [
            has.durable,
            has.multi_process,
            has.multi_machine,
            has.precise_hints,
            has.transactions,
        ]


def test_the_state_diagram_in_the_glossary_is_the_table() -> None:
    (diagram,) = blocks(ROOT / "docs/glossary.md", "mermaid")
    assert diagram.strip() == mermaid()


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "docs/decisions").glob("*.md"))], ids=lambda page: page.stem)
def test_no_link_is_broken(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
