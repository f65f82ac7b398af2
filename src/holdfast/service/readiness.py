"""Whether a store would serve a request now: it answers, and has the schema of this version."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.errors import SchemaMismatch
from holdfast.settings import is_postgres
from holdfast.store.sqlfiles import migrations

_NO_TASK: Final = "00000000-0000-0000-0000-000000000000"


async def check_ready(hold: Holdfast) -> None:
    """Raise an error if the store is not ready. The schema is checked too: a newer version may have migrated it."""
    if is_postgres(hold.url):
        schema = (await hold.store.vitals()).schema
        known = _newest("holdfast.store.postgres.migrations")
    else:
        await hold.store.get(_NO_TASK)
        if hold.url.partition(":")[0].lower() != "sqlite":
            return
        from holdfast.store.sqlite.peek import peek  # noqa: PLC0415 - each store when it is asked for

        # Not from its vitals: for those SQLite counts all rows.
        schema = (await asyncio.to_thread(peek, Path(unquote(urlsplit(hold.url).path.removeprefix("/"))))).schema
        known = _newest("holdfast.store.sqlite.migrations")
    if schema != known:
        raise SchemaMismatch(
            f"the store has schema {schema}, and this version of Holdfast speaks {known}; restart the "
            "server with the version that migrated it"
        )


@cache
def _newest(package: str) -> int:
    return migrations(package)[-1].version
