"""Access: the service as one caller from outside may use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.errors import HoldfastError
from holdfast.service.access import AccessScope, Caller
from holdfast.service.outside import OutsideAgent
from holdfast.service.service import Service


class NotAllowed(HoldfastError):
    """The caller's token does not allow this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerAccess:
    """What one request is served with."""

    service: Service
    caller: Caller
    claimable: Sequence[str]
    """The names of tasks that agents outside may take."""

    @property
    def agent(self) -> OutsideAgent:
        """What the caller does to tasks, under its name."""
        return self.service.outside(self.caller.actor)

    def check(self, scope: AccessScope) -> None:
        """Refuse what the caller may not do. Raises NotAllowed."""
        if not self.caller.may(scope):
            has = ", ".join(sorted(self.caller.scopes)) or "nothing"
            raise NotAllowed(
                f"{self.caller.name} may not do this: it needs the scope {scope.value!r} and has {has}; "
                "ask the operator of the server for a token that allows it"
            )
