"""The reference pages are what the code says, and every command is explained somewhere else as well."""

from __future__ import annotations

import enum
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

import holdfast
from holdfast.cli.application import app
from scripts import reference
from scripts.reference_pages.api import api_pages, grouped
from scripts.reference_pages.cli import cli_page, command_tree
from tests.docs.links import broken
from tests.docs.pages import PAGES, ROOT

API, CLI = ROOT / "docs/reference-api.md", ROOT / "docs/reference-cli.md"
GUIDES = [page for page in PAGES if page not in {API, CLI}]
COMMANDS = [path for path, _ in command_tree(typer.main.get_command(app), "holdfast")]


def run_script(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)


def test_the_reference_pages_are_up_to_date() -> None:
    done = run_script(ROOT / "scripts/reference.py", "--check")
    assert done.returncode == 0, done.stderr


def test_a_stale_page_is_found_written_and_found_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/reference-api.md").write_text("# Old\n", encoding="utf-8")

    assert reference.main(["--check"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"docs/{name} is not up to date; run: {reference.COMMAND}" for name in (*api_pages(), "reference-cli.md")
    ]
    assert (tmp_path / "docs/reference-api.md").read_text(encoding="utf-8") == "# Old\n"

    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0


def test_every_command_stands_in_the_reference() -> None:
    headings = re.findall(r"^#+ (holdfast .+)$", CLI.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == COMMANDS


def test_every_command_is_explained_on_a_page_that_people_read() -> None:
    said = "\n".join(page.read_text(encoding="utf-8") for page in GUIDES)
    missing = [path for path in COMMANDS if not re.search(rf"\b{path}\b", said)]
    assert not missing, f"on no page but the reference: {', '.join(missing)}"


def test_every_public_name_stands_in_the_reference() -> None:
    pages = list(API.with_name("reference").glob("*.md"))
    headings = [
        name
        for page in pages
        for name in re.findall(r"^## (\w+)(?: \(function\))?$", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(headings) == sorted(name for name in holdfast.__all__ if not name.startswith("_"))


def test_a_name_without_a_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdfast, "Handles", object(), raising=False)
    with pytest.raises(SystemExit, match="Handles: give each a place in GROUPS"):
        grouped([*holdfast.__all__, "Handles"])


def test_the_reference_says_nothing_of_the_machine_it_was_made_on() -> None:
    for text in (*api_pages().values(), cli_page()):
        assert not re.search(r"0x[0-9a-f]{6}|typing\.|<class|<function|<factory|/(home|root|tmp|work)/", text)
        assert str(Path.home()) not in text


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def small_app() -> typer.Typer:
    group = typer.Typer(help="What is remembered.")
    small = typer.Typer(name="small", help="A small one.")

    @group.command("recall")
    def recall(entity: Annotated[str, typer.Argument(help="What it is about.")]) -> None:
        """Print what is known."""

    @small.command("later", rich_help_panel="More")
    def later() -> None:
        """Come last, though it was defined first."""

    @small.command("paint", epilog="It dries.")
    def paint(
        *,
        colour: Annotated[Colour, typer.Option("--colour", "-c", help="Which | one.")] = Colour.RED,
        coats: Annotated[int, typer.Option(envvar=["COATS", "LAYERS"], help="How ``often``.")] = 2,
        seconds: Annotated[float, typer.Option(metavar="SECONDS")] = 30.0,
        dry: Annotated[bool, typer.Option("--dry/--wet", help="Or not.")] = True,
        secret: Annotated[str, typer.Option(hidden=True)] = "",
    ) -> None:
        """Paint it."""

    @small.command("gone", hidden=True)
    def gone() -> None:
        """Be hidden."""

    small.add_typer(group, name="memory")
    small.callback()(lambda: None)
    return small


def test_the_reference_of_a_command_has_all_of_it(tmp_path: Path) -> None:
    text = cli_page(small_app())
    assert re.findall(r"^(#+ small.*)$", text, re.MULTILINE) == [
        "## small paint",
        "## small memory",
        "### small memory recall",
        "## small later",
    ]
    assert "\n**More**\n\n| command | |\n|---|---|\n| [`small later`](#small-later) | Come last" in text
    assert "| [`small memory recall`](#small-memory-recall) | Print what is known. |\n\n**More**" in text
    assert "| `--colour`, `-c red\\|blue` | Which \\| one. | `red` |  |" in text
    assert "| `--coats NUMBER` | How `often`. | `2` | `COATS`, `LAYERS` |" in text
    assert "| `--seconds SECONDS` |  | `30` |  |" in text
    assert "| `--dry`, `--wet` | Or not. | `--dry` |  |" in text
    assert "Usage: small memory recall [OPTIONS] ENTITY" in text
    assert "| `ENTITY` | What it is about. | required |  |" in text
    assert "Usage: small memory [OPTIONS] COMMAND" in text
    assert "It dries." in text
    assert "secret" not in text
    assert "gone" not in text
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert broken(page) == []
