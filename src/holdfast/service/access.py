"""Who calls from outside, and what such a caller may do.

These are the rights of agents and their tools. There is no scope for deciding an approval, answering for a person or
changing a setting: that is for people, and no token of an agent allows it.
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
"""The key of the Caller in the ASGI scope of an HTTP request."""

EVERYTHING = frozenset(AccessScope)
READ_ONLY = frozenset({AccessScope.READ})


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller from outside this process: a client of the MCP server or of the HTTP server."""

    name: str
    """For people: the token's name, or the user whose rights a local server has."""
    scopes: frozenset[AccessScope] = EVERYTHING

    def __post_init__(self) -> None:
        """Refuse a name that a history could not hold."""
        check_name("the name of a caller", self.name)

    @property
    def actor(self) -> str:
        """The caller's name in histories. Its prefix shows that an agent acted, not a person."""
        return f"mcp:{self.name}"

    def may(self, scope: AccessScope) -> bool:
        """Return whether the caller has this scope."""
        return scope in self.scopes


def read_scopes(words: Iterable[str]) -> frozenset[AccessScope]:
    """Read the names of scopes. Raises InvalidValue."""
    scopes = set()
    for word in words:
        try:
            scopes.add(AccessScope(word.strip()))
        except ValueError:
            raise InvalidValue(f"{word.strip()!r} is not a scope; choose from {', '.join(AccessScope)}") from None
    if not scopes:
        raise InvalidValue(f"no scope is named; choose from {', '.join(AccessScope)}")
    return frozenset(scopes)
