"""The counters of limits in SQLite, compared with the rows that they count."""

from __future__ import annotations

import apsw

_TAKEN = """
SELECT k.key, k.taken,
       (SELECT count(*) FROM tasks t
        WHERE t.limits IS NOT NULL AND t.owner IS NOT NULL AND t.resting <> t.fence
          AND k.key IN (SELECT value FROM json_each(CAST(t.limits AS TEXT))))
     + (SELECT count(*) FROM permits p WHERE p.key = k.key AND p.granted_at IS NOT NULL)
FROM limit_keys k
"""

_USES = """
SELECT k.key, k.calls, k.tokens, coalesce(sum(u.calls), 0), coalesce(sum(u.tokens), 0)
FROM limit_keys k LEFT JOIN limit_uses u ON u.key = k.key GROUP BY k.key
"""

_HELD = """
SELECT id, held, waits_for FROM tasks
WHERE (held & 2 <> 0 AND limits IS NULL)
   OR (held & 2 <> 0 AND owner IS NOT NULL AND resting <> fence)
   OR (limits IS NOT NULL AND owner IS NULL AND finished_at IS NULL AND waits_for IS NULL)
"""
"""Held without limits, or at work; or in no line although it is not at work."""

_FORGOTTEN = """
SELECT k.key FROM limit_keys k
WHERE k.look_at IS NULL
  AND EXISTS (SELECT 1 FROM tasks t
              WHERE t.waits_for = k.key AND t.ready >= 1 AND t.held = 2 AND (t.deadline IS NULL OR t.must_undo))
  AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.waits_for = k.key AND t.ready >= 1 AND t.held = 0)
  AND NOT EXISTS (SELECT 1 FROM pauses p WHERE p.subject IN ('limit:' || k.key, 'limit:' || k.name))
  AND EXISTS (SELECT 1 FROM limits l WHERE l.name = k.name AND (l.concurrency IS NULL OR l.concurrency > k.taken))
"""
"""Keys with a line and a place, of whose line no task can be claimed, and at which no claim and no sweep would look."""


def check_counters(connection: apsw.Connection) -> None:
    """Fail if a counter is not what its rows say, or if a line is forgotten."""
    assert [row for row in connection.execute(_TAKEN) if row[1] != row[2]] == []
    assert [row for row in connection.execute(_USES) if row[1:3] != row[3:]] == []
    assert list(connection.execute(_HELD)) == []
    assert list(connection.execute(_FORGOTTEN)) == []
