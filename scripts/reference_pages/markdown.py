"""Pieces of Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

GENERATED = "<!-- Written by python scripts/reference.py; change the docstrings and help texts instead. -->"
"""The first line of a page that must not be edited by hand."""


def as_markdown(docstring: str | None) -> str:
    """Return a docstring as Markdown: code in single backticks, arguments with a star left alone."""
    text = inspect.cleandoc(docstring or "").replace("\b\n", "").replace("``", "`")
    return re.sub(r"<(?=[a-z/])(?![^`\n]*`)", "&lt;", text)


def cell(text: str) -> str:
    """Return the text in a form for a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def fenced(lines: Sequence[str]) -> list[str]:
    """Return a block of plain text."""
    return ["```text", *lines, "```"]


def anchor(heading: str) -> str:
    """Return the name that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
