"""Reads a tool's docstring for a model: what the tool does, and what each parameter means."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Examples?|Notes?)\s*:?\s*$")
_GOOGLE = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[\w\[\], .|]+\s+)?(\w+):\s*(.*)$")


def read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description, and the meaning of each parameter: Google's ``Args:`` or ``:param name:``."""
    lines = (inspect.getdoc(function) or "").splitlines()
    description: list[str] = []
    parameters: dict[str, str] = {}
    section, current = "", ""
    for line in lines:
        heading = _SECTION.match(line)
        sphinx = _SPHINX.match(line)
        if heading:
            section, current = heading.group(1), ""
        elif sphinx:
            section, current = "Args", sphinx.group(1)
            parameters[current] = sphinx.group(2).strip()
        elif not section:
            description.append(line)
        elif section in {"Args", "Arguments", "Parameters"}:
            current = _read_parameter(line, current, parameters)
    return "\n".join(description).strip(), parameters


def _read_parameter(line: str, current: str, parameters: dict[str, str]) -> str:
    """Read one line of a list of parameters; return the parameter that the next line may continue."""
    named = _GOOGLE.match(line)
    if named and (not current or len(named.group(1)) <= _INDENT):
        parameters[named.group(2)] = named.group(3).strip()
        return named.group(2)
    if current and line.strip():
        parameters[current] = f"{parameters[current]} {line.strip()}".strip()
    return current


_INDENT = 4
"""A line with more indentation than this continues the parameter above it."""
