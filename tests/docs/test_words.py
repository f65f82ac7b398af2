"""Words that hide who acts stay out of what people read: name the worker, the caller, the user or the approver."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from holdfast.store.sqlfiles import migrations
from tests.docs.pages import ROOT

WORDS = re.compile(
    r"\b(whoever|somebody|nobody|everybody|anybody|told|anew|hither|lest|heed|loose ends|stretches|mortal)\b"
    # "is no X" for "is not an X"; "there is no X" and "is no longer" are plain
    r"|(?<!there )\b(is|are|was|were) no (?!longer\b|more\b)[a-z]",
    re.IGNORECASE,
)

NAMES = re.compile(
    r"(^|_)(whoever|somebody|somebodys|somebody_elses|nobody|nobodys|everybody|anybody|anybodys"
    r"|told|hither|lest|heed|crowd|anew|loose_ends|last_words)(_|$)"
)
"""Words that no function, class or constant has in its name, in the code and in the tests."""

FINISHED = ["README.md", "CONTRIBUTING.md", "docs", "src/holdfast", "tests", "benchmarks", "scripts", "examples"]
"""Files and folders that have none of the words. A folder counts with all that is below it."""

READ = (".py", ".md", ".sql", ".toml")
"""What is read in a folder."""

EXCEPT = [
    "docs/decisions",
    "docs/reference",
    "docs/reference-api.md",
    "docs/reference-cli.md",
    "docs/semantics.md",
    "src/holdfast/store/postgres/migrations",
    "src/holdfast/store/sqlite/migrations",
    "tests/docs/test_words.py",
]
"""Decisions are not rewritten. Reference and meanings are generated: their words are in docstrings and in a table of
tests. A released migration never changes, not even in its comments: its checksum covers them."""

ALLOWED = {
    "while nobody worked on it": "all stores write it; PostgreSQL has it in a migration, which never changes",
    '"by": "nobody"': "stored data",
    '("postgres", "nobody")': "an account of the system",
    "no account named postgres or nobody": "an account of the system",
}
"""Phrases that need such a word, each with the reason."""


def test_what_people_read_names_who_acts() -> None:
    files = list(finished())
    assert len(files) >= len(FINISHED)
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in hits(file.read_text(encoding="utf-8"))
    ]
    assert not found, "name the actor instead:\n" + "\n".join(found)


def test_the_changes_of_the_next_version_name_who_acts() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = text.partition("## [Unreleased]")[2].partition("\n## [")[0]
    assert unreleased
    assert not list(hits(unreleased))


def test_a_line_with_such_a_word_is_found() -> None:
    text = "A worker asks.\nNobody answers.\n# it was told\nfoothold, retold\nit is no task\nThere is no task.\n"
    assert list(hits(text)) == [(2, "Nobody answers."), (3, "# it was told"), (5, "it is no task")]


def test_a_released_migration_is_left_as_it_is() -> None:
    """Otherwise its comments would have to be plain, too."""
    [first, *_] = migrations("holdfast.store.sqlite.migrations")
    assert first.checksum != replace(first, sql=first.sql.replace("--", "-- Plainly:", 1)).checksum


def test_names_say_what_a_thing_does() -> None:
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = []
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, (*named, ast.Name)):
                continue
            name = node.id if isinstance(node, ast.Name) else node.name
            if NAMES.search(name.lower()) and (isinstance(node, named) or name.isupper()):
                found.append(f"{file.relative_to(ROOT)}:{node.lineno}: {name}")
    assert not found, "find a plain name:\n" + "\n".join(found)


def finished() -> Iterator[Path]:
    """Yield every finished file."""
    left_out = [ROOT / name for name in EXCEPT]
    for name in FINISHED:
        path = ROOT / name
        assert path.exists(), f"{name} is in FINISHED and does not exist"
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.suffix in READ]
        yield from (file for file in files if not any(file.is_relative_to(folder) for folder in left_out))


def hits(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of every line with one of the words."""
    for number, line in enumerate(text.splitlines(), start=1):
        if WORDS.search(line) and not any(phrase in line for phrase in ALLOWED):
            yield number, line
