"""The installed command, in real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import __version__
from tests.postgres_server import PostgresServer


def holdfast(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment or None)


def check_demo(answer: subprocess.CompletedProcess[str]) -> None:
    assert answer.returncode == 0, answer.stderr
    facts = json.loads(answer.stdout)
    assert (facts["state"], facts["kills"], facts["takeovers"]) == ("completed", 1, 1)
    assert set(facts["effects"].values()) == {1}
    assert facts["done_twice"] == []
    # Seven steps before the kill, three after it, under the fence of another worker.
    assert [list(facts["steps"].values()).count(fence) for fence in (1, 3)] == [7, 3]


def test_the_demo_on_sqlite(tmp_path: Path) -> None:
    check_demo(holdfast("demo", "--json", "--database-url", f"sqlite:///{tmp_path}/demo.db"))


def test_the_demo_on_postgresql(postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    check_demo(holdfast("demo", "--json", "--database-url", url))
    postgres18.drop_database(url)


def test_the_demo_tells_people_what_happened() -> None:
    answer = holdfast("demo")
    assert answer.returncode == 0
    assert answer.stdout == ""
    for words in ("SIGKILL", "its worker died", "steps done twice: 0"):
        assert words in answer.stderr


def test_migrate_sets_up_and_says_so(tmp_path: Path, postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    for store in (f"sqlite:///{tmp_path}/a.db", url):
        for _ in range(2):
            answer = holdfast("migrate", "--database-url", store)
            assert (answer.returncode, answer.stdout) == (0, "")
            assert "schema of this version" in answer.stderr
    postgres18.drop_database(url)


def test_the_version() -> None:
    assert holdfast("--version").stdout == f"{__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("demo", "--database-url", "mysql://x"), "names no store"),
        (("demo", "--database-url", "memory://"), "two worker processes"),
        (("migrate", "--database-url", "postgresql://nobody@127.0.0.1:1/x"), "cannot connect"),
    ],
)
def test_an_error_is_one_line_with_a_remedy(arguments: tuple[str, ...], words: str) -> None:
    answer = holdfast(*arguments)
    assert answer.returncode == 1
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.startswith("holdfast: ")
