"""SQL that lives in .sql files: named queries, and numbered migrations with checksums."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"^(\d{4})_(\w+)\.sql$")
_OLDEST = re.compile(r"^-- Workers from version (\d+) on may go on\.$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of a schema's history."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """The hash that tells whether an applied migration was edited afterwards."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def oldest(self) -> int | None:
        """The version of the oldest workers that may go on beside it; None: only those that know it may."""
        found = _OLDEST.search(self.sql)
        return None if found is None else int(found[1])


def named_queries(package: str, *file_names: str) -> dict[str, str]:
    """Read the queries of these files by the name in the ``-- name: x`` line above each.

    The comment lines that follow the name say what the query finds and why it is fast; they are sent along, which
    costs nothing and shows up in the database's own logs.
    """
    queries: dict[str, str] = {}
    for file_name in file_names:
        parts = _NAME.split((files(package) / file_name).read_text(encoding="utf-8"))
        for name, sql in zip(parts[1::2], parts[2::2], strict=True):
            if name in queries:
                raise ValueError(f"{package}/{file_name} names the query {name} a second time")
            queries[name] = sql.strip()
    return queries


def migrations(package: str) -> list[Migration]:
    """Read the package's migrations, lowest version first."""
    return sorted(
        (_migration(entry) for entry in files(package).iterdir() if _MIGRATION.match(entry.name)),
        key=lambda migration: migration.version,
    )


def _migration(entry: Traversable) -> Migration:
    version, name = entry.name.removesuffix(".sql").split("_", 1)
    return Migration(int(version), name, entry.read_text(encoding="utf-8"))
