"""A forked child and SQLite files: one that was open at the fork is refused, any other works and loses nothing."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import apsw

from holdfast import Holdfast
from holdfast.store.sqlite.peek import peek
from tests.process_fork.child import ask_child, run_family


def tasks_in(path: Path) -> int:
    """Open the file with a Holdfast of one's own, and count its tasks."""
    hold = Holdfast(f"sqlite:///{path}")
    with hold.sync as h:
        return sum(h.wait(hold.store.count()).values())


def test_a_file_that_the_parent_had_open_is_refused_under_any_name(tmp_path: Path) -> None:
    path, other = tmp_path / "hold.db", tmp_path / "other.db"
    hold = Holdfast(f"sqlite:///{path}")
    with hold.sync:
        (tmp_path / "hard.db").hardlink_to(path)
        (tmp_path / "soft.db").symlink_to(path)
        for name in ("hold.db", "hard.db", "soft.db"):
            for use in (tasks_in, peek):
                answer = ask_child(partial(use, tmp_path / name))
                assert answer.startswith("StoreForked"), (name, answer)
                assert "was open in the process" in answer
                assert "spawn" in answer
        assert ask_child(lambda: ask_child(lambda: tasks_in(path))).startswith("StoreForked")  # a grandchild
        assert ask_child(lambda: tasks_in(other)) == 0  # never opened
        assert ask_child(lambda: tasks_in(other)) == 0  # closed, by another process
    assert ask_child(lambda: tasks_in(path)) == 0  # closed by the parent


def test_a_connection_of_the_users_own_counts_as_well(tmp_path: Path) -> None:
    path = tmp_path / "hold.db"
    assert tasks_in(path) == 0
    own = apsw.Connection(str(path))
    own.execute("SELECT 1 FROM tasks")
    assert ask_child(lambda: tasks_in(path)).startswith("StoreForked")
    own.close()
    assert ask_child(lambda: tasks_in(path)) == 0


def test_what_a_child_commits_survives_its_kill_and_the_close_of_its_parent(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    assert run_family("reopened", url, folder=tmp_path).stdout == "parent [20, 22, 24]\n"
    assert run_family("count", url, folder=tmp_path).stdout == "tasks 8 ()\n"


def test_a_child_that_collects_its_copy_leaves_the_parents_transaction_whole(tmp_path: Path) -> None:
    ended = run_family("collected", f"sqlite:///{tmp_path}/hold.db", folder=tmp_path)
    assert ended.stdout == "ended 0 rows 3000 ok\n"


def test_a_program_that_is_started_inherits_no_descriptor(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/hold.db").sync:
        opened = [descriptor for descriptor in Path("/dev/fd").iterdir() if descriptor.exists()]
        ours = [int(one.name) for one in opened if tmp_path in one.resolve().parents]
        assert ours
        assert not any(map(os.get_inheritable, ours))
