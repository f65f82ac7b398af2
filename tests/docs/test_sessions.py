"""What the README and the docs tell people to type is typed, and the output they show is the output they get."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, title
from tests.docs.sessions import NOT_RUN, is_session, run_page, unused


@pytest.mark.parametrize("page", [page for page in PAGES if is_session(page)], ids=title)
def test_a_page_shows_what_happens(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, forked=True)


def test_every_command_that_is_left_out_stands_on_a_page() -> None:
    assert unused(NOT_RUN, PAGES) == []
