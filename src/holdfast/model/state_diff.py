"""What changed between two AgentStates, in words; used by ``holdfast diff`` and the dashboard."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import canonical, parse
from holdfast.model.limits import child_path
from holdfast.model.task import JsonValue

_MISSING = object()
# In a plan the order has a meaning; in the other lists it only shows when items were added.
_ORDERED = frozenset({"plan"})


class ChangeKind(StrEnum):
    """What happened at a place."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference. ``old`` is None if added, ``new`` is None if removed."""

    path: str
    kind: ChangeKind
    old: JsonValue = None
    new: JsonValue = None

    def to_text(self) -> str:
        """Return it as one line for people."""
        old, new = (canonical(side).decode() for side in (self.old, self.new))
        if self.kind is ChangeKind.ADDED:
            return f"+ {self.path}: {new}"
        if self.kind is ChangeKind.REMOVED:
            return f"- {self.path}: {old}"
        return f"~ {self.path}: {old} -> {new}"

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form for ``--json``."""
        return {"path": self.path, "kind": str(self.kind), "old": self.old, "new": self.new}


def diff(old: AgentState, new: AgentState) -> tuple[Change, ...]:
    """Return the differences in the order of the state's fields; empty if they are equal."""
    changes: list[Change] = []
    one, other = old.to_json(), new.to_json()
    for name in AgentState.__slots__:
        _compare(one.get(name, _MISSING), other.get(name, _MISSING), name, changes)
    return tuple(changes)


def _compare(old: Any, new: Any, path: str, changes: list[Change]) -> None:  # noqa: ANN401 - JSON, or missing
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            _compare(old.get(key, _MISSING), new.get(key, _MISSING), child_path(path, key), changes)
    elif path not in _ORDERED and all(side is _MISSING or isinstance(side, list) for side in (old, new)):
        _compare_lists([] if old is _MISSING else old, [] if new is _MISSING else new, path, changes)
    elif old is _MISSING:
        changes.append(Change(path=path, kind=ChangeKind.ADDED, new=new))
    elif new is _MISSING:
        changes.append(Change(path=path, kind=ChangeKind.REMOVED, old=old))
    elif canonical(old) != canonical(new):
        changes.append(Change(path=path, kind=ChangeKind.CHANGED, old=old, new=new))


def _compare_lists(old: list[Any], new: list[Any], path: str, changes: list[Change]) -> None:
    before, after = (Counter(map(canonical, side)) for side in (old, new))
    changes += [Change(path=path, kind=ChangeKind.REMOVED, old=parse(item)) for item in (before - after).elements()]
    changes += [Change(path=path, kind=ChangeKind.ADDED, new=parse(item)) for item in (after - before).elements()]
