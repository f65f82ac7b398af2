"""The first state of an agent, from options: what ``submit`` and ``run`` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from holdfast.cli.json_input import read_json, read_value
from holdfast.model.agent_state import AgentState
from holdfast.model.errors import InvalidValue

State: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="FILE|JSON",
        help="Agents: the state to begin with, as `holdfast state --json` prints one. Its constraints and budget can "
        "only make the agent's tighter. Without a text, its goal is the text.",
        show_default=False,
    ),
]
Plan: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--plan", metavar="STEP", help="Agents: a step of the plan; give one for each.", show_default=False),
]
Fact: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--fact",
        metavar="KEY=VALUE",
        help="Agents: a fact that is known from the beginning, JSON or any text; give one for each.",
        show_default=False,
    ),
]
ArtifactId: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--artifact",
        metavar="ID",
        help="Agents: a stored artifact to begin with; give one for each.",
        show_default=False,
    ),
]


def read_start(
    state: str | None, plan: Sequence[str] | None, fact: Sequence[str] | None, artifact: Sequence[str] | None
) -> dict[str, Any]:
    """Return the options of ``hold.submit``: only those that were given."""
    given = {
        "state": None if state is None else _state(state),
        "plan": list(plan) if plan else None,
        "facts": dict(map(_fact, fact)) if fact else None,
        "artifacts": list(artifact) if artifact else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def goal_of(start: Mapping[str, Any]) -> str:
    """Return the goal of the state among these options, if there is one."""
    state = start.get("state")
    return state.goal if isinstance(state, AgentState) else ""


def _state(given: str) -> AgentState:
    """Read a state. It may have no goal: the text of the task is the goal then."""
    text = given
    if not given.lstrip().startswith("{"):
        try:
            text = Path(given).read_bytes().decode("utf-8", "surrogateescape")
        except (OSError, ValueError) as error:
            raise InvalidValue(
                f"--state is neither a JSON object nor a file that can be read: {error}; write "
                "'{\"plan\": [...]}', or the path of a file that `holdfast state --json` has written"
            ) from None
    read = read_json(text, what="--state")
    if not isinstance(read, dict):
        raise InvalidValue('--state is not a JSON object; write \'{"plan": ["look", "mend"]}\'')
    return AgentState.from_json({"goal": "", **read}, "--state")


def _fact(given: str) -> tuple[str, Any]:
    key, equals, value = given.partition("=")
    if not equals or not key.strip():
        raise InvalidValue(f"--fact {given!r} is not a fact; write --fact KEY=VALUE")
    return key.strip(), read_value(value, as_text=False)
