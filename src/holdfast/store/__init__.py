"""Where tasks survive: one contract, four stores, opened by URL."""

from __future__ import annotations

from holdfast.store.base import ANYTHING, Capabilities, Listener, StateStore
from holdfast.store.task_store import TaskStore
from holdfast.store.url import make_store, open_store

__all__ = ["ANYTHING", "Capabilities", "Listener", "StateStore", "TaskStore", "make_store", "open_store"]
