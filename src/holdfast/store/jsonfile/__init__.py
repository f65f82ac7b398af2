"""The JSON store: one readable file a task, for one process."""

from holdfast.store.jsonfile.store import JsonStore

__all__ = ["JsonStore"]
