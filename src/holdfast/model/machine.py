"""The table of a state machine that a user declares: its states, the moves it allows, and its diagram.

It is checked as a whole when it is declared. Only this table decides whether a machine may move from state to state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import count
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar

from holdfast.model.checks import check_name
from holdfast.model.errors import IllegalMove, InvalidValue

D = TypeVar("D")

StateName: TypeAlias = str | Enum
"""The name of a state: text, or a member of an Enum whose values are text."""

LONGEST_NAME: Final = 60
"""Of a machine and of a state: both are prefixes in the names of the steps that run there."""


class Unchanged(Enum):
    """Marks that a machine's data stays as the handler leaves it."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True)
class Goto(Generic[D]):
    """What a handler returns to move on: the next state, with optional new data and an optional reason for the journal.

    A handler with neither may return just the name of the next state.
    """

    state: StateName
    data: D | Unchanged = UNCHANGED
    reason: str = ""
    """Why; if empty, the meaning of the move in the table."""


@dataclass(frozen=True, slots=True)
class Reached(Generic[D]):
    """The result of a machine: the final state it reached, and its data there."""

    state: str
    data: D


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit(Generic[D]):
    """One entry into a state, as the journal records it."""

    number: int
    """Counted from 1, which is the entry into the initial state."""
    state: str
    came_from: str | None
    """None for the first."""
    reason: str
    data: D
    """As it was on entering."""
    entered_at: datetime


class TransitionTable:
    """The states of one machine and the moves between them."""

    __slots__ = ("final", "initial", "machine", "moves")

    def __init__(
        self,
        machine: str,
        *,
        initial: StateName,
        transitions: Mapping[StateName, StateName | Iterable[StateName] | Mapping[StateName, str]],
        final: StateName | Iterable[StateName],
    ) -> None:
        """Reject a table that does not lead to a final state; the error lists everything that is wrong."""
        self.machine = check_short("the name of a machine", machine)
        self.initial = state_name(initial)
        self.final = tuple(_read_targets(final))
        moves = {state_name(source): _read_targets(targets) for source, targets in transitions.items()}
        for state in self.final:
            moves.setdefault(state, {})
        self.moves: Mapping[str, Mapping[str, str]] = MappingProxyType(moves)
        """From each state, the states it may move to and what such a move means ("" if not given)."""
        if problems := self._problems():
            raise InvalidValue(f"machine {machine!r} cannot work: {'; '.join(problems)}")

    @property
    def states(self) -> tuple[str, ...]:
        """All states, in the order of the table."""
        return tuple(self.moves)

    def is_final(self, state: str) -> bool:
        """Return whether the machine ends in this state."""
        return state in self.final

    def check_move(self, source: str, target: str) -> None:
        """Raise IllegalMove unless the table allows this move; the error names the allowed moves."""
        if target in self.moves[source]:
            return
        known = "" if target in self.moves else f" ({target!r} is not one of its states)"
        raise IllegalMove(
            f"machine {self.machine!r} is in {source!r} and cannot go to {target!r}{known}; from there it may go to "
            f"{_listed(self.moves[source])}. Return one of these, or allow the move in transitions="
        )

    def mermaid(self) -> str:
        """Draw the table as a Mermaid state diagram."""
        ids = _diagram_ids(self.states)
        lines = ["stateDiagram-v2"]
        lines += [f'    state "{_escape(state)}" as {own}' for state, own in ids.items() if own != state]
        lines.append(f"    [*] --> {ids[self.initial]}")
        for source, targets in self.moves.items():
            for target, meaning in targets.items():
                label = f": {_escape(meaning)}" if meaning else ""
                lines.append(f"    {ids[source]} --> {ids[target]}{label}")
        lines += [f"    {ids[state]} --> [*]" for state in self.final]
        return "\n".join(lines)

    def _problems(self) -> list[str]:
        # Check which states can be reached only when all states are known.
        return [*self._unknown_states(), *self._wrong_exits()] or [*self._dead_ends()]

    def _unknown_states(self) -> Iterator[str]:
        if self.initial not in self.moves:
            yield f"its initial state {self.initial!r} has no line in transitions="
        for source, targets in self.moves.items():
            for target in targets:
                if target not in self.moves:
                    yield f"{source!r} leads to {target!r}, which is not a state; give it a line, or name it in final="

    def _wrong_exits(self) -> Iterator[str]:
        if not self.final:
            yield "it has no final state and would never end; name one in final="
        for source, targets in self.moves.items():
            if source in self.final and targets:
                yield f"{source!r} is final and has exits to {_listed(targets)}; remove them, or take it out of final="
            if source not in self.final and not targets:
                yield f"{source!r} has no exits; give it some, or name it in final="

    def _dead_ends(self) -> Iterator[str]:
        for state in self._not_among(_reachable({self.initial}, self.moves)):
            yield f"{state!r} cannot be reached from {self.initial!r}; add a move that leads there, or remove it"
        for state in self._not_among(_reachable(self.final, _reversed(self.moves))):
            yield f"from {state!r} no final state can be reached, a task there would never end; add a way out"

    def _not_among(self, states: set[str]) -> Iterator[str]:
        return (state for state in self.moves if state not in states)


def state_name(state: StateName) -> str:
    """Return the name of a state as text."""
    name = state.value if isinstance(state, Enum) else state
    return check_short("the name of a state", name)


def check_short(what: str, name: str) -> str:
    """Reject a name that leaves no room for the names after it."""
    check_name(what, name)
    if len(name) > LONGEST_NAME:
        raise InvalidValue(f"{what} has {len(name)} characters: {name!r}; at most {LONGEST_NAME} fit")
    return name


def _read_targets(targets: StateName | Iterable[StateName] | Mapping[StateName, str]) -> dict[str, str]:
    if isinstance(targets, str | Enum):
        return {state_name(targets): ""}
    if isinstance(targets, Mapping):
        return {state_name(target): str(meaning) for target, meaning in targets.items()}
    return {state_name(target): "" for target in targets}


def _reachable(start: Iterable[str], moves: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(start)
    while ahead:
        state = ahead.pop()
        if state not in found:
            found.add(state)
            ahead.extend(moves[state])
    return found


def _reversed(moves: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    back: dict[str, list[str]] = {state: [] for state in moves}
    for source, targets in moves.items():
        for target in targets:
            back[target].append(source)
    return back


def _listed(states: Iterable[str]) -> str:
    return ", ".join(map(repr, states)) or "nothing: it is final"


_PLAIN_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIAGRAM_WORDS: Final = frozenset(
    {"as", "class", "classDef", "click", "default", "direction", "end", "hide", "note", "scale", "state", "style"}
)
"""Mermaid's own keywords, which cannot be ids."""


_ESCAPES: Final = str.maketrans({"#": "#35;", ";": "#59;", '"': "#quot;"})


def _diagram_ids(states: Iterable[str]) -> dict[str, str]:
    """Return an id for each state that Mermaid accepts: its name, or a number that is not the name of another state."""
    ids = {state: state for state in states if _PLAIN_ID.fullmatch(state) and state not in _DIAGRAM_WORDS}
    numbers = (f"state_{number}" for number in count(1) if f"state_{number}" not in ids)
    return {state: ids.get(state) or next(numbers) for state in states}


def _escape(text: str) -> str:
    """Escape text for a diagram: quotes, semicolons and line ends have a meaning there."""
    return " ".join(text.split()).translate(_ESCAPES)
