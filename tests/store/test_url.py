"""A URL opens any store, and a bad one says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import InvalidURL, StoreClosed, make_store, open_store
from holdfast.store.jsonfile import JsonStore
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore


@pytest.mark.parametrize(
    ("url", "kind", "path"),
    [
        ("memory://", MemoryStore, ":memory:"),
        ("json:///agents", JsonStore, "agents"),
        ("json:////var/agents", JsonStore, "/var/agents"),
        ("sqlite:///agents.db", SqliteStore, "agents.db"),
        ("sqlite:////var/lib/my%20agents.db", SqliteStore, "/var/lib/my agents.db"),
    ],
)
def test_a_url_names_a_store(url: str, kind: type[SqliteStore | MemoryStore | JsonStore], path: str) -> None:
    store = make_store(url)
    assert type(store) is kind
    assert isinstance(store, kind)
    assert store.path == path


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_both_spellings_of_postgresql(scheme: str) -> None:
    assert isinstance(make_store(f"{scheme}://localhost/agents"), PostgresStore)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "names no store"),
        ("agents.db", "names no store"),
        ("mysql://localhost/x", "names no store"),
        ("sqlite://agents.db", "three belong: sqlite:///agents.db"),
        ("sqlite://", "names no path"),
        ("json:///", "names no path"),
        ("sqlite:///a.db?mode=ro", "takes no options"),
    ],
)
def test_a_bad_url_says_what_is_wrong(url: str, words: str) -> None:
    with pytest.raises(InvalidURL, match=words):
        make_store(url)


async def test_open_store_closes_with_its_block(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/agents.db") as store:
        await store.summary()
    with pytest.raises(StoreClosed, match="not open"):
        await store.summary()
