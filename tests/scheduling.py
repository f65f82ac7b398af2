"""Which tests share a process, and so what was made for the first of them.

By their names, as only those reach the process that hands tests out. (The marks of xdist would say it better, but are
not heard since pytest 9.2, which keeps names in another way.)
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

TOGETHER = {
    "tests/test_fresh_clone.py": "one clone",
    "tests/store/contract/test_contract.py::TestPostgres16": "one server",
    "tests/store/contract/test_contract.py::TestPostgres18": "one server of another version",
    "tests/store/postgres/test_access.py": "one crowded database",
    # These start a dozen processes at a time, and are in each other's way side by side.
    "tests/agent_proof/": "crowds of agents",
    "tests/effects_proof/": "crowds of errands",
}


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # it comes without types
    """Hands out what belongs together as one, and everything else one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for start, group in TOGETHER.items() if nodeid.startswith(start)), nodeid)
