"""A run in several processes ends, reports and sums up as one in a single process does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from holdfast.testing.contract._support import row
from tests.processes import units

ROOT = Path(__file__).parent.parent

CONFTEST = "from tests.processes import pytest_addoption, pytest_runtestloop\n"
TESTS = """
import os
import time
import pytest

def note(what):
    with open("notes", "a") as notes:
        notes.write(f"{what} {os.getpid()}\\n")

@pytest.fixture(scope="session")
def server():
    note("up")
    yield
    note("down")

@pytest.fixture
def broken():
    raise RuntimeError("no such fixture")

@pytest.mark.parametrize("number", range(10))
def test_it_fails(server, tmp_path, number):
    (tmp_path / "file").touch()
    print(f"printed by {number}")
    os.write(1, f"written by {number}\\n".encode())
    time.sleep(0.05)  # for tests of other processes to print meanwhile
    assert number < 0

@pytest.mark.parametrize("number", range(10))
def test_it_passes(server, tmp_path, number):
    pass

def test_it_is_skipped():
    pytest.skip("today")

@pytest.mark.xfail
def test_it_is_expected():
    assert False

def test_it_cannot_begin(broken):
    pass
"""
DYING = """
import os
import signal
import pytest

@pytest.mark.parametrize("number", range(20))
def test_it(number):
    if number == 3:
        os._exit(7)
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
"""
STOPPING = """
import time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(1000))
def test_it(number):
    if number == 0:
        Path("failing").touch()
        assert False
    while not Path("failing").exists():
        time.sleep(0.01)
    time.sleep(0.02)
"""
WAITING = """
import os
import time
from pathlib import Path
import pytest

@pytest.fixture(scope="session", autouse=True)
def server():
    yield
    Path(f"down-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(3))  # a process takes one in advance
def test_it(number):
    Path(f"begun-{os.getpid()}").touch()
    time.sleep(600)
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-ra", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    with start(folder, *arguments) as process:
        said, _ = process.communicate()
    return process.returncode, said


def summary(said: str) -> str:
    return re.sub(r" in [0-9.]+s.*", "", said.splitlines()[-1]).strip("= ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path


def test_everything_is_reported_as_by_one_process(folder: Path) -> None:
    (folder / "test_all.py").write_text(TESTS)
    for processes in ("0", "3"):
        with row(processes):
            code, said = run(folder, "-n", processes)
            assert code == pytest.ExitCode.TESTS_FAILED
            assert summary(said) == "10 failed, 10 passed, 1 skipped, 1 xfailed, 1 error"
            assert "SKIPPED [1] test_all.py:" in said
            printed = re.findall(r"Captured stdout call -+\n((?:.+ by \d\n)+)", said)
            assert sorted(printed) == [f"printed by {number}\nwritten by {number}\n" for number in range(10)]
            notes = Counter((folder / "notes").read_text().split()[::2])
            assert notes["up"] == notes["down"] == (int(processes) or 1), "a fixture of the session, in each process"
            (folder / "notes").unlink()
    code, said = run(folder, "-n", "2", "--lf")
    assert summary(said).startswith("10 failed, "), "pytest remembers what failed"


def test_a_process_that_dies_fails_its_test(folder: Path) -> None:
    (folder / "test_dying.py").write_text(DYING)
    code, said = run(folder, "-n", "2")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert summary(said) == "2 failed, 18 passed"
    assert "FAILED test_dying.py::test_it[3] - its process ended with exit code 7" in said
    assert "FAILED test_dying.py::test_it[5] - its process ended with exit code -9" in said


def test_a_run_stops_at_a_failure(folder: Path) -> None:
    (folder / "test_stopping.py").write_text(STOPPING)
    code, said = run(folder, "-n", "2", "-x")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "stopping after 1 failures" in said
    assert int(re.search(r"(\d+) passed", summary(said))[1]) < 999  # type: ignore[index]


def test_an_interrupted_run_takes_its_fixtures_down(folder: Path) -> None:
    (folder / "test_waiting.py").write_text(WAITING)
    with start(folder, "-n", "2") as process:
        while len(list(folder.glob("begun-*"))) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert "KeyboardInterrupt" in said
    assert len(list(folder.glob("down-*"))) == 2


def test_the_order_in_which_tests_are_handed_out() -> None:
    names = [
        "tests/agent/test_a.py::test_1",
        "tests/agent/test_a.py::test_2",
        "tests/agent/test_a.py::test_3",
        "tests/agent/test_a.py::test_4",
        "tests/agent/test_b.py::test_1",
        "tests/agent/test_b.py::test_2",
        "tests/proof/agent/test_c.py::test_1",
        "tests/proof/agent/test_d.py::test_1",
        "tests/typing/test_e.py::test_1",
        "tests/web/test_f.py::test_1",
        "tests/web/test_f.py::test_2",
    ]
    sharing = {names[4], names[5]}
    assert units(names, sharing) == [[6, 7], [0], [1], [4, 5], [8], [9], [2], [3], [10]]
