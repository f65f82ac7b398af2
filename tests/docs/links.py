"""The links of a page, and the headings they can lead to."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import place, prose

_LINK = re.compile(r"\]\(([^)\s]+)")
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$", re.MULTILINE)


def links(page: Path) -> list[str]:
    """Return the targets of all links, as they are written."""
    return [link for _, link in _numbered(page)]


def _numbered(page: Path) -> list[tuple[int, str]]:
    lines = prose(page).splitlines()
    return [(number, link) for number, line in enumerate(lines, start=1) for link in _LINK.findall(line)]


def anchors(page: Path) -> set[str]:
    """Return what can stand after ``#`` in a link to the page: GitHub's names of its headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        repeated = 0
        while (numbered := f"{name}-{repeated}" if repeated else name) in found:
            repeated += 1
        found.add(numbered)
    return found


def broken(page: Path) -> list[str]:
    """Return the links that lead nowhere, with their places. Those that leave the project are not followed."""
    return [
        f"{place(page, number)}: {link}"
        for number, link in _numbered(page)
        if not re.match(r"[a-z]+:", link) and not _leads_somewhere(page, link)
    ]


def _leads_somewhere(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))
