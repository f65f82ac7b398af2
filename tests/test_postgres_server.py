"""The test servers themselves: they start, crash and come back, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.conftest import PgBouncerFactory
from tests.postgres_server import PATIENCE, PostgresServer, ServerUnavailable, start_postgres
from tests.stores import POSTGRES_VERSIONS


@pytest.fixture(params=POSTGRES_VERSIONS)
def shared(request: pytest.FixtureRequest) -> PostgresServer:
    server: PostgresServer = request.getfixturevalue(f"postgres{request.param}")
    return server


@pytest.fixture(params=POSTGRES_VERSIONS)
def own(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    try:
        server = start_postgres(request.param)
    except ServerUnavailable as missing:
        pytest.skip(str(missing))
    with server:
        yield server


def ask(url: str, question: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(question.encode()).fetchone()
        assert row is not None
        return row[0]


def tell(url: str, statement: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode())


def processes_of(server: PostgresServer) -> list[psutil.Process]:
    postmaster = psutil.Process(server.pid)
    return [postmaster, *postmaster.children(recursive=True)]


def test_a_server_runs_the_version_asked_for(shared: PostgresServer) -> None:
    assert int(str(ask(shared.url(), "SHOW server_version_num"))) // 10_000 == shared.version


def test_databases_are_fresh_and_separate(shared: PostgresServer) -> None:
    first, second = shared.create_database(), shared.create_database()

    tell(first, "CREATE TABLE tasks (id int)")

    assert ask(first, "SELECT to_regclass('tasks')::text") == "tasks"
    assert ask(second, "SELECT to_regclass('tasks')::text") is None
    shared.drop_database(first)
    shared.drop_database(second)


def test_dropping_a_database_throws_out_its_clients(shared: PostgresServer) -> None:
    url = shared.create_database()
    with psycopg.connect(url) as client:
        shared.drop_database(url)

        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_acknowledged_commits_survive_a_restart_under_the_same_url(own: PostgresServer, mode: str) -> None:
    url = own.create_database()
    tell(url, "CREATE TABLE tasks AS SELECT 42 AS id")

    own.restart("immediate" if mode == "immediate" else "fast")

    assert ask(url, "SELECT id FROM tasks") == 42


def test_a_stopped_server_has_no_processes_and_starts_again(own: PostgresServer) -> None:
    processes = processes_of(own)

    own.stop()

    assert len(processes) > 1
    assert [process for process in processes if process.is_running()] == []
    assert not own.running
    own.stop()
    own.start()
    assert ask(own.url(), "SELECT 1") == 1


def test_leaving_the_context_leaves_neither_processes_nor_files() -> None:
    with start_postgres(18) as server:
        processes = processes_of(server)
        folder = server.folder

    assert [process for process in processes if process.is_running()] == []
    assert not folder.exists()


def test_a_durable_server_flushes_and_a_quick_one_does_not(postgres18: PostgresServer) -> None:
    assert ask(postgres18.url(), "SHOW fsync") == "off"
    with start_postgres(18, durable=True) as durable:
        assert ask(durable.url(), "SHOW fsync") == "on"
        assert ask(durable.url(), "SHOW full_page_writes") == "on"
        assert ask(durable.url(), "SHOW synchronous_commit") == "on"


def test_a_server_does_not_outlive_a_test_process_that_is_killed(postgres18: PostgresServer) -> None:
    program = (
        "from tests.postgres_server import start_postgres; server = start_postgres(18);"
        "print(server.pid, server.folder, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        postmaster = psutil.Process(int(pid))
        os.kill(owner.pid, signal.SIGKILL)

    give_up_at = time.monotonic() + PATIENCE
    while (Path(folder).exists() or _lives(postmaster)) and time.monotonic() < give_up_at:
        time.sleep(0.02)

    assert not Path(folder).exists()
    assert not _lives(postmaster)
    assert postgres18.running


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two questions
        return False


def test_a_version_that_is_nowhere_is_named() -> None:
    with pytest.raises(ServerUnavailable, match="PostgreSQL 9 is not installed"):
        start_postgres(9)


def test_pgbouncer_lends_a_session_for_one_transaction_only(
    shared: PostgresServer, pgbouncer: PgBouncerFactory
) -> None:
    url = shared.create_database()
    pooler = pgbouncer(shared, pool_size=1)
    with psycopg.connect(pooler.pooled(url)) as first, psycopg.connect(pooler.pooled(url)) as second:
        sessions = set()
        for client in (first, second, first):
            row = client.execute("SELECT pg_backend_pid(), current_database()").fetchone()
            assert row is not None
            sessions.add(row)
            client.commit()

    # One server session served both clients while both were connected: in session mode, the second would still wait.
    assert len(sessions) == 1
    pooler.stop()
    assert not psutil.pid_exists(pooler.pid)
    shared.drop_database(url)
