"""Links lead somewhere: to a file that is there, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.links import anchors, broken
from tests.docs.pages import DECISIONS, PAGES, REFERENCE, ROOT, TRANSLATIONS, prose, title

OTHERS = [ROOT / "CHANGELOG.md", ROOT / "examples/README.md"]


@pytest.mark.parametrize("page", [*PAGES, *TRANSLATIONS, *DECISIONS, *REFERENCE, *OTHERS], ids=title)
def test_no_link_is_broken(page: Path) -> None:
    wrong = broken(page)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", [*PAGES, *TRANSLATIONS, *REFERENCE], ids=title)
def test_a_page_begins_with_its_readers_and_ends_with_what_to_read_next(page: Path) -> None:
    text = prose(page)
    beginning, _, _ = text.partition("\n## ")
    is_front_page = page.name in ("README.md", "README.ru.md", "CONTRIBUTING.md") and page.parent == ROOT
    assert is_front_page or "This page" in beginning or "Эта страница" in beginning
    *_, last = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert last in ("Read next", "Что читать дальше")


def test_headings_have_the_names_that_github_gives_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What `hold.retry` does, and when\n## Deciding\n### Deciding\n## Deciding-1\n## A [link](x.md) & more\n"
        "## Почему\n## snake_case ##\n```text\n# no heading\n```\n",
        encoding="utf-8",
    )
    assert anchors(page) == {
        "what-holdretry-does-and-when",
        "deciding",
        "deciding-1",
        "deciding-1-1",
        "a-link--more",
        "почему",
        "snake_case",
    }


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("## There\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](other.md) [b](other.md#there) [c](#here) [d](https://example.org/x#y) "
        "[e](nowhere.md) [f](other.md#nowhere) [g](#nowhere)\n```text\n[h](nowhere.md)\n```\n",
        encoding="utf-8",
    )
    assert broken(page) == ["page.md:2: nowhere.md", "page.md:2: other.md#nowhere", "page.md:2: #nowhere"]
