"""What time alone makes true: dead workers, timers, deadlines, delays, expiries. One bounded batch at a time."""

from __future__ import annotations

from holdfast.model.worker import Swept
from holdfast.redaction import make_logger
from holdfast.store.postgres.database import Database
from holdfast.store.postgres.feed import prune_feed
from holdfast.store.postgres.limits import give_turns, promote, sweep_keys
from holdfast.store.postgres.permits import sweep_permits

_log = make_logger(__name__)


async def sweep(db: Database, limit: int) -> Swept:
    """See WorkVerbs."""
    connections = db.open_connections()

    def values() -> tuple[object, ...]:
        at = db.at()  # a clock of the test's: it knows no outages
        return limit, at, connections.answering_for if at is None else None

    [row] = await db.fetch_with_new_values("sweep", values)
    *swept, has_limit_work, next_look, pruned, lacks_turns = row
    recovered, poisoned, woken, due, failed, expired, more, next_due, next_tick, hints = swept
    db.publish(hints)
    if lacks_turns:
        has_limit_work = await give_turns(db, None) or has_limit_work
    if has_limit_work:
        await sweep_permits(db, limit)
        await promote(db)
        await sweep_keys(db)
        [(_, next_look)] = await db.fetch("limit_work", db.at())
    await prune_feed(db)
    return Swept(
        recovered=tuple(recovered),
        poisoned=tuple(poisoned),
        woken=tuple(woken),
        due=due,
        failed=tuple(failed),
        expired=tuple(expired),
        pruned=pruned,
        more=more,
        next_due=min((due for due in (next_due, next_look) if due is not None), default=None),
        next_tick=next_tick,
    )
