"""Between tables and documents: which rows make up which file, in a form people can read.

A document holds every row whose first column is its id, table by table. Times are written as ISO 8601, payloads as
the JSON they are.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

import apsw

from holdfast.model.canonical import canonical, parse
from holdfast.model.errors import HoldfastError
from holdfast.model.task import FLAT_KEYS
from holdfast.store.sqlite.rows import micros, moment

FOLDERS = {
    "tasks": (
        *("tasks", "inputs", "outcomes", "transitions", "steps", "effects", "evidence", "patches", "checkpoints"),
        *("approvals", "waits", "joins", "requests", "artifact_links", "reservations", "feed"),
    ),
    "accounts": ("accounts",),
    "pauses": ("pauses",),
    "queues": ("queues", "lanes"),
    "limits": ("limits",),
    "limit_keys": ("limit_keys", "limit_uses"),
    "permits": ("permits",),
    "workers": ("workers",),
    "channels": ("channels", "events"),
    "memory": ("facts", "subjects"),
    "artifacts": ("artifacts",),
    "schedules": ("schedules",),
    "feed": ("feed_settings", "feed"),
}
"""The tables of each folder's documents; the parent row first, because the others refer to it.

What the feed has about a task is in the task's document, and stays there when the task is deleted."""

_FOLDER_OF = {table: folder for folder, tables in FOLDERS.items() for table in tables}

_HAS_KEY_FORMS = 3
_TIME = re.compile(r"(^|_)(at|until)$|^deadline$")
_PLAIN_NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,80}$")


def folder_of(table: str, document_id: str) -> str | None:
    """Return the folder of a row's document; None for a row that is in none."""
    return "tasks" if table == "feed" and document_id else _FOLDER_OF.get(table)


def file_name(folder: str, document_id: str) -> str:
    """Return the relative path of a document.

    An id that some file system could confuse with another (capitals, slashes, great length) is made safe and kept
    apart by a hash; the true id stands inside the file.
    """
    if _PLAIN_NAME.match(document_id):
        return f"{folder}/{document_id}.json"
    mark = hashlib.sha256(document_id.encode()).hexdigest()[:16]
    return f"{folder}/{quote(document_id, safe='')[:60].lower()}~{mark}.json"  # no plain name has a tilde


def render(connection: apsw.Connection, folder: str, document_id: str) -> str | None:
    """Return the document's text, or None where no row of it is left."""
    tables = {}
    for table in FOLDERS[folder]:
        rows = list(_rows(connection, table, document_id))
        if rows:
            tables[table] = rows
    if not tables:
        return None
    try:
        text = json.dumps(tables, ensure_ascii=False, indent=1)
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate in a string of the user
        text = json.dumps(tables, ensure_ascii=True, indent=1)
    return text + "\n"


def insert(connection: apsw.Connection, folder: str, text: str, *, schema: int) -> None:
    """Put a document's rows back into the tables, which have the schema that the document was written with."""
    tables = json.loads(text)
    if folder == "artifacts" and isinstance(tables, dict):
        tables.pop("artifact_chunks", None)  # of a document from before contents had files of their own
    if not isinstance(tables, dict) or not set(tables) <= set(FOLDERS[folder]):
        raise ValueError(f"it holds no {folder}")
    if schema >= _HAS_KEY_FORMS:
        for row in tables.get("tasks", ()):
            # Schema 3 was first reached without a change to the documents, so one may still lack it: keys were flat.
            row.setdefault("key_form", FLAT_KEYS if row.get("fence", 0) > 0 or "steps" in tables else 0)
    for table in FOLDERS[folder]:
        for row in tables.get(table, ()):
            columns = ", ".join(f'"{column}"' for column in row)
            marks = ", ".join("?" * len(row))
            values = [_stored(column, value) for column, value in row.items()]
            connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)  # noqa: S608


def documents_in(connection: apsw.Connection) -> list[tuple[str, str]]:
    """Return the folder and id of every document that the tables make up."""
    found = {
        (folder_of(table, str(document_id)) or "", str(document_id))
        for table in _FOLDER_OF
        for (document_id,) in connection.execute(f"SELECT DISTINCT {_columns(connection, table)[0]} FROM {table}")  # noqa: S608
    }
    return sorted(found)


def _columns(connection: apsw.Connection, table: str) -> list[str]:
    return [str(name) for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]


def _rows(connection: apsw.Connection, table: str, document_id: str) -> Iterator[dict[str, Any]]:
    columns = _columns(connection, table)
    keys = [name for _, name, *_, place in connection.execute(f"PRAGMA table_info({table})") if place]
    order = ", ".join(keys)
    sql = f"SELECT * FROM {table} WHERE {columns[0]} = ? ORDER BY {order}"  # noqa: S608
    for row in connection.execute(sql, (document_id,)):
        yield {column: _shown(column, value) for column, value in zip(columns, row, strict=True)}


def _shown(column: str, value: Any) -> Any:  # noqa: ANN401 - any SQLite value
    if isinstance(value, bytes):
        return _shown_bytes(value)
    if isinstance(value, int) and _TIME.search(column):
        return moment(value).isoformat()
    return value


def _shown_bytes(body: bytes) -> dict[str, Any]:
    try:
        value = parse(body)
        if canonical(value) == body:
            return {"json": value}
    except (HoldfastError, UnicodeDecodeError):
        pass
    return {"base64": base64.b64encode(body).decode()}


def _stored(column: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    match value:
        case {"json": inner}:
            return canonical(inner)
        case {"base64": str(text)}:
            return base64.b64decode(text, validate=True)
        case str(text) if _TIME.search(column):
            return micros(datetime.fromisoformat(text))
        case _:
            return value
