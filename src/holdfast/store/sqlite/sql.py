"""The statements of the .sql files by name, with the columns of every record filled in."""

from __future__ import annotations

import re
from typing import Final

from holdfast.store.records import name_columns
from holdfast.store.sqlfiles import named_queries
from holdfast.store.sqlite.rows import TASK_COLUMNS

_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def _shorten(sql: str) -> str:
    """Leave out comments and indentation: a prepared statement is found by its whole text, each time."""
    return " ".join(_COMMENT.sub("", sql).split())


QUERIES: Final = {
    name: _shorten(name_columns(sql.replace("{task_row}", ", ".join(TASK_COLUMNS))))
    for name, sql in named_queries("holdfast.store.sqlite", "queries.sql", "limits.sql", "turns.sql").items()
}
