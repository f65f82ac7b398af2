"""PgBouncer in transaction mode in front of a test server: the pooler that many PostgreSQL users stand behind.

In this mode a client keeps its server connection for one transaction only. Whatever lives in a session (LISTEN,
session advisory locks, SET, temporary tables, prepared statements by name) is lost or, worse, belongs to another
client. What passes behind it needs nothing of that. Newer versions can keep prepared statements for their clients; here
that is switched off.
"""

import re
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import conninfo

from tests.postgres_server import (
    PATIENCE,
    SUPERUSER,
    PostgresServer,
    Reaper,
    ServerUnavailable,
    private_folder,
    run_as,
    server_account,
    server_environment,
)

PROGRAM = Path(shutil.which("pgbouncer") or "/usr/sbin/pgbouncer")

_KNOWS_STATEMENTS = (1, 21)
"""The first version that can keep prepared statements, and has a setting for it."""

_CONFIGURATION = """
[databases]
* = host={host} port={port} user={user} {password}

[pgbouncer]
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 500
listen_addr =
listen_port = 6432
unix_socket_dir = {folder}
pidfile = {folder}/pgbouncer.pid
logfile = {folder}/log
; The socket's folder is private to the tests, so every client that can connect may.
auth_type = any
; Answer at once when the server is down: the tests restart it.
server_login_retry = 0
{statements}
"""


class PgBouncer:
    """One pooler in front of one server."""

    def __init__(self, server: PostgresServer, *, pool_size: int) -> None:
        if not PROGRAM.exists():
            raise ServerUnavailable(f"PgBouncer is not installed in {PROGRAM}; on Debian: apt-get install pgbouncer")
        account = server_account()
        self._folder = private_folder("holdfast-pgbouncer-")
        self._reaper = Reaper(self._folder, self._folder / "pgbouncer.pid")
        configuration = self._folder / "pgbouncer.ini"
        configuration.write_text(
            _CONFIGURATION.format(
                host=server.host,
                port=server.port,
                user=SUPERUSER,
                password=f"password={server.password}" if server.password else "",
                pool_size=pool_size,
                folder=self._folder,
                statements="max_prepared_statements = 0" if _version() >= _KNOWS_STATEMENTS else "",
            )
        )
        if account is not None:
            shutil.chown(configuration, account.uid, account.gid)
        self._process = subprocess.Popen(
            [PROGRAM, "-q", configuration],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env=server_environment(),
            start_new_session=True,
            **run_as(account),
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def url(self, dbname: str = "postgres") -> str:
        """The URL of a database of the server, through the pooler."""
        return f"postgresql://{SUPERUSER}@/{quote(dbname)}?host={quote(str(self._folder))}&port=6432"

    def pooled(self, url: str) -> str:
        """Turn a URL from `PostgresServer.create_database` into one that goes through the pooler."""
        return self.url(str(conninfo.conninfo_to_dict(url)["dbname"]))

    def stop(self) -> None:
        """Stop and delete everything; a second call does nothing."""
        self._process.kill()  # it keeps nothing that a clean end would save
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._reaper.dismiss()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_ready(self) -> None:
        give_up_at = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > give_up_at:
                    log = self._folder / "log"
                    words = log.read_text(errors="replace") if log.exists() else "(no log)"
                    raise RuntimeError(f"PgBouncer did not start:\n{words}") from error
                time.sleep(0.01)
            else:
                return


def _version() -> tuple[int, ...]:
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    assert found is not None, said
    return tuple(map(int, found.groups()))


def start_pgbouncer(server: PostgresServer, *, pool_size: int = 20) -> PgBouncer:
    """Start a pooler in front of the server, or raise ServerUnavailable.

    `pool_size` is the number of server connections per database. 1 makes every client share one session, which is
    the quickest way to see a statement that relies on its own.
    """
    return PgBouncer(server, pool_size=pool_size)
