"""The other commands, in real processes."""

from __future__ import annotations

from pathlib import Path

from holdfast import __version__
from tests.cli.support import holdfast
from tests.postgres_server import PostgresServer


def test_migrate_sets_up_and_reports_it(tmp_path: Path, postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    for store in (f"sqlite:///{tmp_path}/a.db", url):
        for _ in range(2):
            answer = holdfast("migrate", "--database-url", store)
            assert (answer.returncode, answer.stdout) == (0, "")
            assert "which is the one of this version" in answer.stderr
    postgres18.drop_database(url)


def test_the_version() -> None:
    assert holdfast("--version").stdout == f"{__version__}\n"
