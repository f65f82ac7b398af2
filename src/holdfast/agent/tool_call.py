"""One tool call that a model asked for, as a step with the tool's own terms."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.agent.results import keep_output, read_output, split_result
from holdfast.agent.run_state import ENGINE
from holdfast.agent.tool import BadArguments, Tool, ToolError
from holdfast.agent.transcript import TOOL
from holdfast.engine.api.sync.bridge import Crossing
from holdfast.engine.manage.artifacts import link_to
from holdfast.engine.steps.call import Call, Compensation, Terms, describe
from holdfast.model.agent_state import ArtifactRef
from holdfast.model.approval import Ask
from holdfast.model.canonical import canonical
from holdfast.model.effect import EffectClass
from holdfast.model.errors import HoldfastError, InvalidValue
from holdfast.model.operations import LinkArtifact, Operation
from holdfast.model.patch import StatePatch
from holdfast.model.retry import Retry
from holdfast.model.task import JsonValue
from holdfast.redaction import make_logger

if TYPE_CHECKING:
    from holdfast.agent.run import AgentRun

_log = make_logger(__name__)
_NO_RETRY = Retry(max_attempts=1)
_LONGEST_QUESTION = 300
"""Characters of the arguments in the question itself; the approval also has all of them."""
_NOT_OURS = (SystemExit, GeneratorExit)


class Invocation:
    """One call of one tool."""

    def __init__(self, run: AgentRun, key: str, tool: Tool, arguments: dict[str, JsonValue]) -> None:
        """``arguments`` are plain data, by name, and checked: exactly the model's choice."""
        self._run = run
        self._key = key
        self._tool = tool
        self._arguments = arguments
        self._patches: list[tuple[str, StatePatch]] = []
        self._kept: ArtifactRef | None = None

    def call(self, ask: Ask | None) -> Call:
        """Return the step that makes the call; with ``ask``, a person has to approve it first."""
        tool, terms = self._tool, self._tool.terms
        call = Call(
            self._key,
            self._invoke_async if tool.is_async else self._invoke,
            (self._arguments,),
            tool.retry,
            tool.timeout,
            Any,
            kind=TOOL,
            also=self._consequences,
            accept_result=self._accept_result,
            misfit=partial(tool.misfit, self._arguments),
            limits=tool.limits,
        )
        if terms.effect is EffectClass.ONCE or terms.compensate is not None or ask is not None:
            call.terms = replace(
                terms,
                ask=ask,
                reconcile=self._reconcile if terms.reconcile is not None else None,
                compensate=self._undo(terms),
            )
        return call

    # What the step calls

    def _invoke(self, arguments: dict[str, JsonValue], *, effect_id: str) -> Awaitable[dict[str, JsonValue]]:
        """Call a blocking tool, in its thread; the rest is done on the event loop."""
        named = self._named(arguments, effect_id)
        try:
            returned = self._tool.function(**named)
        except _NOT_OURS as error:
            raise _ended_by(error) from error
        return _Later(partial(self._finish, returned))

    async def _invoke_async(self, arguments: dict[str, JsonValue], *, effect_id: str) -> dict[str, JsonValue]:
        named = self._named(arguments, effect_id)
        try:
            returned = await self._tool.function(**named)
        except asyncio.CancelledError as error:
            running = asyncio.current_task()
            if running is None or running.cancelling():
                raise
            raise _ended_by(error) from error  # this task is not cancelled: something that the tool awaited was
        except _NOT_OURS as error:
            raise _ended_by(error) from error
        return await self._finish(returned)

    def _named(self, arguments: dict[str, JsonValue], effect_id: str) -> dict[str, Any]:
        named = self._restored(arguments)
        if self._tool.takes_effect_id:
            named["effect_id"] = effect_id
        if self._tool.context_parameter is not None:
            named[self._tool.context_parameter] = self._run.tool_context(self._key, effect_id)
        return named

    def _restored(self, arguments: dict[str, JsonValue]) -> dict[str, Any]:
        try:
            return self._tool.restore(arguments)
        except BadArguments as error:
            raise ToolError(str(error)) from error  # the tool was changed since: nothing was called

    async def _finish(self, returned: Any) -> dict[str, JsonValue]:  # noqa: ANN401
        if inspect.isawaitable(returned):
            returned = await returned
        data, patches = split_result(returned)
        return await self._keep(data, [(f"{TOOL}:{self._tool.name}", patch) for patch in patches])

    async def _accept_result(self, given: Any) -> dict[str, JsonValue]:  # noqa: ANN401
        """Convert a result from a reconcile, a person or a late report into what the call would have returned."""
        return await self._keep(await read_output(self._run.attempt, given), [])

    async def _keep(self, data: JsonValue, patches: list[tuple[str, StatePatch]]) -> dict[str, JsonValue]:
        self._patches = patches
        run = self._run
        output, self._kept = await keep_output(run.attempt, self._tool.name, data, inline_bytes=run.agent.inline_bytes)
        observed = await self._observe(data)
        if observed is not None:
            self._patches.append(("observe", observed))
        return output

    async def _observe(self, data: JsonValue) -> StatePatch | None:
        """Call the agent's observer with the result. Its errors must not hide that the call was made."""
        observe = self._run.agent.observe
        if observe is None:
            return None
        try:
            made = observe(self._tool.name, deepcopy(self._arguments), data, self._run.keeper.state)
            observed: object = await made if inspect.isawaitable(made) else made
        except (Exception, SystemExit):  # noqa: BLE001 - whatever the error, the call was made
            _log.exception("task %s: observe= failed on the result of %s", self._run.attempt.task.id, self._key)
            return None
        if isinstance(observed, StatePatch):
            return observed
        if observed is not None:
            _log.error("observe= returned %r for %s; return a StatePatch or None", observed, self._key)
        return None

    def _consequences(self, _output: Any) -> tuple[Operation, ...]:  # noqa: ANN401
        operations: tuple[Operation, ...] = ()
        if self._kept is not None:
            self._patches.insert(0, (ENGINE, StatePatch(add_artifacts=(self._kept,))))
        for author, patch in self._patches:
            try:
                operations += self._run.keeper.change(patch, author=author, step_key=self._key, is_own=author == ENGINE)
            except InvalidValue as error:
                _log.warning("task %s: the patch of %s was left out: %s", self._run.attempt.task.id, self._key, error)
                continue
            # So that a prune sees that it is in use. From the state, which adds the step of the plan.
            added = {artifact.artifact_id for artifact in patch.add_artifacts}
            known = self._run.keeper.state.artifacts
            operations += tuple(LinkArtifact(link_to(one)) for one in known if one.artifact_id in added)
        return operations

    # How it is reconciled and undone

    def _reconcile(self, effect_id: str, arguments: dict[str, JsonValue]) -> Any:  # noqa: ANN401
        assert self._tool.terms.reconcile is not None  # noqa: S101 - or it would not be called
        return self._tool.terms.reconcile(effect_id, *self._tool.restore(arguments).values())

    def _undo(self, terms: Terms) -> Compensation | None:
        if terms.compensate is None:
            return None
        undo, attempt, known = terms.compensate, self._run.attempt, describe(terms.compensate.function)
        retry = replace(undo.retry, give_up_on=(*undo.retry.give_up_on, ToolError))
        crossing = Crossing(attempt.runner.get_loop(), "compensation")

        def call(result: JsonValue, arguments: dict[str, JsonValue], effect_id: str) -> Any:  # noqa: ANN401
            named = {"effect_id": effect_id} if known.takes_effect_id else {}
            return undo.function(result, *self._restored(arguments).values(), **named)

        async def on_the_loop(output: Any, arguments: dict[str, JsonValue], *, effect_id: str) -> Any:  # noqa: ANN401
            return await call(await read_output(attempt, output), arguments, effect_id)

        def in_a_thread(output: Any, arguments: dict[str, JsonValue], *, effect_id: str) -> Any:  # noqa: ANN401
            return call(crossing.wait(read_output(attempt, output)), arguments, effect_id)

        return replace(undo, retry=retry, function=on_the_loop if known.is_async else in_a_thread)


def _ended_by(error: BaseException) -> RuntimeError:
    """Return an exit of a tool as an ordinary error: a tool must not end its worker."""
    return RuntimeError(f"the tool raised {error!r}, which ends a whole process; raise an ordinary error instead")


class _Later:
    """Work that is still to do on the event loop. Unlike a coroutine, it may be dropped: its attempt may be over."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, dict[str, JsonValue]]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, None, dict[str, JsonValue]]:
        return self._begin().__await__()


def refusal(key: str, error: HoldfastError) -> Call:
    """Return the step that records why a call is not made, or has no result."""

    async def refuse() -> None:
        raise error

    return Call(key, refuse, (), _NO_RETRY, None, Any, kind=TOOL)


def record(
    run: AgentRun, key: str, tool: str, value: JsonValue, also: Callable[[], tuple[Operation, ...]] = tuple
) -> Call:
    """Return the step that records a result that is already known: a person's answer, or a sub-agent's result."""
    kept: list[ArtifactRef] = []

    async def known() -> dict[str, JsonValue]:
        output, artifact = await keep_output(run.attempt, tool, value, inline_bytes=run.agent.inline_bytes)
        kept[:] = [] if artifact is None else [artifact]
        return output

    def consequences(_output: object) -> tuple[Operation, ...]:
        patch = StatePatch(add_artifacts=tuple(kept))
        changed = run.keeper.change(patch, author=ENGINE, step_key=key)
        return (*also(), *changed, *(LinkArtifact(link_to(artifact)) for artifact in kept))

    return Call(key, known, (), _NO_RETRY, None, Any, kind=TOOL, also=consequences)


def clear_up(key: str, arguments: dict[str, JsonValue], name: str) -> Call:
    """Return the step that resolves a call of a tool that no longer exists: a person has to decide."""

    async def gone(_arguments: dict[str, JsonValue]) -> None:
        raise ToolError(f"there is no tool {name!r} any more")

    async def accept_result(value: Any) -> dict[str, JsonValue]:  # noqa: ANN401
        return {"value": value}

    terms = Terms(effect=EffectClass.ONCE)
    return Call(key, gone, (arguments,), _NO_RETRY, None, Any, kind=TOOL, terms=terms, accept_result=accept_result)


def approval_question(tool: Tool, arguments: dict[str, JsonValue]) -> str:
    """Return the question to a person before a risky call."""
    shown = ", ".join(f"{name}={canonical(value).decode()}" for name, value in tool.in_order(arguments).items())
    if len(shown) > _LONGEST_QUESTION:
        more = len(shown) - _LONGEST_QUESTION
        shown = f"{shown[:_LONGEST_QUESTION]} ... and {more:,} more characters, which the arguments show"
    return f"May the agent call {tool.name}({shown})?"
