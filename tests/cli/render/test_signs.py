"""Terminals without UTF-8: signs become letters, and columns stay where they are."""

from __future__ import annotations

import re

import pytest

from holdfast.cli.terminal import SIGNS
from tests.cli.render.museum import Museum
from tests.cli.render.support import in_terminal


@pytest.mark.parametrize(
    ("encoding", "written"),
    [("ascii", b"+ x > < . ~ > #=. ? ?"), ("latin-1", b"+ x > < \xb7 ~ > #=. \xe9 ?"), ("utf-8", None)],
)
def test_signs_in_other_encodings(encoding: str, written: bytes | None) -> None:
    text = "✓ ✗ ▶ ↶ · … → █▒░ é 語"
    assert text.encode(encoding, SIGNS) == (written or text.encode())


def test_pages_in_a_terminal_of_letters_only(museum: Museum) -> None:
    steps = in_terminal("steps", museum.ids["failed"], url=museum.url, PYTHONIOENCODING="ascii").text
    assert [line.replace("|", " ").split()[:3] for line in steps.splitlines()[2:4]] == [
        ["1", "+", "prepare"],
        ["2", "x", "strike"],
    ]
    workers = in_terminal("workers", url=museum.url, PYTHONIOENCODING="ascii", columns=120).text
    assert "........ over for" in workers
    assert "######## 13h" in workers
    plan = in_terminal("show", museum.ids["agent"], url=museum.url, PYTHONIOENCODING="ascii").text
    assert "  + look\n  > order\n  . check\n" in re.sub(" +\n", "\n", plan)
