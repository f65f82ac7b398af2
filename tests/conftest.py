"""Fixtures and settings that every test may use.

Two environment variables steer a run:
- HOLDFAST_SOAK=1 makes every randomised test long (`make soak` sets it),
- HOLDFAST_SEED=n starts the seeds of such a run at n, to repeat one that failed.

HOLDFAST_FULL=1 runs what is left to `make test-all` too (tests/everyday.py).
HOLDFAST_RECORD=file has the outcome of every test written there (tests/second_run.py).
HOLDFAST_REQUIRE_POSTGRES="16 18 pgbouncer" turns a missing server of these versions, or a missing pooler,
from a skip into a failure.
"""

import gc
import os
import secrets
import signal
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, Protocol

import hypothesis
import pytest

from holdfast.redaction.text import forget_all
from tests import everyday
from tests.pgbouncer import PgBouncer, start_pgbouncer
from tests.postgres_server import MEMORY, PostgresServer, ServerUnavailable, has_room_in_memory, start_postgres
from tests.processes import pytest_addoption, pytest_runtestloop
from tests.second_run import Record
from tests.stores import database_url, emptied_database, url

__all__ = ["database_url", "emptied_database", "pytest_addoption", "pytest_runtestloop", "url"]

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
FIRST_SEED = int(os.environ.get("HOLDFAST_SEED") or (secrets.randbelow(2**31) if SOAK else 1))
SEED_COUNT = 500 if SOAK else 5

# Everyday runs are repeatable: the same examples on every machine, and no failure by chance.
# New examples are looked for in soaks, which remember those that failed. No deadlines: machines may be slow.
hypothesis.settings.register_profile(
    "everyday",
    max_examples=50,
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "soak", max_examples=5000, deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("soak" if SOAK else "everyday")


class PgBouncerFactory(Protocol):
    """Starts a pooler in front of a server; it is stopped when the test session ends, or by its own `stop()`."""

    def __call__(self, server: PostgresServer, *, pool_size: int = 20) -> PgBouncer: ...


# Each Commit on SQLite is flushed: a millisecond of waiting on a disk, and nothing in memory. What is killed here is a
# process or a server, never the machine.
if has_room_in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_configure() -> None:
    """Handle Ctrl-C. A shell that starts the tests in the background has it ignored, by every process of a test too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str | None:
    return f"soak: seeds from {FIRST_SEED}, repeat with HOLDFAST_SEED={FIRST_SEED}" if SOAK else None


@pytest.fixture(autouse=True)
def no_known_credentials() -> Iterator[None]:
    """Forget the credentials that a test made known: they would be replaced in the texts of every later one."""
    yield
    forget_all()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    if path := os.environ.get("HOLDFAST_RECORD"):
        Record.of(terminalreporter, exitstatus).write(Path(path))
    if words := everyday.describe(config):
        terminalreporter.write_line(words)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do not look for garbage among the tests: not while they are collected, and not while they are run.

    They stay to the end, over a million objects. The looking took a fifth of the collection. What is frozen, forked
    processes share.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark what a soak makes longer, so that `make soak` selects exactly that; leave out what is not for every day."""
    for item in items:
        if isinstance(item, pytest.Function) and (
            "seeds" in item.fixturenames or hypothesis.is_hypothesis_test(item.obj)
        ):
            item.add_marker(pytest.mark.soak)  # before `-m soak` selects
    yield
    everyday.leave_out(config, items)  # after the conftest.py of folders, which mark tests


@pytest.fixture
def seeds() -> Sequence[int]:
    """Seeds for a randomised test without Hypothesis: a few that never change, or many fresh ones in a soak."""
    return range(FIRST_SEED, FIRST_SEED + SEED_COUNT)


@pytest.fixture(scope="session")
def postgres15() -> Iterator[PostgresServer]:
    """Debian's PostgreSQL 15, on a port, with a password, sorting text as people do."""
    yield from _postgres(15)


@pytest.fixture(scope="session")
def postgres16() -> Iterator[PostgresServer]:
    """PostgreSQL 16, on a socket."""
    yield from _postgres(16)


@pytest.fixture(scope="session")
def postgres18() -> Iterator[PostgresServer]:
    """PostgreSQL 18, on a socket."""
    yield from _postgres(18)


@pytest.fixture(scope="session")
def pgbouncer() -> Iterator[PgBouncerFactory]:
    """Starts PgBouncer in transaction mode: `pgbouncer(postgres16).pooled(url)`."""
    with ExitStack() as poolers:

        def start(server: PostgresServer, *, pool_size: int = 20) -> PgBouncer:
            try:
                return poolers.enter_context(start_pgbouncer(server, pool_size=pool_size))
            except ServerUnavailable as missing:
                _skip_or_fail("pgbouncer", missing)

        yield start


def _postgres(version: int) -> Iterator[PostgresServer]:
    try:
        server = start_postgres(version)
    except ServerUnavailable as missing:
        _skip_or_fail(str(version), missing)
    with server:
        yield server


def _skip_or_fail(program: str, missing: ServerUnavailable) -> NoReturn:
    if program in os.environ.get("HOLDFAST_REQUIRE_POSTGRES", "").split():
        raise missing
    pytest.skip(str(missing))
