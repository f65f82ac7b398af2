"""A translation of the README says the same: its code, its tables and its links are those of the original."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.links import links
from tests.docs.pages import README, TRANSLATIONS, Block, blocks, prose, title

# The original is its own first translation, so that the test is there before any other is.
VERSIONS = [README, *TRANSLATIONS]


def fenced(page: Path) -> list[tuple[str, str, str]]:
    def told(block: Block) -> tuple[str, str, str]:
        return block.language, block.info, block.body

    return [told(block) for block in blocks(page)]


def table_heights(page: Path) -> list[int]:
    """Return how many lines each table has."""
    tables = re.findall(r"(?:^\|.*\n?)+", prose(page), re.MULTILINE)
    return [len(table.splitlines()) for table in tables]


def targets(page: Path) -> Counter[str]:
    """Return where the links go. The languages link to each other, and each names its headings in its own."""
    languages = {version.name for version in VERSIONS} | {page.name}
    return Counter("#" if link.startswith("#") else link for link in links(page) if link not in languages)


def compare(page: Path, original: Path) -> None:
    for number, (theirs, ours) in enumerate(zip(fenced(page), fenced(original), strict=False)):
        assert theirs == ours, f"block {number} of {page.name}"
    assert len(fenced(page)) == len(fenced(original))
    assert table_heights(page) == table_heights(original)
    assert targets(page) == targets(original)


@pytest.mark.parametrize("page", VERSIONS, ids=title)
def test_a_translation_has_the_code_the_tables_and_the_links_of_the_original(page: Path) -> None:
    compare(page, README)


ORIGINAL = """\
[Languages](README.ru.md)

```sh
make demo  # see
```

| a | b |
|---|---|
| 1 | 2 |

[x](docs/tasks.md)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# see", "# смотри"),
        ("```sh", "```console"),
        ("```sh", "```sh file=x"),
        ("| 1 | 2 |\n", ""),
        ("docs/tasks.md", "docs/effects.md"),
        ("[x](docs/tasks.md)", "x"),
        ("```sh\nmake demo  # see\n```\n", ""),
    ],
)
def test_what_differs_is_found(before: str, after: str, tmp_path: Path) -> None:
    original, translation = tmp_path / "original.md", tmp_path / "translation.md"
    original.write_text(ORIGINAL, encoding="utf-8")
    translation.write_text(ORIGINAL.replace("Languages", "Языки"), encoding="utf-8")
    compare(translation, original)
    translation.write_text(ORIGINAL.replace(before, after), encoding="utf-8")
    with pytest.raises(AssertionError):
        compare(translation, original)
