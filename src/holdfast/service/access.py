"""Who calls from outside, and what such a caller may do.

These are the rights of agents and their tools. There is no scope for deciding an approval, answering for a person or
changing a setting: that is for people, and no token an agent holds leads there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from holdfast.model.checks import check_name
from holdfast.model.errors import InvalidValue


class AccessScope(StrEnum):
    """One kind of thing a caller may do."""

    READ = "read"
    """Look at tasks, states, artifacts and memory."""
    WORK = "work"
    """Change the state of tasks, claim and finish them, ask people, remember."""
    SUBMIT = "submit"
    """Submit new tasks, and cancel tasks."""


CALLER = "holdfast.caller"
"""Under which the scope of an HTTP request has the Caller whose token it carried."""

EVERYTHING = frozenset(AccessScope)
READ_ONLY = frozenset({AccessScope.READ})


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who calls from outside."""

    name: str
    """For people: the token's name, or the user whose rights a local server has."""
    scopes: frozenset[AccessScope] = EVERYTHING

    def __post_init__(self) -> None:
        """Refuse a name no history could hold."""
        check_name("the name of a caller", self.name)

    @property
    def actor(self) -> str:
        """How the caller is named in histories: nothing an agent did reads as if a person had done it."""
        return f"mcp:{self.name}"

    def may(self, scope: AccessScope) -> bool:
        """Say whether this is allowed."""
        return scope in self.scopes


def read_scopes(words: Iterable[str]) -> frozenset[AccessScope]:
    """Read the names of scopes. Raises InvalidValue."""
    scopes = set()
    for word in words:
        try:
            scopes.add(AccessScope(word.strip()))
        except ValueError:
            raise InvalidValue(f"{word.strip()!r} is no scope; choose from {', '.join(AccessScope)}") from None
    if not scopes:
        raise InvalidValue(f"no scope is named; choose from {', '.join(AccessScope)}")
    return frozenset(scopes)
