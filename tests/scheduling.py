"""Which tests share a process, and so what was made for the first of them, and which come first.

By their names, as only those reach the process that hands tests out. (The marks of xdist would say it better, but are
not heard since pytest 9.2, which keeps names in another way.)
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

TOGETHER = {
    "tests/test_fresh_clone.py": "one clone",
    "tests/store/contract/test_contract.py::TestPostgres16": "one server",
    "tests/store/postgres/test_access.py": "one large database",
    # These start a dozen processes at a time, and are in each other's way side by side.
    "tests/proof/agent/": "many agents",
    "tests/proof/effects/": "many errands",
}

LONG = (
    "tests/test_fresh_clone.py",
    "tests/proof/agent/",
    "tests/proof/effects/",
    "tests/typing/",
    "tests/docs/test_sessions.py",
)
"""What takes long in one piece comes first: at the end, all other processes would wait for it."""


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it comes without types
    """Hands out what belongs together as one, and everything else one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for start, group in TOGETHER.items() if nodeid.startswith(start)), nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:  # noqa: ANN401, ARG002
        """Forget what is done. The original keeps it and counts through all of it after every test."""
        nodeid = self.registered_collections[node][item_index]
        units, scope = self.assigned_work[node], self._split_scope(nodeid)
        units[scope][nodeid] = True
        if all(units[scope].values()):
            del units[scope]
        self._reschedule(node)
