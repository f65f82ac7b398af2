"""The statements of queries.sql by name, with the columns of every record filled in, but not the schema's name yet."""

from __future__ import annotations

from typing import Final

from holdfast.store.records import name_columns
from holdfast.store.sqlfiles import named_queries

QUERIES: Final = {
    name: name_columns(sql) for name, sql in named_queries("holdfast.store.postgres", "queries.sql").items()
}
