"""An agent as a tool of another: a child task with a share of its parent's budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.agent.budget_figures import Books
from holdfast.agent.tool import Tool, check_tool_name
from holdfast.model.budget import Meter
from holdfast.model.errors import InvalidValue
from holdfast.model.message import ToolSpec
from holdfast.model.risk import RiskLevel
from holdfast.model.task import JsonValue

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent


def _request(request: str) -> str:
    """Hand over a piece of work.

    Args:
        request: What has to be done, complete: the other agent knows nothing of this conversation.
    """
    return request


_FORM = Tool(_request, name="request", risk=RiskLevel.READ_ONLY)


@dataclass(frozen=True, slots=True)
class SubAgent:
    """What ``agent.as_tool()`` returns, and what an Agent among the ``tools=`` of another becomes."""

    agent: Agent
    name: str
    description: str
    share: float
    """The part of its parent's remaining budget that it gets when it is called."""

    def __post_init__(self) -> None:
        """Refuse an invalid name or share, and a missing description."""
        check_tool_name(self.name)
        is_number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        if not is_number or not 0 < self.share <= 1:
            raise InvalidValue(f"the share of sub-agent {self.name!r} is {self.share!r}; give more than 0, up to 1")
        if not self.description:
            raise InvalidValue(f"sub-agent {self.name!r} needs a description; its caller has to know what it is for")

    @property
    def spec(self) -> ToolSpec:
        """The sub-agent as the model of its parent sees it."""
        return ToolSpec(name=self.name, description=self.description, parameters=_FORM.spec.parameters)

    def read(self, arguments: str) -> dict[str, JsonValue]:
        """Return the request, as the arguments of a tool. Raises BadArguments."""
        return _FORM.read(arguments)

    def limits(self, books: Books) -> dict[str, int]:
        """Return the limits of the child: its own, but not more than its share of its caller's remaining budget."""
        left = {str(meter): amount for meter in Meter if (amount := books.left(meter)) is not None}
        shares = {meter: max(0, int(amount * self.share)) for meter, amount in left.items()}
        own = {str(meter): limit for meter, limit in self.agent.budget.limits().items()}
        return {
            meter: min(limit for limit in (own.get(meter), shares.get(meter)) if limit is not None)
            for meter in sorted(own.keys() | shares.keys())
        }
