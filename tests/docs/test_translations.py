"""A translation says the same as its page: its code, its tables and its links are those of the original."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.links import links
from tests.docs.pages import ROOT, TRANSLATIONS, Block, blocks, original, prose, title

MAIN_PATH = "README course quickstart concepts agents tasks effects approvals budgets agent-state memory mcp"
"""What a newcomer reads first, in both languages."""


def fenced(page: Path) -> list[tuple[str, str, str]]:
    def content_of(block: Block) -> tuple[str, str, str]:
        return block.language, block.info, block.body

    return [content_of(block) for block in blocks(page)]


def table_heights(page: Path) -> list[int]:
    """Return how many lines each table has."""
    tables = re.findall(r"(?:^\|.*\n?)+", prose(page), re.MULTILINE)
    return [len(table.splitlines()) for table in tables]


def targets(page: Path) -> Counter[str]:
    """Return where the links go. The languages link to each other, and each names its headings in its own."""
    languages = {page.name, original(page).name, *(one.name for one in TRANSLATIONS if original(one) == original(page))}
    return Counter("#" if link.startswith("#") else link for link in links(page) if link not in languages)


def compare(page: Path, with_page: Path) -> None:
    for number, (theirs, ours) in enumerate(zip(fenced(page), fenced(with_page), strict=False)):
        assert theirs == ours, f"block {number} of {page.name}"
    assert len(fenced(page)) == len(fenced(with_page))
    assert table_heights(page) == table_heights(with_page)
    assert targets(page) == targets(with_page)


def test_the_translated_pages_are_those_of_the_main_path() -> None:
    assert {original(page).name for page in TRANSLATIONS} == {f"{name}.md" for name in MAIN_PATH.split()}


def test_the_site_lists_every_translation_of_its_pages() -> None:
    navigation = set(re.findall(r": (\S+\.ru\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert {page.name for page in TRANSLATIONS if page.parent.name == "docs"} == navigation


@pytest.mark.parametrize("page", TRANSLATIONS, ids=title)
def test_a_translation_has_the_code_the_tables_and_the_links_of_the_original(page: Path) -> None:
    compare(page, original(page))


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
    page, translation = tmp_path / "original.md", tmp_path / "translation.md"
    page.write_text(ORIGINAL, encoding="utf-8")
    translation.write_text(ORIGINAL.replace("Languages", "Языки"), encoding="utf-8")
    compare(translation, page)
    translation.write_text(ORIGINAL.replace(before, after), encoding="utf-8")
    with pytest.raises(AssertionError):
        compare(translation, page)
