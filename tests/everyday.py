"""What `make test` leaves to `make test-all`: the tests with the mark `full`.

HOLDFAST_FULL=1 runs them too, and so does naming one: `pytest tests/engine/test_x.py::test_y[memory]`.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

FULL: Final = "1" in {os.environ.get("HOLDFAST_FULL"), os.environ.get("HOLDFAST_SOAK")}

_left_out: Final = pytest.StashKey[int]()


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not run every day."""
    if FULL or any("::" in name for name in config.args):
        return
    left = [item for item in items if item.get_closest_marker("full")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = len(left)  # for the process that sums up: xdist does not say it
    config.stash[_left_out] = len(left)


def add_up(config: pytest.Config, node: Any) -> None:  # noqa: ANN401 - a class of xdist's own
    """Take over what a process of xdist left out; all of them leave out the same."""
    left = getattr(node, "workeroutput", {}).get("left_out", 0)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if left and not config.stash.get(_left_out, 0) and reporter is not None:
        reporter.stats["deselected"] = [None] * left
    config.stash[_left_out] = left or config.stash.get(_left_out, 0)


def describe(config: pytest.Config) -> str | None:
    """Say at the end what was not run."""
    left = config.stash.get(_left_out, 0)
    return f"{left} tests were left to `make test-all` (HOLDFAST_FULL=1 runs them here)" if left else None
