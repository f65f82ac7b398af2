"""Agent: a model, its tools and its limits, as a durable task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias

from holdfast.agent.budget import accounting_of
from holdfast.agent.builtins import BUILT_IN
from holdfast.agent.description import checked_budget, checked_function, checked_list, checked_names, checked_text
from holdfast.agent.model import Model, ModelError, ModelRefused, ModelUnreachable
from holdfast.agent.prices import Price, unpriced
from holdfast.agent.prompt import DEFAULT_CONTEXT_TOKENS, DEFAULT_STATE_BYTES, PromptRoom
from holdfast.agent.results import INLINE_BYTES
from holdfast.agent.run import AgentRun
from holdfast.agent.subagent import SubAgent
from holdfast.agent.tool import Tool, ToolSource
from holdfast.agent.verifier import Human, Judge, Verifier, verifier_of
from holdfast.engine.api.definition import AgentRules, TaskDefinition, check_retry
from holdfast.engine.api.start import START
from holdfast.engine.attempt.attempt import Attempt, attempt_of
from holdfast.engine.attempt.context import Context
from holdfast.engine.attempt.time_limit import TimeLimit
from holdfast.model.agent_state import AgentState, Constraints, HumanInTheLoop
from holdfast.model.budget import Budget
from holdfast.model.checkpoints import Checkpoints
from holdfast.model.checks import check_integer, check_name
from holdfast.model.deadline import as_seconds
from holdfast.model.errors import DuplicateName, InvalidValue, MissingExtra
from holdfast.model.flow_limit import check_keys
from holdfast.model.message import ToolSpec
from holdfast.model.patch import StatePatch
from holdfast.model.retry import Retry
from holdfast.model.risk import RiskLevel
from holdfast.model.task import DEFAULT_QUEUE, JsonValue
from holdfast.redaction import make_logger

Observer: TypeAlias = Callable[
    [str, Mapping[str, JsonValue], JsonValue, AgentState], Awaitable[StatePatch | None] | StatePatch | None
]

MODEL_RETRY = Retry(
    max_attempts=6,
    initial=1.0,
    max_delay=60.0,
    jitter="equal",
    retry_on=(ModelError, TimeoutError, OSError),
    away_on=(ModelUnreachable,),
    max_away=60,
)
"""Six tries within half a minute. While the endpoint cannot be reached, sixty tries within about 45 minutes."""
MODEL_TIMEOUT = timedelta(minutes=11).total_seconds()
"""A little more than the model's own timeout, whose error about a silent endpoint is clearer than a step's timeout."""

MAX_IDENTICAL_CALLS = 10
MAX_SENSELESS_ANSWERS = 5
_log = make_logger(__name__)


class Agent:
    """An agent: ``hold.register(Agent("devops", instructions="...", tools=[check_disk], model="gpt-4o-mini"))``.

    Its task takes a text and returns the model's final answer. Every model call and tool call is a step of the journal.
    So a crash loses only the call under way, and no recorded call is ever made again.
    """

    def __init__(
        self,
        name: str,
        *,
        model: Model | str,
        instructions: str = "",
        tools: Sequence[Tool | ToolSource | Agent | SubAgent | Callable[..., Any]] = (),
        budget: Budget | None = None,
        approve: Sequence[RiskLevel | str] = (),
        deciders: Sequence[str] = (),
        approval_expires: float | timedelta | None = None,
        checkpoint: Checkpoints | str = "every_step",
        verify: Verifier | Judge | Human | str | None = None,
        observe: Observer | None = None,
        prices: Mapping[str, Price] | None = None,
        builtins: bool | Sequence[str] = True,
        description: str = "",
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: Retry | None = None,
        deadline: float | timedelta | None = None,
        model_retry: Retry | None = None,
        model_timeout: float | timedelta = MODEL_TIMEOUT,
        max_output_tokens: int | None = None,
        max_context_tokens: int | None = DEFAULT_CONTEXT_TOKENS,
        max_context_bytes: int | None = None,
        max_identical_calls: int = MAX_IDENTICAL_CALLS,
        max_senseless_answers: int = MAX_SENSELESS_ANSWERS,
        inline_bytes: int = INLINE_BYTES,
        limits: Sequence[str] = (),
    ) -> None:
        """Describe the agent.

        ``model`` is a model's name at an OpenAI-compatible endpoint (``OPENAI_BASE_URL``, ``OPENAI_API_KEY``), or any
        Model. ``tools`` are functions made with ``@tool``, other agents, or the tools of an MCP server (``tools`` in
        ``holdfast.mcp``). ``budget`` limits each task, and ``prices`` are the prices of a model's tokens. ``approve``
        names the risk levels that need a person's approval, ``deciders`` who may give it, and ``approval_expires`` how
        long they have. ``checkpoint`` defines when progress is made durable. ``verify`` checks the result, and
        ``observe(tool, arguments, result, state)`` may turn a tool's result into a StatePatch. ``builtins`` are the
        tools every agent has; name those you want, or False for none. ``limits`` are keys of limits that were set with
        ``hold.limit``: each model call waits for a permit, without a slot. Its tokens are reserved by estimate, and
        settled by what the endpoint reports.
        """
        self.name = check_name("agent name", name)
        self.instructions = checked_text("instructions", instructions)
        self.description = checked_text("description", description)
        self.model = as_model(model)
        self.budget = checked_budget(budget)
        self.prices = dict(prices or {})
        self.constraints = _constraints(approve)
        self.deciders = checked_names("deciders", deciders)
        self.approval_expires = (
            None if approval_expires is None else as_seconds(approval_expires, what="approval_expires")
        )
        self.checkpoints = checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
        self.observe = checked_function("observe", observe)
        self.model_retry = _but_no_refusals(MODEL_RETRY if model_retry is None else check_retry(model_retry))
        # A call that waited this long for its endpoint must not wait as long again in each attempt of the task.
        self._final = (ModelUnreachable,) if model_retry is None else ()
        self.model_timeout = as_seconds(model_timeout, what="model_timeout")
        self.max_output_tokens = max_output_tokens
        self.max_identical_calls = max_identical_calls
        self.max_senseless_answers = max_senseless_answers
        self.inline_bytes = inline_bytes
        self.limits = check_keys(limits)
        self._context = (max_context_tokens, max_context_bytes)
        self._check_numbers()
        given = checked_list("tools", tools)
        self.sources = tuple(each for each in given if isinstance(each, ToolSource))
        own = [_as_tool(each) for each in given if not isinstance(each, ToolSource)]
        self.tools = _by_name([*_built_in(builtins), *own])
        self._definition = self._define(queue=queue, priority=priority, retry=retry, deadline=deadline)
        if verify is not None:
            self._definition.verify(verifier_of(self, verify))
        self._verify = verify
        self._definition.unpriced = self._without_price()
        self._check_prices()

    def __repr__(self) -> str:
        """Return its name, and that of its model."""
        return f"<agent {self.name!r} on {self.model.name}>"

    def task_definition(self) -> TaskDefinition[..., str]:
        """Return its task definition, for ``hold.register``."""
        return self._definition

    def as_tool(self, *, name: str | None = None, description: str | None = None, share: float = 1.0) -> SubAgent:
        """Return it as a tool for another agent. ``share`` is the part of its caller's remaining budget it may use."""
        return SubAgent(self, name or self.name, description or self.description or self.instructions, share)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them."""
        return tuple(tool.spec for tool in self.tools.values())

    async def equipped(self, attempt: Attempt) -> Agent:
        """Return the agent for one attempt: with the tools that its sources offer now."""
        if not self.sources:
            return self
        found = [tool for source in self.sources for tool in await source.find(attempt)]
        equipped = copy(self)
        equipped.tools = _by_name([*self.tools.values(), *(tool for tool in found if not tool.is_spare)])
        for tool in (tool for tool in found if tool.is_spare):
            # A new tool on a server must not make a task fail.
            if equipped.tools.setdefault(tool.name, tool) is not tool:
                _log.warning("agent %r already has a tool called %r; the second one is ignored", self.name, tool.name)
        return equipped

    def room(self, state: AgentState) -> PromptRoom:
        """Return how much the model may be shown."""
        limit = state.budget.max_artifact_bytes_in_context
        tokens, size = self._context
        facts = DEFAULT_STATE_BYTES if limit is None else limit
        return PromptRoom(state_bytes=facts, artifact_bytes=limit, tokens=tokens, bytes=size)

    @property
    def rules(self) -> AgentRules:
        """The rules for each of its tasks."""
        return AgentRules(constraints=self.constraints, budget=self.budget)

    def attend(
        self, attempt: Attempt, text: str, after: str | None = None, start: StatePatch | None = None
    ) -> AgentRun:
        """Return the run of one attempt at its task."""
        return AgentRun(self, attempt, text, after, start or StatePatch())

    def _define(
        self, *, queue: str, priority: int, retry: Retry | None, deadline: float | timedelta | None
    ) -> TaskDefinition[..., str]:
        async def agent(ctx: Context, text: str, *, after: str | None = None, start: JsonValue = None) -> str:
            attempt = attempt_of(ctx)
            given = None if start is None else StatePatch.from_json(start, START)
            equipped = await self.equipped(attempt)
            return await equipped.attend(attempt, text, after, given).run()

        agent.__doc__ = self.description or self.instructions
        definition: TaskDefinition[..., str] = TaskDefinition(
            agent,
            name=self.name,
            queue=queue,
            priority=priority,
            retry=_but_no_refusals(Retry() if retry is None else check_retry(retry), self._final),
            deadline=deadline,
            budget_limits={str(meter): limit for meter, limit in self.budget.limits().items()},
            companions=[tool.agent.task_definition() for tool in self.tools.values() if isinstance(tool, SubAgent)],
            rules=self.rules,
        )
        definition.prepare = self._keep_time
        return definition

    async def _keep_time(self, attempt: Attempt) -> None:
        """Hold an attempt to the wall time that is left. If none is left, ask for more before anything begins."""
        attempt.time_limit = TimeLimit(attempt, asks=self.budget.on_exhausted == "ask")
        await attempt.time_limit.open()
        if attempt.time_limit.is_up:
            accounting = accounting_of(attempt, self, self.model.name)
            await accounting.open()  # a waiting task must have nothing reserved
            await accounting.check_time()

    def _check_numbers(self) -> None:
        for name, least in (
            ("max_identical_calls", 1),
            ("max_senseless_answers", 0),
            ("inline_bytes", 200),
        ):
            check_integer(name, getattr(self, name), lowest=least)
        for name, limit in zip(("max_context_tokens", "max_context_bytes"), self._context, strict=True):
            if limit is not None:
                check_integer(name, limit, lowest=1)
        if self.max_output_tokens is not None:
            check_integer("max_output_tokens", self.max_output_tokens, lowest=1)

    def models(self) -> Iterator[tuple[Agent, str]]:
        """Yield the models it may call, each with its agent: its own, its judge's, and those of its sub-agents."""
        yield self, self.model.name
        if isinstance(self._verify, Judge) and self._verify.model is not None:
            yield self, as_model(self._verify.model).name
        for tool in self.tools.values():
            if isinstance(tool, SubAgent):
                yield from tool.agent.models()

    def _check_prices(self) -> None:
        """Refuse a limit on the cost if a model has no price: the limit would never be reached."""
        if self.budget.max_cost is not None and (unpriced := self._without_price()) is not None:
            raise InvalidValue(f"agent {self.name!r} has a max_cost, and {unpriced}")

    def _without_price(self) -> str | None:
        """Return which of its models has no price, and how to give one; None if all have one."""
        for agent, model in self.models():
            if model not in agent.prices:
                return unpriced(model, agent.name)
        return None


def as_model(model: Model | str) -> Model:
    """Return the model itself, or make one from its name."""
    if isinstance(model, str):
        from holdfast.agent.openai_model import OpenAIModel  # noqa: PLC0415 - needed only for a model's name

        return OpenAIModel(model)
    if not isinstance(model, Model):
        raise InvalidValue(f"model is {model!r}; give a model's name, or an object with name and complete(...)")
    return model


def _but_no_refusals(policy: Retry, others: tuple[type[Exception], ...] = ()) -> Retry:
    return replace(policy, give_up_on=(*policy.give_up_on, ModelRefused, MissingExtra, *others))


def _constraints(approve: Sequence[RiskLevel | str]) -> Constraints:
    if isinstance(approve, str):
        raise InvalidValue(f'approve is {approve!r}; name the levels in a list: approve=["{approve}"]')
    try:
        levels = tuple(RiskLevel(level) for level in approve)
    except ValueError:
        raise InvalidValue(f"approve is {list(approve)!r}; choose from {', '.join(RiskLevel)}") from None
    return Constraints(human_in_the_loop=HumanInTheLoop(required_for_risk_levels=levels)) if levels else Constraints()


def _as_tool(given: Tool | Agent | SubAgent | Callable[..., Any]) -> Tool | SubAgent:
    if isinstance(given, Agent):
        return given.as_tool()
    return given if isinstance(given, Tool | SubAgent) else Tool(given)


def _built_in(chosen: bool | Sequence[str]) -> list[Tool]:  # noqa: FBT001 - what the caller chose
    if isinstance(chosen, bool):
        return list(BUILT_IN.values()) if chosen else []
    unknown = [name for name in chosen if name not in BUILT_IN]
    if unknown or isinstance(chosen, str):
        raise InvalidValue(f"builtins is {chosen!r}; choose from {', '.join(BUILT_IN)}, or True or False")
    return [BUILT_IN[name] for name in chosen]


def _by_name(tools: Sequence[Tool | SubAgent]) -> dict[str, Tool | SubAgent]:
    named: dict[str, Tool | SubAgent] = {}
    for tool in tools:
        if tool.name in named:
            raise DuplicateName(f"two tools are called {tool.name!r}; give one of them another name=")
        named[tool.name] = tool
    return named
