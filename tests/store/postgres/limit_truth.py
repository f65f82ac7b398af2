"""What limits should be, counted again from the rows of tasks and permits."""

from __future__ import annotations

from typing import Any

from tests.store.postgres.support import execute

AT_WORK = "t.owner IS NOT NULL AND t.resting <> t.fence"

_TAKEN = f"""
    SELECT k.key, k.taken + coalesce((SELECT sum(c.change) FROM holdfast.limit_changes c WHERE c.key = k.key), 0),
           (SELECT count(*) FROM holdfast.tasks t WHERE k.key = ANY (t.limits) AND {AT_WORK})
           + (SELECT count(*) FROM holdfast.permits p WHERE p.key = k.key AND p.granted_at IS NOT NULL)
    FROM holdfast.limit_keys k
"""
_SUMS = """
    SELECT k.key, k.calls, (SELECT coalesce(sum(u.calls), 0) FROM holdfast.limit_uses u WHERE u.key = k.key),
           k.tokens, (SELECT coalesce(sum(u.tokens), 0) FROM holdfast.limit_uses u WHERE u.key = k.key)
    FROM holdfast.limit_keys k
"""
WRONG = {
    "taken": f"SELECT * FROM ({_TAKEN}) AS s (key, taken, truth) WHERE taken <> truth",
    "sums": f"SELECT * FROM ({_SUMS}) AS s (key, calls, a, tokens, b) WHERE calls <> a OR tokens <> b",
    "keys without a row": f"""
        SELECT DISTINCT k.key FROM holdfast.tasks t, unnest(t.limits) AS k (key)
        WHERE {AT_WORK} AND NOT EXISTS (SELECT FROM holdfast.limit_keys l WHERE l.key = k.key)""",
    "held although at work": f"SELECT t.id FROM holdfast.tasks t WHERE t.held & 2 = 2 AND {AT_WORK}",
    "neither held nor claimable": """
        SELECT t.id FROM holdfast.tasks t
        WHERE t.limits IS NOT NULL AND t.owner IS NULL AND t.finished_at IS NULL AND t.ready = 0 AND t.held & 2 = 0""",
    "in no line": """
        SELECT t.id FROM holdfast.tasks t
        WHERE t.held & 2 = 2 AND t.finished_at IS NULL AND NOT coalesce(t.waits_for = ANY (t.limits), false)""",
    "held without limits": "SELECT t.id FROM holdfast.tasks t WHERE t.held & 2 = 2 AND t.limits IS NULL",
}


def wrong_books(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return what is not as it has to be; nothing may be under way meanwhile."""
    found = {name: execute(url, query) for name, query in WRONG.items()}
    return {name: rows for name, rows in found.items() if rows}


def at_work(url: str, key: str) -> int:
    """Return how many tasks and steps have a permit of a key now."""
    [(count,)] = execute(
        url,
        f"SELECT (SELECT count(*) FROM holdfast.tasks t WHERE '{key}' = ANY (t.limits) AND {AT_WORK})"
        f" + (SELECT count(*) FROM holdfast.permits p WHERE p.key = '{key}' AND p.granted_at IS NOT NULL)",
    )
    return int(count)
