"""ServerTool: a tool of an MCP server, as a Tool of an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.agent.tool import BadArguments, Tool, ToolError
from holdfast.mcp.client.catalogue import Listed
from holdfast.mcp.client.declarations import Declared, OnError, tightened
from holdfast.mcp.client.errors import CallFailed
from holdfast.mcp.client.schema import LONGEST_DESCRIPTION, Form
from holdfast.model.canonical import canonical, parse
from holdfast.model.effect import EffectClass
from holdfast.model.errors import CodecError
from holdfast.model.failure import storable
from holdfast.model.message import ToolSpec
from holdfast.model.risk import RiskLevel
from holdfast.model.task import JsonValue

if TYPE_CHECKING:
    from holdfast.mcp.client.answers import CallAnswer

EFFECT_ID = "io.holdfast/effect_id"
"""The key in a request's ``_meta`` under which a server finds the effect id: the same for every try of one call."""

Calling = Callable[[str, Mapping[str, JsonValue], Mapping[str, Any], float], Awaitable["CallAnswer"]]
"""Calls a tool by the server's name for it: with arguments, ``_meta``, and the seconds that the tool has."""


class ServerTool(Tool):
    """One tool. Its function takes the arguments as one dict: a server may give its parameters any names."""

    def __init__(
        self, name: str, listed: Listed, declared: Declared, calling: Calling, *, server: str, is_spare: bool = False
    ) -> None:
        """``name`` is what the model calls it, ``calling`` what reaches ``server``."""
        self._listed, self._calling = listed, calling
        self.is_spare = is_spare
        """Not asked for by name: an agent leaves it out where another tool has the same name."""
        self._errors = OnError(declared.errors)
        risk, effect = tightened(RiskLevel(declared.risk), declared.effect_class, listed.hints)
        said = declared.description or storable(listed.description.strip(), LONGEST_DESCRIPTION)
        super().__init__(
            self._call,
            name=name,
            description=said or f"The tool {listed.name} of the MCP server {server}.",
            risk=risk,
            effect=effect,
            retry=declared.retry,
            timeout=declared.timeout,
            reconcile=declared.reconcile,
            settle=declared.settle,
            absent_on=declared.absent_on,
            compensate=declared.compensate,
            repeat=declared.repeat,
        )
        self._form = Form(name, listed.schema)
        self.spec = ToolSpec(name=self.name, description=self.description, parameters=self._form.shown)

    def read(self, arguments: str) -> dict[str, JsonValue]:
        """See Tool: the arguments that the model passed, unchanged; the server fills in defaults."""
        try:
            chosen = parse(arguments.strip().encode() or b"{}", name="arguments")
            canonical(chosen, name="arguments")
        except (CodecError, UnicodeError) as error:
            raise BadArguments(f"the arguments of {self.name} are wrong: {error}") from None
        if not isinstance(chosen, dict):
            raise BadArguments(f"the arguments of {self.name} are wrong: they have to be a JSON object")
        self._form.check(chosen)
        return chosen

    def restore(self, arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
        """See Tool. They are checked again: the server may list another schema by now."""
        self._form.check(arguments)
        return {"arguments": dict(arguments)}

    async def _call(self, arguments: dict[str, Any], effect_id: str) -> JsonValue:
        answer = await self._calling(self._listed.name, arguments, {EFFECT_ID: effect_id}, self.timeout)
        if not answer.is_error:
            return answer.data
        if self.effect is not EffectClass.ONCE or self._errors is OnError.ABSENT:
            raise ToolError(answer.error)
        if self._errors is OnError.DOUBT:
            raise CallFailed(answer.error)
        # It may have done half of its work: to call that "not happened" would be a guess. It is not a doubt either: the
        # tool has answered, and a person who is asked about every "no such file" soon stops reading the question.
        return {"error": answer.data}
