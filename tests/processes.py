"""The tests in several processes: `pytest --numprocesses=6`.

One process imports and collects all tests. The others are forked from it, so each has them at once. The first one hands
the tests out, one by one, and reports to pytest whatever comes back, as if it had run them itself. `-x`, `--lf`,
`--durations` and the summary are pytest's own. Warnings do not come back: in these tests they are errors.

What a test starts or opens belongs to the process that runs it: a fixture of the session is made in each of them, when
the first test there needs it. A process that dies fails the test that it ran, and another one takes its place.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Final

import pytest
from _pytest.capture import FDCapture

TOGETHER: Final = (
    "tests/test_fresh_clone.py",  # one clone
    "tests/store/contract/test_contract.py::TestPostgres16",  # one server
    # These start a dozen processes at a time, and are in each other's way side by side.
    "tests/proof/agent/",
    "tests/proof/effects/",
)
"""The tests whose names begin so share a process, as do those of a file that share a fixture of the file."""

LONG: Final = (
    "tests/benchmarks/",
    "tests/docs/test_sessions.py",
    "tests/proof/",
    "tests/store/postgres/test_limit_races.py",
    "tests/test_fresh_clone.py",
    "tests/typing/",
    "tests/web/test_stopping.py",
)
"""What takes long comes in the first half: at the end, all other processes would wait for it."""

PATIENCE: Final = 30
"""Seconds that the processes get to end, after the last test or when the run is interrupted."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("processes")
    group._addoption("-n", "--numprocesses", type=int, default=0, metavar="N", help="Run the tests in N processes.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in other processes, or leave them to pytest."""
    option = session.config.option
    if not option.numprocesses or option.collectonly or option.usepdb or session.testsfailed or not session.items:
        return None
    return _Run(session, option.numprocesses).run()


def units(names: Sequence[str], sharing: Container[str] = ()) -> list[list[int]]:
    """Return the indices of the tests, in the order and in the portions in which they are handed out.

    ``sharing`` are those that use a fixture of their file: it is made once. What has to stay together comes first, and
    what takes long in the first half. Apart from that all folders are mixed, so that at any time some tests compute
    while others wait.
    """
    portions: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        own = name.partition("::")[0] if name in sharing else name
        portions.setdefault(next((start for start in TOGETHER if name.startswith(start)), own), []).append(index)
    sizes = Counter(map(_folder, portions))
    before: Counter[str] = Counter()
    places: dict[str, float] = {}
    for portion, indices in portions.items():
        folder = _folder(portion)
        before[folder] += 1
        place = before[folder] / sizes[folder]
        is_long = len(indices) > 1 or portion.startswith(LONG)
        places[portion] = 0 if portion in TOGETHER else place / 2 if is_long else place
    return [portions[portion] for portion in sorted(portions, key=places.__getitem__)]


def _folder(name: str) -> str:
    return "/".join(name.split("/")[:2])


def _shares(item: pytest.Item) -> bool:
    """Whether a test uses a fixture that other tests of its file use too."""
    if not isinstance(item, pytest.Function):
        return False
    return any(
        definition.scope in {"class", "module"}
        for definitions in item._fixtureinfo.name2fixturedefs.values()
        for definition in definitions
    )


@dataclass
class _Worker:
    """A process that runs tests, as the first one sees it."""

    process: ForkProcess
    taken: deque[int] = field(default_factory=deque)
    """What was handed to it, and has not begun."""
    running: int | None = None
    """What began last."""


class _Run:
    """The first process: hands out tests and reports what comes of them."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._config = session.config
        names = [item.nodeid for item in session.items]
        self._waiting = deque(units(names, {item.nodeid for item in session.items if _shares(item)}))
        self._count = min(count, len(self._waiting))
        self._workers: dict[Connection, _Worker] = {}
        self._leaving: list[ForkProcess] = []
        """Those that are done; a thread that a test left behind may hold them up."""
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all, with a folder for each
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False  # no line for each file: several are under way

    def run(self) -> bool:
        try:
            for _ in range(self._count):
                self._start()
            while self._workers:
                for connection in wait(list(self._workers)):
                    assert isinstance(connection, Connection)
                    self._hear(connection)
        finally:
            self._leave()
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)
        return True

    def _start(self) -> None:
        here, there = multiprocessing.Pipe()
        inherited = [*self._workers, here]
        process = multiprocessing.get_context("fork").Process(target=_work, args=(self._session, there, inherited))
        process.start()
        there.close()
        self._workers[here] = _Worker(process)

    def _hear(self, connection: Connection) -> None:
        worker = self._workers[connection]
        try:
            kind, *words = connection.recv()
        except (EOFError, OSError):
            self._bury(connection, worker)
            return
        match kind:
            case "next":
                unit = self._waiting.popleft() if self._goes_on else []
                worker.taken.extend(unit)
                self._send(connection, unit)
            case "begin":
                worker.running = worker.taken.popleft()
            case "report":
                report = self._config.hook.pytest_report_from_serializable(config=self._config, data=words[0])
                self._report(report)
            case "end":
                self._leaving.append(self._workers.pop(connection).process)
                connection.close()
            case "defect":
                raise RuntimeError(f"a process of the tests has failed:\n{words[0]}")

    def _report(self, report: pytest.TestReport) -> None:
        self._config.hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail or self._session.shouldstop:
            for connection in self._workers:  # before its next test, a process looks for an order
                self._send(connection, [])

    @property
    def _goes_on(self) -> bool:
        return bool(self._waiting) and not (self._session.shouldfail or self._session.shouldstop)

    def _send(self, connection: Connection, unit: list[int]) -> None:
        with suppress(OSError):  # it has died, which is heard next
            connection.send(unit)

    def _bury(self, connection: Connection, worker: _Worker) -> None:
        """Report a process that died during a test, and replace it."""
        _end(worker.process)
        del self._workers[connection]
        connection.close()
        what = f"its process ended with exit code {worker.process.exitcode}"
        if worker.running is None:
            raise RuntimeError(f"before its first test: {what}")
        item = self._session.items[worker.running]
        self._report(pytest.TestReport(item.nodeid, item.location, {}, "failed", what, "call"))
        if worker.taken:
            self._waiting.appendleft(list(worker.taken))
        if self._goes_on:
            self._start()

    def _leave(self) -> None:
        """Leave none behind, also when the run is interrupted: each one ends before its next test."""
        for connection in self._workers:
            connection.close()
        for process in [*self._leaving, *(worker.process for worker in self._workers.values())]:
            _end(process)


def _end(process: ForkProcess) -> None:
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()


def _work(session: pytest.Session, connection: Connection, inherited: Iterable[Connection]) -> None:
    """Run tests in a forked process until there are none left."""
    for other in inherited:
        other.close()  # or the first process would not notice that its owner has died
    try:
        _part(session.config)
        session.config.pluginmanager.register(_Reporter(session.config, connection))
        _run_tests(session, connection)
        session._setupstate.teardown_exact(None)
        session.config._ensure_unconfigure()
        connection.send(("end",))
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        session._setupstate.teardown_exact(None)  # the run was interrupted
    except BaseException:  # noqa: BLE001 - an exit too
        connection.send(("defect", traceback.format_exc()))


def _part(config: pytest.Config) -> None:
    """Have what the first process must not share: files for what tests print, a temporary folder, no terminal."""
    config.pluginmanager.unregister(name="terminalreporter")
    capturing = config.pluginmanager.get_plugin("capturemanager")
    assert capturing is not None
    capturing.suspend_global_capture()
    for capture in (capturing._global_capturing.out, capturing._global_capturing.err):
        if isinstance(capture, FDCapture):  # the file object stays: sys.stderr is the default of many a parameter
            with tempfile.TemporaryFile(buffering=0) as own:
                os.dup2(own.fileno(), capture.tmpfile.fileno())
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"process-{os.getpid()}"
    factory._basetemp.mkdir(mode=0o700)


def _run_tests(session: pytest.Session, connection: Connection) -> None:
    indices = _take(connection)
    index = next(indices, None)
    while index is not None:
        if connection.poll():  # an order to stop: nothing else comes unasked
            return
        # What the next test needs too is not torn down, so it has to be known.
        following = next(indices, None)
        connection.send(("begin",))
        session.config.hook.pytest_runtest_protocol(
            item=session.items[index], nextitem=None if following is None else session.items[following]
        )
        index = following


def _take(connection: Connection) -> Iterator[int]:
    while True:
        connection.send(("next",))
        unit = connection.recv()
        if not unit:
            return
        yield from unit


class _Reporter:
    """Sends the first process what pytest reports in this one."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))
