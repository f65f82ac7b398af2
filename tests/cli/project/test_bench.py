"""``holdfast bench``: every figure is there, and nothing is left behind. How fast it is, no test can say."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import StoreError
from holdfast.service.benchmark import measure
from tests.cli.project.support import PATIENCE, clean_environment, contents, holdfast, refusal
from tests.postgres_server import PostgresServer

FIGURES = {"raw", "steps", "crowd_steps", "submits", "drained", "p50_ms", "p99_ms"}
QUICK = ("bench", "--seconds", "0.5")


@pytest.fixture
def database(postgres18: PostgresServer) -> Iterator[str]:
    url = postgres18.create_database()
    yield url
    postgres18.drop_database(url)


def schemas(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'holdfast%'").fetchall()
    return [str(name) for (name,) in rows]


def check(answer: subprocess.CompletedProcess[str], backend: str) -> None:
    assert answer.returncode == 0, answer.stderr
    figures = json.loads(answer.stdout)
    assert set(figures) == FIGURES | {"backend", "version"}
    assert figures["backend"] == backend
    assert all(figures[name] > 0 for name in FIGURES), figures
    assert figures["p50_ms"] <= figures["p99_ms"]
    assert "measuring steps of one task" in answer.stderr


def test_sqlite(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_text("not touched", encoding="utf-8")
    before = contents(tmp_path)
    check(holdfast(tmp_path, *QUICK, "--json"), "SQLite")
    assert contents(tmp_path) == before


def test_for_people(tmp_path: Path) -> None:
    answer = holdfast(tmp_path, *QUICK, check=True)
    lines = answer.stdout.splitlines()
    assert len(lines) == 8
    assert lines[1].startswith("raw limit: one-row commits")
    assert lines[1].endswith("1.00")
    assert "`make bench` in a clone compares" in answer.stderr


def test_postgresql(database: str, tmp_path: Path) -> None:
    check(holdfast(tmp_path, *QUICK, "--json", HOLDFAST_DATABASE_URL=database), "PostgreSQL")
    assert schemas(database) == []
    assert contents(tmp_path) == {}


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
@pytest.mark.parametrize(
    ("kind", "number", "code"),
    [
        ("sqlite", signal.SIGINT, 130),
        ("postgresql", signal.SIGTERM, 143),
        pytest.param("sqlite", signal.SIGTERM, 143, marks=pytest.mark.full),
        pytest.param("postgresql", signal.SIGINT, 130, marks=pytest.mark.full),
    ],
)
def test_stopped_in_the_middle_it_leaves_nothing(
    kind: str, number: signal.Signals, code: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue("database") if kind == "postgresql" else "sqlite:///holdfast.db"
    said = tmp_path / "said.txt"
    with (
        said.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            [sys.executable, "-m", "holdfast", "bench", "--seconds", "30", "--database-url", url],
            stderr=file,
            stdout=subprocess.DEVNULL,
            cwd=tmp_path,
            env=clean_environment(),
        ) as process,
    ):
        try:
            give_up = time.monotonic() + PATIENCE
            while "steps of one task" not in said.read_text(encoding="utf-8"):
                assert process.poll() is None, said.read_text(encoding="utf-8")
                assert time.monotonic() < give_up
                time.sleep(0.02)
            there = schemas(url) if kind == "postgresql" else list(tmp_path.glob(".holdfast-bench-*"))
            assert len(there) == 1  # there is something to remove
            process.send_signal(number)
            assert process.wait(PATIENCE) == code
        finally:
            process.kill()
    words = said.read_text(encoding="utf-8")
    assert f"{number.name}: stopped" in words
    assert "Traceback" not in words
    assert list(contents(tmp_path)) == ["said.txt"]
    assert kind == "sqlite" or schemas(url) == []


def test_other_stores_have_nothing_to_measure(tmp_path: Path) -> None:
    for url in ("memory://", "json:///data"):
        assert "only SQLite and PostgreSQL can be measured" in refusal(
            holdfast(tmp_path, "bench", "--database-url", url), 2
        )
    assert contents(tmp_path) == {}


async def test_a_schema_that_cannot_be_dropped_is_named(database: str) -> None:
    reports: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.service.benchmark._Bench.steps", _pull_the_plug)
        with pytest.raises(
            StoreError, match=r"could not be dropped .* psql -c 'DROP SCHEMA holdfast_bench_\w+ CASCADE'"
        ):
            await measure(database, seconds=1, report=reports.append)
    assert reports[:1] == ["one-row commits"]
    assert len(schemas(database)) == 1


async def _pull_the_plug(bench: Any, tasks: int) -> float:  # noqa: ANN401
    del tasks
    await bench._hold.store.close()
    return 1.0
