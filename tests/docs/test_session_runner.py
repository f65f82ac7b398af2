"""The runner of sessions itself: a page that is wrong fails, at its line, and nothing is left running."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.docs.forked_commands import available
from tests.docs.matching import difference, matches
from tests.docs.pages import PageError
from tests.docs.sessions import Differs, run_page, unused
from tests.docs.shell import Hangs, Shell, ShellGone

RunText = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path) -> RunText:
    """Run a page that consists of this text."""

    def run_text(text: str, longest: float = 60.0, not_run: tuple[str, ...] = ()) -> None:
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        run_page(page, tmp_path, not_run=not_run, longest=longest)

    return run_text


def console(*lines: str) -> str:
    return "\n".join(["```console", *lines, "```", ""])


@pytest.mark.parametrize(
    "session",
    [
        console("$ echo one; echo two >&2; echo three", "one", "two", "three"),
        console("$ seq 100", "1", "...", "50", "...", "100"),
        console("$ seq 3", "1", "2", "3", "..."),
        console("$ echo task 0198c1 was made 3 s ago", "task ... was made ... ago"),
        console("$ echo whatever"),
        console("$ echo no; exit_with() { return 5; }; exit_with", "no", "# exit 5"),
        console("$ false", "# exit 1"),
        console("$ echo one \\", "    two", "one two"),
        console("$ echo 'one   '", "one", ""),
        console("$ printf without-end", "without-end"),
        console("$ x=1; cd /; export Y=2", "$ echo $x $PWD $(printenv Y)", "1 / 2"),
        console("$ echo one") + "\n" + console("$ echo two", "two"),
        "```sh\necho one   # a comment\n# another\n\necho \\\n  two\n```\n",
        console("$ bash -c 'kill -9 $$'", "Killed"),
        console("$ echo a; bash -c 'kill -9 $$'", "a", "Killed"),
    ],
)
def test_a_page_that_is_right_passes(session: str, run: RunText) -> None:
    run(session)


@pytest.mark.parametrize(
    ("session", "said"),
    [
        (console("$ echo one", "two"), r"page.md:2: \$ echo one\n.*-two\n\+one"),
        (console("$ echo one; echo two", "one"), r"\n\+two"),
        (console("$ echo one", "one", "two"), r"\n-two"),
        (console("$ true", "one"), r"\n-one"),
        (console("$ true", "$ false"), "page.md:3: .*\nexit code 1, not 0"),
        (console("$ true", "# exit 5"), "exit code 0, not 5"),
        (console("$ (exit 4)", "# exit 5"), "exit code 4, not 5"),
        (console("$ echo a; false", "a"), "exit code 1, not 0"),
        (console("$ bash -c 'kill -9 $$'"), "exit code 137, not 0"),
        (console("$ bash -c 'kill -9 $$'", "..."), "exit code 137, not 0"),
        (console("$ echo Killed", "Killed"), "exit code 0, not 137"),
        (console("$ seq 9", "1", "...", "8"), r"\n\+9"),
        ("```sh\ntrue\nfalse\n```\n", "page.md:3: .*\nexit code 1"),
        (console("$ if"), "exit code 2"),
    ],
)
def test_a_page_that_is_wrong_fails_at_its_line(session: str, said: str, run: RunText) -> None:
    with pytest.raises(Differs, match=f"(?s){said}"):
        run(session)


def test_a_console_block_that_begins_with_output_is_refused(run: RunText) -> None:
    with pytest.raises(PageError, match=r"page\.md:1: a console block begins"):
        run(console("one", "$ echo one"))


def test_files_are_there_for_the_commands_after_them(run: RunText) -> None:
    run(
        "```python file=parts/agents.py\nprint('one')\n```\n"
        + console("$ python parts/agents.py", "one")
        + "```python file=parts/agents.py\nprint('two')\n```\n"
        + "```toml file=holdfast.toml\nx = 1\n```\n"
        + console("$ python parts/agents.py; cat holdfast.toml", "two", "x = 1")
    )


def test_the_environment_is_a_reader_s(run: RunText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "sqlite:///others.db")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    run(
        console(
            "$ printenv HOLDFAST_DATABASE_URL OPENAI_API_KEY",
            "# exit 1",
            "$ echo $COLUMNS $NO_COLOR $LANG $TZ",
            "100 1 C.UTF-8 UTC",
            "$ python -c 'import os; print(os.isatty(0), os.isatty(1), os.isatty(2))'",
            "False False False",
            "$ python -c 'import rich; rich.print(\"[red bold]x\", rich.get_console().width)'",
            "x 100",
        )
    )


def test_the_commands_are_this_environment_s(run: RunText) -> None:
    folder = Path(sys.executable).parent
    run(console("$ command -v holdfast python", f"{folder}/holdfast", f"{folder}/python"))


def test_a_line_that_is_not_run_is_not_run(run: RunText) -> None:
    run("```sh\nfalse --forever   # why\ntrue\n```\n", not_run=("false --forever",))


def test_an_entry_that_no_page_uses_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nmake demo    # see it\n```\n", encoding="utf-8")
    assert unused({"make demo": "reason", "make dinner": "reason"}, [page]) == ["make dinner"]


SERVER = """\
```python file=server.py
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
def stop(*_):
    with open("stopped", "w") as file: file.write("stopped")
    sys.exit()
signal.signal(signal.SIGTERM, stop)
time.sleep(0.3)
print("pids", os.getpid(), child.pid)
with open("pids", "w") as file: file.write(f"{os.getpid()} {child.pid}")
print("ready")
time.sleep(1000)
```
"""


def test_a_background_command_is_waited_for_and_stopped_with_all_it_started(run: RunText, tmp_path: Path) -> None:
    run(SERVER + console("$ python server.py &", "pids ...", "ready", "$ test -e pids; echo $?", "0"))
    pids = [int(pid) for pid in (tmp_path / "work/pids").read_text().split()]
    assert len(pids) == 2
    assert not [pid for pid in pids if alive(pid)]
    assert (tmp_path / "work/stopped").read_text() == "stopped"  # asked, not killed


def test_nothing_is_left_of_a_page_that_fails(run: RunText, tmp_path: Path) -> None:
    with pytest.raises(Differs):
        run(SERVER + console("$ python server.py &", "...", "ready", "$ false"))
    pids = [int(pid) for pid in (tmp_path / "work/pids").read_text().split()]
    assert len(pids) == 2
    until = time.monotonic() + 60
    while any(alive(pid) for pid in pids):  # killed, and perhaps not yet collected
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_background_command_that_ends_without_its_lines_fails(run: RunText) -> None:
    with pytest.raises(Differs, match=r"page\.md:2: .*\n(?s:.*)\n-ready\n\+no port"):
        run(console("$ echo no port &", "ready"))


def test_a_background_command_that_never_says_its_lines_fails(run: RunText) -> None:
    with pytest.raises(Differs, match="-ready"):
        run(console("$ sleep 1000 &", "ready"), longest=5.0)


def test_a_background_command_that_does_not_stop_fails_and_is_gone(run: RunText, tmp_path: Path) -> None:
    with pytest.raises(Hangs, match="SIGTERM"):
        run(console("$ bash -c 'trap \"\" TERM; echo pid $$; sleep 1000' &", "pid ..."), longest=5.0)
    pid = int((tmp_path / "background-0").read_text().removeprefix("pid "))
    until = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_command_that_hangs_is_ended(run: RunText) -> None:
    with pytest.raises(Hangs, match="so far it said:\nsoon"):
        run(console("$ echo soon; sleep 1000"), longest=5.0)


def test_leaving_the_shell_is_noticed(run: RunText) -> None:
    with pytest.raises(ShellGone):
        run(console("$ exit 3", "# exit 3"))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a"], ["a"], True),
        (["a"], ["b"], False),
        (["..."], [], True),
        (["..."], ["a", "b"], True),
        ([], ["a"], False),
        (["a"], [], False),
        (["...", "b", "...", "b"], ["b", "a", "b"], True),
        (["...", "b", "c"], ["b", "b", "c"], True),
        (["...", "b"], ["b", "c"], False),
        (["a", "...", "a"], ["a"], False),
        (["a.c"], ["abc"], False),
        (["a...c"], ["abbc"], True),
        (["a...c"], ["a", "c"], False),
        (["  a"], ["a"], False),
    ],
)
def test_three_dots_stand_for_what_varies(shown: list[str], printed: list[str], same: bool) -> None:
    assert matches(shown, printed) is same


def test_a_difference_names_the_line_and_leaves_out_what_fits() -> None:
    said = difference(["task ...", "done"], ["task 7", "failed"], where="docs/tasks.md:9")
    assert said.splitlines() == [
        "--- docs/tasks.md:9 shows",
        "+++ printed",
        "@@ -1,2 +1,2 @@",
        " task ...",
        "-done",
        "+failed",
    ]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


@pytest.mark.skipif(not available(), reason="the files of another process cannot be opened here")
def test_a_forked_command_has_the_shell_s_folder_files_and_variables_and_its_code_comes_back(tmp_path: Path) -> None:
    with Shell(tmp_path, forked=True) as shell:
        assert not shell.run("command -v holdfast")[1].startswith(str(Path(sys.executable).parent))
        assert shell.run("holdfast nonsense >out 2>err")[0] == 2
        assert "nonsense" in (tmp_path / "err").read_text(encoding="utf-8")
        shell.run("mkdir deep; cd deep; export HOLDFAST_DATABASE_URL=sqlite:///here.db")
        code, text = shell.run("holdfast list 2>&1 >/dev/null | tr a-z A-Z")
        assert (code, "NO STORE AT SQLITE:///HERE.DB" in text, "/DEEP)" in text) == (0, True, True)
