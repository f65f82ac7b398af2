"""What people see of the demo: live in a terminal, plain lines in a pipe, and as a picture."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.cli.demo.support import COMMAND, PATIENCE, environment

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")

STORY = (
    *("claims the task", "apply_changes: armed as", "is in the ledger: it happened, and is not recorded yet"),
    *("SIGKILL: worker-1", "takes over; 7 recorded steps replay", "step 8 is in doubt", "asks the world about"),
    *("it happened: 3 replicas", "May the agent call switch_traffic", "approved by the demo's script"),
    *("completed: billing 1.2 is live.", "nothing ran twice"),
)


def in_a_terminal(folder: Path, *options: str, **also: str) -> tuple[int, str]:
    """Run the demo on a terminal of 80x24; return its exit code and its output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    written = b""
    with subprocess.Popen(
        [*COMMAND, *options], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment(folder, **also)
    ) as process:
        os.close(theirs)
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            written += piece
        os.close(ours)
        return process.wait(PATIENCE), written.decode()


def test_live_in_a_terminal(tmp_path: Path) -> None:
    code, written = in_a_terminal(tmp_path)
    shown = ESCAPES.sub("", written)
    assert code == 0, shown
    assert COLOURS.search(written)
    in_order(shown, STORY)
    # Words that only the live picture has.
    for words in (
        "plan 7/10",
        "armed, worker killed",
        "killed by SIGKILL",
        "lease ",
        "waits for approval",
        "/30 steps",
    ):
        assert words in shown
    assert "Traceback" not in shown
    assert "Look around" not in shown
    assert list(tmp_path.iterdir()) == []


def test_without_colours(tmp_path: Path) -> None:
    code, written = in_a_terminal(tmp_path, NO_COLOR="1")
    assert code == 0, written
    assert not COLOURS.search(written)


def test_line_by_line_in_a_pipe_and_as_a_picture(tmp_path: Path) -> None:
    kept, picture = tmp_path / "kept", tmp_path / "demo.svg"
    answer = subprocess.run(
        [*COMMAND, "--keep", str(kept), "--svg", str(picture)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment(tmp_path, NO_COLOR="1", PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"),
        timeout=PATIENCE,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "\x1b" not in answer.stdout
    in_order(answer.stdout, STORY)
    before, _, commands = answer.stdout.partition("Look around:\n")
    assert max(map(len, before.splitlines())) <= 80
    for verb, line in zip(("show", "history", "state"), commands.splitlines(), strict=True):
        assert re.fullmatch(rf"  holdfast {verb} [0-9a-f-]{{36}} --database-url sqlite:///{kept}/demo\.db", line)
    assert (kept / "demo.db").exists()
    check_picture(picture, str(tmp_path))


def test_the_picture_in_the_docs_is_one_of_this_demo() -> None:
    check_picture(Path(__file__).parents[3] / "docs" / "demo.svg", "/tmp/")  # noqa: S108 - it must not be there


def check_picture(picture: Path, machine_path: str) -> None:
    drawn = picture.read_text(encoding="utf-8")
    said = "".join(ET.fromstring(drawn).itertext()).replace("\xa0", " ")  # noqa: S314 - it is ours
    in_order(said, STORY)
    assert machine_path not in drawn
    # It needs nothing from the network: the name of the format is the only address in it.
    assert re.findall(r"https?://[^\"\s]*", drawn) == ["http://www.w3.org/2000/svg"]
    assert set(re.findall(r"url\((.)", drawn)) == {"#"}
    assert "@import" not in drawn
    assert "@font-face" not in drawn


def in_order(text: str, words: tuple[str, ...]) -> None:
    place = 0
    for some in words:
        found = text.find(some, place)
        assert found >= 0, f"{some!r} is not there, or too early"
        place = found
