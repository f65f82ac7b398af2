"""The chapters that Holdfast answers, section by section, and the mark of the test that proves one.

They are a public course (github.com/kshvakov/ai-agent-course) and a page about state machines (8me Showcase).
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

Test = TypeVar("Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Heading:
    """One heading of a document, in both languages."""

    name: str
    russian: str
    kind: Literal["section", "group", "repeated"] = "section"
    """Only a section has a test of its own, see chapters.toml."""


@dataclass(frozen=True)
class Chapter:
    """One document: its title and headings, in English and Russian."""

    number: str
    """What the examples call it."""
    title: str
    russian_title: str
    headings: tuple[Heading, ...]
    """In the order of the document."""

    @property
    def sections(self) -> list[str]:
        """The headings that have a test here."""
        return [one.name for one in self.headings if one.kind == "section"]


def _read() -> Iterator[Chapter]:
    for one in tomllib.loads((HERE / "chapters.toml").read_text(encoding="utf-8")).values():
        yield Chapter(**{**one, "headings": tuple(Heading(*names) for names in one["headings"])})


CHAPTERS = STATE_MANAGEMENT, PRODUCTION, STATE_PAGE = tuple(_read())

EVERY_STORE = "memory, JSON, SQLite, PostgreSQL"
STORES = {"hold": EVERY_STORE, "url": EVERY_STORE, "lasting_url": "JSON, SQLite, PostgreSQL", "json_url": "JSON"}
"""On which stores a test runs, by the fixture that it uses."""

NO_STORE = "no store"


def section(chapter: Chapter, name: str, *, ours: str) -> Callable[[Test], Test]:
    """Mark the test that proves a section; ``ours`` is how the section's idea is called here, in code.

    ``read_proofs`` reads the mark from the source, so nothing is kept at run time.
    """
    if name not in chapter.sections or not ours:
        raise ValueError(f"{chapter.title} has no section {name!r}, or the mark does not say what it is called here")

    return lambda test: test


@dataclass(frozen=True)
class Proof:
    """The test of one section."""

    path: Path
    test: str
    ours: str
    stores: str


def name_of_test(section_name: str) -> str:
    """Return what the test of a section is called."""
    plain = re.sub(r"[^a-z0-9]+", "_", section_name.lower().replace("'", ""))
    return f"test_{plain.strip('_')}"


def read_proofs() -> dict[tuple[str, str], Proof]:
    """Read the marks of all tests in this folder, by the number of the chapter and the name of the section.

    They are read from the source: importing the tests to write a page would need what they need.
    """
    found: dict[tuple[str, str], Proof] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for test in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
                for chapter, name, ours in _marks(test):
                    if (chapter.number, name) in found:
                        raise ValueError(f"{chapter.title} has two tests of {name!r}")
                    found[chapter.number, name] = Proof(path, test.name, ours, _stores(test))
    return found


def _marks(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[Chapter, str, str]]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == section.__name__:
            given = inspect.signature(section).bind(*mark.args, **{one.arg or "": one.value for one in mark.keywords})
            chapter, name, ours = (given.arguments[part] for part in ("chapter", "name", "ours"))
            yield globals()[chapter.id], ast.literal_eval(name), ast.literal_eval(ours)


def _stores(test: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    used = [STORES[argument.arg] for argument in test.args.args if argument.arg in STORES]
    return used[0] if used else NO_STORE
