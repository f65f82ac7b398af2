"""The site: its search index has the words of both languages, and it builds without a broken link."""

from __future__ import annotations

import json

import pytest

from scripts import site


def test_a_word_that_the_search_would_not_find_is_named() -> None:
    entries = [
        {"title": "The lease", "text": "<p>of a worker</p>"},
        {"title": "Errors", "text": "<code>StoreReplaced</code>"},
    ]
    assert site.missing_words(json.dumps({"items": entries})) == ["аренда"]
    entries.append({"title": "Аренда", "text": ""})
    assert site.missing_words(json.dumps({"items": entries})) == []


@pytest.mark.full(instead="tests/docs/test_links.py")
def test_the_site_builds() -> None:
    assert site.main() == 0
