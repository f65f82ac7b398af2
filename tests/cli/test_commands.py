"""The other commands, in real processes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from holdfast import __version__
from tests.cli.support import holdfast
from tests.postgres_server import PostgresServer


def check_demo(answer: subprocess.CompletedProcess[str]) -> None:
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    facts = json.loads(answer.stdout)
    assert (facts["state"], facts["result"], facts["takeovers"]) == ("completed", "billing is live", 1)
    assert facts["done_twice"] == []
    killed, finisher = facts["workers"]["killed"], facts["workers"]["finisher"]
    steps = facts["steps"]
    assert [step["done_by"] for step in steps] == [[killed]] * 7 + [[finisher]] * 3
    assert [step["begun_by"] for step in steps] == [[killed]] * 7 + [[killed, finisher]] + [[finisher]] * 2
    assert [step["replayed_by"] for step in steps] == [[finisher]] * 7 + [[]] * 3
    assert [step["fence"] for step in steps] == [1] * 7 + [3] * 3


def test_the_demo_on_sqlite(tmp_path: Path) -> None:
    check_demo(holdfast("demo", "--json", "--database-url", f"sqlite:///{tmp_path}/demo.db"))


def test_the_demo_on_postgresql(postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    check_demo(holdfast("demo", "--json", "--database-url", url))
    postgres18.drop_database(url)


def test_the_demo_tells_people_what_happened() -> None:
    answer = holdfast("demo")
    assert (answer.returncode, answer.stderr) == (0, "")
    for words in ("SIGKILL for worker", "migrate-schema: replayed", "apply-manifests: ran again", "0 done twice"):
        assert words in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80


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
