"""The state that an agent outside has a new task begin with.

As with a patch, an agent may not set everything: constraints and budget are the operator's, and facts carry the
caller's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.engine.api.start import Start
from holdfast.engine.outside.facts import fact_of_agent
from holdfast.model.agent_state import AgentState
from holdfast.model.errors import InvalidValue
from holdfast.model.patch import StatePatch
from holdfast.model.task import JsonValue

ALLOWED = ("plan", "known_facts", "open_questions", "artifacts", "risk_flags", "current_step", "completed_steps")
"""What such a state may hold."""


def checked_start(state: Mapping[str, JsonValue] | None, plan: Sequence[str] | None, by: str) -> Start:
    """Read the state that a task is to begin with; ``plan`` takes the place of its own. Raises InvalidValue."""
    given = dict(state or {})
    if refused := sorted(set(given) - set(ALLOWED)):
        raise InvalidValue(
            f"a state to begin with cannot hold {', '.join(refused)}; it may hold {', '.join(ALLOWED)}. Constraints "
            "and budget are the operator's, and the goal is passed beside the state"
        )
    artifacts, facts = given.pop("artifacts", None), given.get("known_facts")
    if isinstance(facts, list):
        given["known_facts"] = [{"source": "", **fact} if isinstance(fact, dict) else fact for fact in facts]
    read = AgentState.from_json({"goal": "", **given})
    named = replace(read, known_facts=tuple(fact_of_agent(fact, by) for fact in read.known_facts))
    return Start(
        state=named if given else None,
        plan=tuple(plan) if plan else None,
        artifacts=None if not artifacts else _artifacts(artifacts),
    )


def read_start(given: JsonValue) -> StatePatch:
    """Read what was stored with a task. It may be anything: every client can submit one."""
    try:
        patch = StatePatch() if given is None else StatePatch.from_json(given)
    except InvalidValue:
        return StatePatch()
    return replace(patch, goal=None, constraints=None, budget=None, resolve_questions=(), clear_flags=())


def _artifacts(given: JsonValue) -> list[Any]:
    listed = given if isinstance(given, list) else [None]
    ids = [one.get("artifact_id") if isinstance(one, dict) else one for one in listed]
    if not all(isinstance(one, str) for one in ids):
        raise InvalidValue("artifacts is a list of artifact ids; add_artifact has given them, or a state names them")
    return ids
