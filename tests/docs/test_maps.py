"""The maps of the packages: every module is in one, and is named by a noun."""

from __future__ import annotations

import itertools
import re

import pytest

from scripts.maps import SOURCE, first_sentence, main, packages, parts

NOUNS = {"error_meaning.py", "finding.py"}
"""Names on -ing that are things."""


def test_every_map_lists_what_its_package_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, f"{capsys.readouterr().err}run `make docs`"


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        f"{path.parent.relative_to(SOURCE)}/{name}"
        for path in packages()
        for name, file in parts(path.parent)
        if len(first_sentence(file)) < 10
    ]
    assert not silent


def test_modules_are_named_by_nouns() -> None:
    found = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*ing.py") if path.name not in NOUNS}
    contract = {one for one in found if one.startswith("testing/contract/")}  # named after what is tested
    assert not found - contract


def test_the_table_of_rules_names_what_exists() -> None:
    """The one in CONTRIBUTING.md, by which newcomers find a rule."""
    text = (SOURCE.parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| rule | decided in | done in |\n")
    rows = list(itertools.takewhile(lambda line: line.startswith("|"), table.splitlines()))
    named = {name for row in rows for name in re.findall(r"`([\w/.]+)`", row)} - {"once"}
    files = {name for name in named if "." in name}
    assert len(files) > 20
    assert len(named - files) > 10
    assert not [name for name in files if not (SOURCE / name).exists() and name != "queries.sql"]
    source = "\n".join(path.read_text(encoding="utf-8") for one in ("*.py", "*.sql") for path in SOURCE.rglob(one))
    defined = set(re.findall(r"(?:def |name: |FUNCTION \{schema\}\.)(\w+)", source))
    assert not named - files - defined
