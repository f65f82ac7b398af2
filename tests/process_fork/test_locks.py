"""No lock of a process outlives it in a child that it forked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from holdfast import Holdfast
from holdfast.effects.marks import Marks
from holdfast.process_fork import LockFile
from holdfast.store.sqlite.gate import file_gate
from tests.process_fork.child import ask_child, living_child, run_family


def test_the_locks_of_a_transaction_are_free_when_its_process_is_killed(tmp_path: Path, postgres_url: str) -> None:
    for url in (f"sqlite:///{tmp_path}/hold.db", postgres_url):
        killed = run_family("killed_inside", url, folder=tmp_path)
        assert killed.returncode == -signal.SIGKILL, killed.stdout
        child = int(killed.stdout)
        try:
            assert run_family("write", url, folder=tmp_path).stdout == "written\n"
            os.kill(child, 0)  # it lives all the while
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_file_lock_is_the_parents_alone(tmp_path: Path) -> None:
    gate, marks = file_gate(str(tmp_path / "agents.db")), Marks(tmp_path / "marks", "effect-1")
    gate.enter()
    assert marks.claim()
    hold = Holdfast(f"json:///{tmp_path}/files")
    block = hold.sync.__enter__()
    with living_child():
        # Held by the parent, whatever a child does on its way out:
        assert ask_child(gate.leave) is None
        assert ask_child(gate.close) is None
        assert not file_gate(str(tmp_path / "agents.db")).try_enter()
        assert marks.is_held()
        assert ask_child(Holdfast(f"json:///{tmp_path}/files").sync.__enter__).startswith("StoreBusy")
        # Given up by the parent, and not kept by the child that lives:
        gate.close()
        marks.__exit__(None, None, None)
        block.__exit__(None, None, None)
        assert file_gate(str(tmp_path / "agents.db")).try_enter()
        assert not marks.is_held()
        with hold.sync:
            pass


def test_a_child_keeps_the_number_of_a_lock_file_occupied(tmp_path: Path) -> None:
    """Code that still knows the number must not find another file there."""
    lock = LockFile(tmp_path / "lock")

    def look() -> list[bool]:
        mine = os.open(tmp_path / "mine", os.O_RDWR | os.O_CREAT)
        lock.close()
        return [mine != lock.descriptor, os.path.samestat(os.fstat(lock.descriptor), Path(os.devnull).stat())]

    assert ask_child(look) == [True, True]
    lock.close()
