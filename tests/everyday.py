"""What `make test` leaves to `make test-all`: the tests with the mark `full`.

HOLDFAST_FULL=1 runs them too, and so does naming one: `pytest 'tests/engine/test_x.py::test_y[memory]'`.
Whatever is left out has a sibling that is run: the same test on another store, or in another row; or the file that the
mark names, `pytest.mark.full(instead="tests/cli/demo/test_run.py")`, proves the same at less cost. A test sees to that.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

FULL: Final = "1" in {os.environ.get("HOLDFAST_FULL"), os.environ.get("HOLDFAST_SOAK")}

LONELY: Final = pytest.StashKey[list[str]]()
"""What was left out although nothing like it is run."""

_left_out: Final = pytest.StashKey[int]()


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not run every day."""
    if FULL or any("::" in name for name in config.args):
        return
    left = [item for item in items if item.get_closest_marker("full")]
    if not left:
        return
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if not item.get_closest_marker("full")]
    config.stash[_left_out] = len(left)
    if not config.option.keyword and not config.option.markexpr:
        run = {_kind(item) for item in items}
        files = {item.nodeid.partition("::")[0] for item in items}
        config.stash[LONELY] = sorted(
            item.nodeid for item in left if _kind(item) not in run and _instead(item) not in files
        )


def _kind(item: pytest.Item) -> tuple[str, str]:
    """Name a test without its class and its row: the stores' contract is a class for each store."""
    return str(item.path), getattr(item, "originalname", item.name)


def _instead(item: pytest.Item) -> str | None:
    """Return the file that is run instead of a test, if its mark names one."""
    return next((mark.kwargs["instead"] for mark in item.iter_markers("full") if "instead" in mark.kwargs), None)


def describe(config: pytest.Config) -> str | None:
    """Say at the end what was not run."""
    left = config.stash.get(_left_out, 0)
    return f"{left} tests were left to `make test-all` (HOLDFAST_FULL=1 runs them here)" if left else None
