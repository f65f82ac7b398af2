"""Who says whether an agent's work is good: code, another look by a model, or a person."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.agent.model import Model
from holdfast.engine.context import Context
from holdfast.model.errors import InvalidValue

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent

HUMAN = "human"
Verifier: TypeAlias = Callable[[Any, str], Awaitable[bool | str] | bool | str]

_ASK_JUDGE = """You check the work of an agent. You are given its task and its result.
Accept it only if the result does what the task asks for.{criteria}
Answer with one line: ACCEPT, or REJECT: and the reason, so that the agent can mend it."""


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that looks at the result: ``Agent(verify=Judge(criteria="Names its sources."))``.

    Without a model of its own it uses that of the agent. What it costs is paid from the agent's budget.
    """

    criteria: str = ""
    model: Model | str | None = None


@dataclass(frozen=True, slots=True)
class Human:
    """A person who looks at the result: ``Agent(verify=Human(deciders=("ann",)))``; ``verify="human"`` for anyone."""

    question: str = "Is the work done?"
    deciders: tuple[str, ...] = ()
    expires: float | None = None


def verifier_of(agent: Agent, verify: Verifier | Judge | Human | str) -> Verifier:
    """Return the verifier that the engine calls in review."""
    if verify == HUMAN:
        verify = Human()
    if isinstance(verify, Human):
        return _by_person(verify)
    if isinstance(verify, Judge):
        if not (verify.model is None or isinstance(verify.model, str | Model)):
            raise InvalidValue(f"the judge's model is {verify.model!r}; give a model's name, a Model, or none")
        return _by_model(agent, verify)
    if not callable(verify):
        raise InvalidValue(
            f'verify is {verify!r}; give a function (ctx, result) -> bool or reason, Judge(...), Human(...) or "human"'
        )
    return verify


def _by_person(human: Human) -> Verifier:
    async def ask(ctx: Context, result: str) -> bool:
        # A rejection is raised, and its note becomes the reason.
        await ctx.approval(human.question, details={"result": result}, deciders=human.deciders, expires=human.expires)
        return True

    return ask


def _by_model(agent: Agent, judge: Judge) -> Verifier:
    criteria = f"\n{judge.criteria}" if judge.criteria else ""

    async def ask(ctx: Context, result: str) -> bool | str:
        from holdfast.agent.judging import judged  # noqa: PLC0415 - it knows the agent, which knows this

        said = await judged(agent, judge, ctx, _ASK_JUDGE.format(criteria=criteria), result)
        return read_judgement(said)

    return ask


def read_judgement(said: str) -> bool | str:
    """Return what a judge decided. What is neither yes nor no is no, in its own words."""
    answer = _THOUGHTS.sub("", said).strip()
    for line in answer.splitlines():
        found = _VERDICT.match(line)
        if found is None:
            continue
        if found.group(1).upper() == "ACCEPT":
            return True
        return answer[answer.index(line) + found.end() :].strip(_AROUND) or answer
    return answer or "the judge said nothing"


_AROUND = " \t\n*`'\".:,-"
_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)
_VERDICT = re.compile(r"^[\s*`'\"#]*(ACCEPT|REJECT)(?:ED)?\b", re.IGNORECASE)
