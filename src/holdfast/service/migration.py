"""Setting up a store, or bringing an older one to the schema of this version."""

from __future__ import annotations

from typing import Any

from holdfast.model.queries import Vitals
from holdfast.settings import is_postgres, store_options
from holdfast.store import open_store


async def migrate(url: str, *, schema: str | None) -> Vitals:
    """Bring the store of this URL to the schema of this version, and say how it is then.

    ``schema`` of PostgreSQL is by default what the settings say.
    """
    # Only PostgreSQL waits to be asked; the other stores migrate whenever they are opened.
    named: dict[str, Any] = {} if schema is None else {"schema": schema}
    options: dict[str, Any] = {**store_options(url), "migrate": True, **named} if is_postgres(url) else {}
    async with open_store(url, **options) as store:
        return await store.vitals()
