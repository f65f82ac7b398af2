"""The pages people read, and the fenced blocks in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TRANSLATIONS = [*sorted(ROOT.glob("README.*.md")), *sorted((ROOT / "docs").glob("*.*.md"))]
"""``docs/course.ru.md`` is a translation of ``docs/course.md``: its blocks are those of the original, and run there."""
PAGES = [
    page
    for page in (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
    if page not in TRANSLATIONS
]
REFERENCE = sorted((ROOT / "docs/reference").glob("*.md"))
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))

_OPENING = re.compile(r"^ *(```+|~~~+)")


class PageError(AssertionError):
    """A page that cannot be read as its author meant it; the message names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: its language, the file it stands for (if any), and what is in it."""

    page: Path
    number: int
    line: int
    """The line of the opening fence, counted from one."""
    language: str
    info: str
    """What follows the language on the opening line."""
    body: str

    @property
    def file(self) -> str | None:
        """The name in ``file=NAME``."""
        if not self.info:
            return None
        key, _, name = self.info.partition("=")
        if key != "file" or not name or " " in name:
            raise PageError(f"{self.where}: after the language only file=NAME may stand, not {self.info!r}")
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise PageError(f"{self.where}: {name} is outside the page's working folder")
        return name

    @property
    def where(self) -> str:
        return place(self.page, self.line)


def place(page: Path, line: int) -> str:
    """Return ``docs/tasks.md:12``, which editors and people can follow."""
    shown = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name
    return f"{shown}:{line}"


def original(page: Path) -> Path:
    """Return the page that this one translates; itself if it is not a translation."""
    return page.with_name(f"{page.name.partition('.')[0]}.md")


def title(page: Path) -> str:
    """Return what a test of this page is called."""
    return str(page.relative_to(ROOT)).removesuffix(".md")


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the page's blocks in order: all of them, or those in these languages."""
    return [block for block in _scan(page) if not languages or block.language in languages]


def prose(page: Path) -> str:
    """Return the page without what stands in its blocks, line for line."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for block in _scan(page):
        height = block.body.count("\n") + 2
        lines[block.line - 1 : block.line - 1 + height] = [""] * height
    return "\n".join(lines)


def _scan(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    number = position = 0
    while position < len(lines):
        opening = lines[position]
        if not (fence := _OPENING.match(opening)):
            position += 1
            continue
        if fence[0] != "```":
            raise PageError(f"{place(page, position + 1)}: a block begins with ``` at the start of its line")
        try:
            end = lines.index("```", position + 1)
        except ValueError:
            raise PageError(f"{place(page, position + 1)}: this block has no end") from None
        language, _, info = opening.removeprefix("```").strip().partition(" ")
        body = "".join(line + "\n" for line in lines[position + 1 : end])
        yield Block(page=page, number=number, line=position + 1, language=language, info=info.strip(), body=body)
        number, position = number + 1, end + 1
