"""What ``--help`` says: words that people type, and no types of Python."""

from __future__ import annotations

import pytest

from tests.commands import invoke


@pytest.mark.parametrize("arguments", [["approve"], ["cancel"], ["list"], ["memory", "store"], ["memory"], []])
def test_help_says_plain_words(arguments: list[str]) -> None:
    said = invoke([*arguments, "--help"], env={"COLUMNS": "120"}).stdout
    assert "--help" in said
    assert [word for word in ("<bool>", "<str>", "<list", "<int", "BOOLEAN") if word in said] == []


def test_help_names_the_values_of_options_only() -> None:
    said = invoke(["cancel", "--help"], env={"COLUMNS": "120"}).stdout
    lines = {line.split()[1]: line.strip("│ ").split() for line in said.splitlines() if line.startswith("│")}
    assert lines["TASK"][:2] == ["TASK", "Ids,"]
    assert lines["--yes"][:3] == ["--yes", "-y", "Do"]
    assert lines["--queue"][:2] == ["--queue", "TEXT"]
