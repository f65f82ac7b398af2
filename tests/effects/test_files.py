"""create_file on a real file system."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.effects import FileTaken, Impossible, NotReached, create_file
from holdfast.effects.files import was_created
from holdfast.model.doubt import Absent, Happened, Unknown
from holdfast.model.errors import NotHappened

ID = "0f8b7c9e-1111-5222-8333-444455556666"


def test_the_file_holds_what_was_given_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    assert was_created(ID, path, "grüße\r\n") == Absent()
    assert create_file(path, "grüße\r\n", effect_id=ID) == str(path)
    assert path.read_bytes() == "grüße\r\n".encode()
    assert was_created(ID, str(path), "grüße\r\n") == Happened(str(path))
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_made_like_any_other_file(tmp_path: Path) -> None:
    create_file(tmp_path / "ours", b"", effect_id=ID)
    (tmp_path / "plain").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@given(content=some.binary())
def test_any_bytes_come_back(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "file"
    create_file(path, content, effect_id=ID)
    assert path.read_bytes() == content
    assert was_created(ID, path, content) == Happened(str(path))
    assert isinstance(was_created(ID, path, content + b"."), Unknown)


def test_the_same_again_is_the_same_effect(tmp_path: Path) -> None:
    """A first call that was believed dead finished after all."""
    path = tmp_path / "report"
    create_file(path, "text", effect_id=ID)
    before = path.stat()
    create_file(path, "text", effect_id=ID)
    assert path.stat().st_ino == before.st_ino


def _file(path: Path) -> None:
    path.write_text("something else")


def _same_size(path: Path) -> None:
    path.write_text("TEXT")


def _link(path: Path) -> None:
    (path.parent / "other").write_text("text")
    path.symlink_to(path.parent / "other")


def _dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _written(path: Path) -> tuple[int, ...]:
    """Return what changes when something is written there; reading a link changes the time of its last use."""
    found = path.lstat()
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@pytest.mark.parametrize("occupy", [_file, _same_size, _link, _dangling_link, _fifo, Path.mkdir])
def test_nothing_is_ever_overwritten(tmp_path: Path, occupy: object) -> None:
    path = tmp_path / "report"
    assert callable(occupy)
    occupy(path)
    before = _written(path)
    with pytest.raises(FileTaken, match="report") as caught:
        create_file(path, "text", effect_id=ID)
    assert isinstance(caught.value, NotHappened)
    assert isinstance(caught.value, FileExistsError)
    assert (caught.value.errno, caught.value.filename) == (errno.EEXIST, str(path))
    assert _written(path) == before
    assert isinstance(was_created(ID, path, "text"), Unknown)
    assert not list(tmp_path.glob(".*"))


def test_something_without_content_is_not_taken_for_an_empty_file(tmp_path: Path) -> None:
    """Least of all by opening it: a FIFO without a writer never ends."""
    os.mkfifo(tmp_path / "report")
    with pytest.raises(FileTaken):
        create_file(tmp_path / "report", "", effect_id=ID)


def test_a_relative_path_is_refused_because_another_worker_stands_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Impossible, match="absolute path"):
        create_file("report", "text", effect_id=ID)


@pytest.mark.parametrize("effect_id", ["", ".", "../x", "a/b", "a\0b", "x" * 101, "*"])
def test_an_effect_id_that_is_not_a_file_name_is_refused(tmp_path: Path, effect_id: str) -> None:
    with pytest.raises(Impossible):
        create_file(tmp_path / "report", "text", effect_id=effect_id)
    assert not list(tmp_path.iterdir())


def test_text_that_has_no_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Impossible):
        create_file(tmp_path / "report", "\ud800", effect_id=ID)


def test_a_directory_that_is_not_there_is_proof_but_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "report"
    with pytest.raises(NotReached):
        create_file(path, "text", effect_id=ID)
    assert isinstance(was_created(ID, path, "text"), Unknown)


@pytest.mark.parametrize(("number", "is_proof"), [(errno.EPERM, True), (errno.EOPNOTSUPP, True), (errno.EIO, False)])
def test_a_file_system_without_links_is_proof_and_one_that_fails_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_proof: bool
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "hardlink_to", fail)
    with pytest.raises(NotReached if is_proof else OSError) as caught:
        create_file(tmp_path / "report", "text", effect_id=ID)
    assert isinstance(caught.value, NotHappened) is is_proof
    assert not list(tmp_path.iterdir())


def test_what_a_killed_call_left_is_removed_and_cannot_be_linked_any_more(tmp_path: Path) -> None:
    """Reconcile says absent: a call that still sleeps before its link must not make the file afterwards."""
    path = tmp_path / "report"
    asleep = tmp_path / f".{ID}.0badcafe.tmp"
    asleep.write_text("text")
    of_another_call = tmp_path / ".other-id.0badcafe.tmp"
    of_another_call.write_text("text")
    assert was_created(ID, path, "text") == Absent()
    with pytest.raises(FileNotFoundError):
        path.hardlink_to(asleep)
    assert of_another_call.exists()


def test_a_call_that_wakes_up_while_reconcile_looks_comes_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report"
    asleep = tmp_path / f".{ID}.0badcafe.tmp"
    asleep.write_text("text")
    woken: list[bool] = []

    def look(seen: Path) -> bool:
        there = os.path.exists(seen)  # noqa: PTH110 - the one looked at is replaced
        with suppress(FileNotFoundError):
            seen.hardlink_to(asleep)
        woken.append(True)
        return there

    monkeypatch.setattr("os.path.lexists", look)
    assert was_created(ID, path, "text") == Absent()
    assert woken
    assert not path.exists()


def test_names_are_on_disk_before_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report"
    synced: list[tuple[int, bool]] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, path.exists()))
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", record)
    create_file(path, "text", effect_id=ID)
    folder = tmp_path.stat().st_ino
    assert synced == [(path.stat().st_ino, False), (folder, True)]
    was_created(ID, path, "text")
    assert synced[2:] == [(folder, True)]


def test_of_many_at_once_the_content_of_one_wins_whole(tmp_path: Path) -> None:
    path = tmp_path / "report"
    contents = [bytes([65 + number]) * 300_000 for number in range(8)]
    outcomes: dict[int, str] = {}

    def create(number: int) -> None:
        try:
            outcomes[number] = create_file(path, contents[number], effect_id=f"effect-{number}")
        except FileTaken:
            outcomes[number] = "taken"

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for number, outcome in outcomes.items() if outcome != "taken"]
    assert path.read_bytes() == contents[winner]
    assert len(outcomes) == 8
    assert list(tmp_path.iterdir()) == [path]


def test_of_many_under_one_effect_id_all_succeed_with_one_file(tmp_path: Path) -> None:
    """One that was believed dead and the one that took its place: neither touches what the other is writing."""
    path = tmp_path / "report"
    content = b"x" * 300_000
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(create_file(path, content, effect_id=ID))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [str(path)] * 8
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


WRITER = """
import sys
from holdfast.effects import create_file
print("ready", flush=True)
sys.stdin.readline()
create_file(sys.argv[1], b"x" * 20_000_000, effect_id=sys.argv[2])
"""


def test_a_kill_at_any_time_leaves_all_of_it_or_nothing(tmp_path: Path, seeds: Sequence[int]) -> None:
    content = b"x" * 20_000_000
    before_the_end = 0
    for seed in seeds:
        path = tmp_path / f"report-{seed}"
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, path, ID], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.stdout.readline()
            writer.stdin.write(b"go\n")
            writer.stdin.flush()
            time.sleep(random.Random(seed).uniform(0, 0.05))
            writer.kill()
            writer.wait()
            before_the_end += writer.returncode != 0
        there = path.exists()
        assert not there or path.read_bytes() == content
        assert was_created(ID, path, content) == (Happened(str(path)) if there else Absent())
        assert not list(tmp_path.glob(".*"))
        path.unlink(missing_ok=True)
    assert before_the_end, "no kill came in time"
