"""A worker is killed at every line of every tool, and reconcile tells the truth about each."""

from __future__ import annotations

import json
import os
import sqlite3  # noqa: TID251 - a user's own database
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.effects import dying
from tests.effects.shop import Shop
from tests.postgres_server import PostgresServer

CLONE = Path(__file__).parents[2]
TABLE = "CREATE TABLE payments (effect_id TEXT UNIQUE, amount INTEGER)"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the victims are forked")


def kill_at_every_line(scenario: str, **needs: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", dying.__name__, scenario, json.dumps(needs)]
    done = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *killed, last = map(json.loads, done.stdout.splitlines())
    assert last["line"] is None
    assert (last["before"], last["said"]) == (1, "Happened"), "a call that was not killed"
    assert all(report["line"] for report in killed)
    return killed


def check(reports: list[dict[str, Any]]) -> Counter[str]:
    """Whatever reconcile said was so, and where it said absent a second call did it, once."""
    for report in reports:
        match report["said"]:
            case "Happened":
                assert (report["before"], report["after"]) == (1, 1), report
            case "Absent, then Happened":
                assert (report["before"], report["after"]) == (0, 1), report
            case said:
                assert said == "Unknown", report
                assert report["before"] == report["after"] <= 1, report
    return Counter(report["said"] for report in reports)


def test_creating_a_file(tmp_path: Path) -> None:
    said = check(kill_at_every_line("creating_a_file", folder=str(tmp_path)))
    assert said["Happened"] > 3
    assert said["Absent, then Happened"] > 10
    assert not said["Unknown"]
    assert not list(tmp_path.glob(".*")), "and nothing else is left"


def test_sending_a_request_that_can_be_looked_up(shop: Shop) -> None:
    said = check(kill_at_every_line("sending_a_request", url=shop.url, way="lookup"))
    assert said["Happened"] > 3
    assert said["Absent, then Happened"] > 10
    assert not said["Unknown"]


def test_sending_a_request_that_can_be_repeated(shop: Shop) -> None:
    """To ask is to send it again, so what had not happened has happened afterwards: once, and never twice."""
    reports = kill_at_every_line("sending_a_request", url=shop.url, way="repeat")
    assert {report["said"] for report in reports} == {"Happened"}
    assert {report["before"] for report in reports} == {0, 1}
    assert {report["after"] for report in reports} == {1}


def test_inserting_a_row_into_sqlite(tmp_path: Path) -> None:
    database = str(tmp_path / "shop.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(TABLE)
    said = check(kill_at_every_line("inserting_a_row", driver="sqlite3", where=database))
    assert said["Happened"] >= 2
    assert said["Absent, then Happened"] > 10
    assert not said["Unknown"]


def test_inserting_a_row_into_postgresql(postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    with psycopg.connect(url) as connection:
        connection.execute(TABLE)
    said = check(kill_at_every_line("inserting_a_row", driver="psycopg", where=url))
    assert said["Happened"] >= 2
    assert said["Absent, then Happened"] > 10
    assert not said["Unknown"]


def test_running_a_command(tmp_path: Path) -> None:
    (tmp_path / "markers").mkdir()
    reports = kill_at_every_line("running_a_command", folder=str(tmp_path))
    said = check(reports)
    assert said["Happened"] > 3
    assert said["Absent, then Happened"] > 10
    # Between the mark of the start and that of the end the outcome is unknown, and in both cases it is reported so.
    assert {report["before"] for report in reports if report["said"] == "Unknown"} == {0, 1}
