"""New stores are their owner's alone, whatever the umask; an existing one keeps the rights that its owner gave."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.store.jsonfile import JsonStore
from holdfast.store.privacy import of_folder, of_lock
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.gate import FileGate, OpenGate, file_gate

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")


@contextmanager
def masked(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Return the rights of everything below, by name."""
    return {str(one.relative_to(folder)): oct(stat.S_IMODE(one.stat().st_mode)) for one in sorted(folder.rglob("*"))}


async def test_a_new_store_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    for mask in (0o000, 0o022, 0o077, 0o277):
        folder = tmp_path / oct(mask)
        folder.mkdir()
        with masked(mask):
            async with SqliteStore(folder / "agents.db") as store:
                await store.put_artifact(b"x", media_type="text/plain")
                found = modes(folder)
        assert found == dict.fromkeys(("agents.db", "agents.db-gate", "agents.db-shm", "agents.db-wal"), "0o600")


async def test_a_new_json_store_is_its_owners_alone_also_in_a_folder_that_was_there(tmp_path: Path) -> None:
    for name in ("made", "there"):
        root = tmp_path / name
        if name == "there":
            root.mkdir()
            root.chmod(0o755)
        with masked(0o000):
            async with Holdfast(f"json:///{root}") as hold:
                await hold.memory.store("a", "b", 1)
                await hold.store.put_artifact(b"x", media_type="text/plain")
        found = modes(root)
        assert any(path.startswith("artifacts/") for path in found), found
        assert {mode for path, mode in found.items() if (root / path).is_file()} == {"0o600"}, found
        assert {mode for path, mode in found.items() if (root / path).is_dir()} == {"0o700"}, found
        assert stat.S_IMODE(root.stat().st_mode) == (0o755 if name == "there" else 0o700)


async def test_a_store_that_its_owner_shares_stays_shared(tmp_path: Path) -> None:
    path, root = tmp_path / "agents.db", tmp_path / "json"
    async with SqliteStore(path), JsonStore(root):
        pass
    path.chmod(0o660)
    for one in (root, *root.rglob("*")):
        one.chmod(0o770 if one.is_dir() else 0o660)
    with masked(0o077):
        async with SqliteStore(path) as store, Holdfast(f"json:///{root}") as hold:
            await store.put_artifact(b"x", media_type="text/plain")
            await hold.memory.store("a", "b", 1)
            await hold.store.put_artifact(b"x", media_type="text/plain")
            found = modes(tmp_path)
    assert {mode for name, mode in found.items() if (tmp_path / name).is_dir()} == {"0o770"}, found
    assert {mode for name, mode in found.items() if not (tmp_path / name).is_dir()} <= {"0o660", None}, found


def test_only_those_who_may_write_a_store_may_open_its_gate(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    for store, gate in ((0o600, 0o600), (0o644, 0o600), (0o640, 0o600), (0o660, 0o660), (0o664, 0o660), (0o666, 0o666)):
        path.touch()
        path.chmod(store)
        Path(f"{path}-gate").touch()
        Path(f"{path}-gate").chmod(0o644)  # as an earlier version left it
        with masked(0o077):
            file_gate(str(path)).close()
        assert (of_lock(store), stat.S_IMODE(Path(f"{path}-gate").stat().st_mode)) == (gate, gate)
    assert [oct(of_folder(mode)) for mode in (0o600, 0o660, 0o640)] == ["0o700", "0o770", "0o750"]


def test_a_gate_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    Path(tmp_path / "agents.db-gate").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="cannot be written"):
        file_gate(str(tmp_path / "agents.db"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be another user")
def test_another_user_cannot_keep_the_gate_shut(tmp_path: Path) -> None:
    """Neither by opening the gate of a store that user may only read, nor by making one before the store does."""
    path = tmp_path / "agents.db"
    path.touch()
    path.chmod(0o644)
    for above in (tmp_path, *tmp_path.parents):
        if not above.stat().st_mode & stat.S_IXOTH:
            above.chmod(above.stat().st_mode | stat.S_IXOTH)
    ours = file_gate(str(path))
    assert isinstance(ours, FileGate)
    assert not _can_open_unprivileged(Path(f"{path}-gate"))
    ours.close()
    os.chown(path, 12345, 12345)
    planted = Path(f"{path}-gate")
    planted.chmod(0o666)
    os.chown(planted, 65534, 65534)
    with planted.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        gate = file_gate(str(path))
        assert isinstance(gate, OpenGate)
        assert gate.try_enter()


def _can_open_unprivileged(path: Path) -> bool:
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError:
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
