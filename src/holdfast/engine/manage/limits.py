"""Limits from any process: set them, and read how they stand."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.model.flow_limit import Limit, LimitUse, refuse_unknown
from holdfast.store.base import StateStore


async def set_limit(store: StateStore, limit: Limit) -> Limit:
    """Set a limit, new or changed. The same again writes nothing: every process may say it when it starts."""
    return limit if limit in await store.limits() else await store.set_limit(limit)


async def limit_uses(store: StateStore, name: str | None = None, *, most: int = 1000) -> list[LimitUse]:
    """Return how the keys of one limit, or of all, stand. A limit without a key in use is listed by its name."""
    limits = [one for one in await store.limits() if name in {None, one.name}]
    uses = await store.limit_uses(name, limit=most)
    in_use = {one.limit.name for one in uses}
    return [*uses, *(LimitUse(key=one.name, limit=one) for one in limits if one.name not in in_use)]


async def check_limits(store: StateStore, keys: Collection[str]) -> None:
    """Raise NotFound, or InvalidValue, if one of these keys belongs to no limit."""
    if keys:
        refuse_unknown(keys, {one.name: one for one in await store.limits()})
