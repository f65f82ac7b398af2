"""Pieces of Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

GENERATED = "<!-- Written by python scripts/reference.py; change the docstrings and help texts instead. -->"
"""Stands at the top of what is not to be edited."""


def as_markdown(docstring: str | None) -> str:
    """Return a docstring as Markdown: code in single backticks, arguments with a star left alone."""
    text = inspect.cleandoc(docstring or "").replace("\b\n", "").replace("``", "`")
    return re.sub(r"<(?=[a-z/])(?![^`\n]*`)", "&lt;", text)


def cell(text: str) -> str:
    """Return the text as it may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def fenced(lines: Sequence[str]) -> list[str]:
    """Return a block that is shown as it is."""
    return ["```text", *lines, "```"]


def anchor(heading: str) -> str:
    """Return the name that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
