"""Whether the store keeps what it acknowledges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from holdfast.service.diagnosis.evidence import Inside, StoreEvidence
from holdfast.service.diagnosis.finding import Finding, Level

SAFE_SQLITE: Final = (3, 51, 3)
LITTLE_ROOM: Final = 512 * 1024**2
NO_ROOM: Final = 16 * 1024**2
LARGE_WAL: Final = 256 * 1024**2
"""Bytes. A WAL goes into its database every 16 MB, unless some process reads from it all the time."""

SKEW_SEEN, SKEW_WRONG = 2.0, 60.0
"""Seconds between two clocks: from the first on people notice, from the second on one of them is wrong."""

NETWORKED: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3"}
)

_WRONG_POSTGRES: Final = {
    ("fsync", "off"): "a power cut can destroy the database",
    ("full_page_writes", "off"): "a power cut can leave half-written pages",
    ("synchronous_commit", "off"): "a power cut can lose what was acknowledged",
}


def check_settings(seen: StoreEvidence) -> Iterator[Finding]:
    """Judge the settings that durability depends on."""
    if not seen.is_wal and not seen.has_other_schema:
        yield Finding(
            "durability",
            Level.WARNING,
            "the file's journal is not a WAL: another program changed that; it was left as it is",
            "opening it switches it back: holdfast migrate",
        )
    if seen.inside is None:
        return
    match seen.inside.vitals.backend:
        case "SQLite":
            yield _sqlite(seen.inside)
        case "PostgreSQL":
            yield from _postgres(seen.inside)
        case "memory":
            yield Finding(
                "durability",
                Level.WARNING,
                "memory:// is gone with its process",
                "name a store that lasts: export HOLDFAST_DATABASE_URL=sqlite:///holdfast.db",
            )


def _sqlite(inside: Inside) -> Finding:
    settings = inside.vitals.settings
    mode, synchronous = settings.get("journal_mode", ""), settings.get("synchronous", "")
    words = f"journal_mode {mode}, synchronous {synchronous}"
    if mode == "wal" and synchronous in {"full", "extra"}:
        return Finding("durability", Level.OK, words)
    return Finding(
        "durability",
        Level.ERROR,
        f"{words}: a power cut can lose what was acknowledged",
        "the folder may not allow shared memory; put the file on a local disk, and look again: holdfast doctor",
    )


def _postgres(inside: Inside) -> Iterator[Finding]:
    settings = inside.vitals.settings
    if not settings:
        yield Finding(
            "durability",
            Level.NOTE,
            "this role may not look at the server's settings",
            "ask an administrator of the server: psql -c 'SHOW fsync' -c 'SHOW full_page_writes'",
        )
        return
    wrong = [(name, why) for (name, value), why in _WRONG_POSTGRES.items() if settings.get(name) == value]
    for name, why in wrong:
        remedy = f"psql -c 'ALTER SYSTEM SET {name} = on' -c 'SELECT pg_reload_conf()'"
        yield Finding("durability", Level.ERROR, f"{name} is off: {why}", remedy)
    if settings.get("in_recovery") == "on":
        yield Finding(
            "durability",
            Level.ERROR,
            "the server is a standby, which takes no writes",
            "name the primary: export HOLDFAST_DATABASE_URL=...; `holdfast config` shows what is set",
        )
    elif not wrong:
        shown = ", ".join(f"{name} {settings[name]}" for name, _ in _WRONG_POSTGRES if name in settings)
        yield Finding("durability", Level.OK, shown)


def check_version(seen: StoreEvidence) -> Iterator[Finding]:
    """Warn of SQLite versions that can corrupt a WAL file which several connections write."""
    if seen.inside is None or seen.inside.vitals.backend != "SQLite":
        return
    version = seen.inside.vitals.version
    if tuple(map(int, re.findall(r"\d+", version)))[:3] >= SAFE_SQLITE:
        return
    yield Finding(
        "version",
        Level.ERROR,
        f"SQLite {version} can corrupt a file that several connections write",
        "pip install --upgrade apsw",
    )


def check_damage(seen: StoreEvidence) -> Iterator[Finding]:
    """Report damage that was found."""
    if seen.inside is None:
        return
    for problem in seen.inside.vitals.problems:
        remedy = f"stop the workers, then restore a backup, or salvage what is left: sqlite3 {seen.file} .recover"
        yield Finding("damage", Level.ERROR, f"the file is damaged: {' '.join(problem.split())}", remedy)


def check_file_system(seen: StoreEvidence) -> Iterator[Finding]:
    """Refuse SQLite on a network file system, whose locks and shared memory it cannot rely on."""
    if seen.file is None or seen.file_system not in NETWORKED or not seen.url.startswith("sqlite"):
        return
    yield Finding(
        "file system",
        Level.ERROR,
        f"{seen.file} is on a network file system ({seen.file_system}), where SQLite can lose or corrupt data",
        "move it to a local disk, or share PostgreSQL: export HOLDFAST_DATABASE_URL=postgresql://...",
    )


def check_room(seen: StoreEvidence) -> Iterator[Finding]:
    """Find a disk that is full, or almost."""
    if seen.free_bytes is None or seen.free_bytes >= LITTLE_ROOM:
        return
    left = f"{seen.free_bytes / 1024**2:,.0f} MB are left on the disk of {seen.file}"
    yield Finding(
        "room",
        Level.ERROR if seen.free_bytes < NO_ROOM else Level.WARNING,
        f"{left}; a store that cannot grow can take no step",
        f"make room there: df -h {seen.file}",
    )


def check_wal(seen: StoreEvidence) -> Iterator[Finding]:
    """Find a WAL that could not be emptied for a long time."""
    if seen.inside is None:
        return
    size = int(seen.inside.vitals.settings.get("wal_bytes", "0"))
    if size > LARGE_WAL:
        yield Finding(
            "wal",
            Level.WARNING,
            f"the WAL has grown to {size / 1024**2:,.0f} MB: some process reads from the file and does not stop",
            f"see who has it open, and restart that: fuser -v {seen.file}-wal",
        )


def check_clock(seen: StoreEvidence) -> Iterator[Finding]:
    """Compare this machine's clock with that of a server. Leases and deadlines go by the server's."""
    if seen.inside is None or seen.inside.vitals.backend != "PostgreSQL":
        return
    ahead = (seen.inside.local - seen.inside.now).total_seconds()
    if abs(ahead) < SKEW_SEEN:
        yield Finding("clock", Level.OK, f"this machine and the server agree within {SKEW_SEEN:g} s")
        return
    where = "ahead of" if ahead > 0 else "behind"
    yield Finding(
        "clock",
        Level.WARNING if abs(ahead) >= SKEW_WRONG else Level.NOTE,
        f"this machine is {abs(ahead):,.1f} s {where} the server, by whose clock leases and deadlines go",
        "let both follow a time server: timedatectl set-ntp true",
    )
