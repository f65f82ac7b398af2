from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.agent_state import (
    AgentState,
    ArtifactRef,
    Budget,
    Constraints,
    HumanInTheLoop,
    KnownFact,
    RiskLevel,
)
from holdfast.model.canonical import canonical
from holdfast.model.errors import InvalidValue

FROM_THE_BOOK = """
{
  "goal": "Deploy service X to staging",
  "constraints": {
    "human_in_the_loop": { "required_for_risk_levels": ["write_local", "external_action"] }
  },
  "budget": {
    "max_steps": 20,
    "max_wall_time_ms": 300000,
    "max_llm_tokens": 200000,
    "max_artifact_bytes_in_context": 8000
  },
  "plan": ["Check current status", "Collect config", "Apply changes", "Verify again"],
  "known_facts": [{ "key": "service", "value": "X", "source": "user" }],
  "open_questions": ["Which namespace should we deploy to?"],
  "artifacts": [{ "artifact_id": "log_123", "type": "tool_result.logs", "summary": "nginx error log", "bytes": 48231 }],
  "risk_flags": ["budget_pressure"]
}
"""


def test_the_documented_state_round_trips_byte_for_byte() -> None:
    value = json.loads(FROM_THE_BOOK)
    state = AgentState.from_json(value)
    assert canonical(state.to_json()) == canonical(value)
    assert state.constraints.requires_approval(RiskLevel.EXTERNAL_ACTION)
    assert not state.constraints.requires_approval(RiskLevel.READ_ONLY)
    assert state.budget == Budget(
        max_steps=20, max_wall_time_ms=300_000, max_llm_tokens=200_000, max_artifact_bytes_in_context=8000
    )
    assert state.artifacts == (
        ArtifactRef(artifact_id="log_123", type="tool_result.logs", summary="nginx error log", bytes=48231),
    )


def test_every_optional_field_round_trips() -> None:
    state = AgentState(
        goal="g",
        constraints=Constraints(human_in_the_loop=HumanInTheLoop(required_for_risk_levels=(RiskLevel.READ_ONLY,))),
        budget=Budget(max_cost=1.25, on_exhausted="ask"),
        plan=("a", "b"),
        known_facts=(
            KnownFact(
                key="k",
                value={"n": [1, None]},
                source="s",
                step="a",
                at=datetime(2026, 1, 1, tzinfo=UTC),
                confidence=0.5,
            ),
            KnownFact(key="nothing", value=None, source="s"),
        ),
        artifacts=(ArtifactRef(artifact_id="i", type="t", summary="", bytes=0, step="a"),),
        current_step="b",
        completed_steps=("a",),
    )
    value = state.to_json()
    assert AgentState.from_json(json.loads(canonical(value))) == state
    assert value["known_facts"][1] == {"key": "nothing", "value": None, "source": "s"}
    assert value["known_facts"][0]["at"] == "2026-01-01T00:00:00+00:00"


def test_only_the_goal_must_be_there() -> None:
    state = AgentState.from_json({"goal": "g"})
    assert state == AgentState(goal="g")
    assert "current_step" not in state.to_json()
    assert "completed_steps" not in state.to_json()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("goal",), 5, "state.goal: expected text, not an int"),
        (("goals",), "x", "state.goals: unknown key"),
        (("budget", "max_step"), 1, "state.budget.max_step: unknown key"),
        (("budget", "max_steps"), "20", "state.budget.max_steps: expected a whole number"),
        (("plan",), "Check", "state.plan: expected a list"),
        (("plan", 2), None, "state.plan[2]: expected text"),
        (("known_facts", 0, "sauce"), "x", "state.known_facts[0].sauce: unknown key"),
        (("known_facts", 0, "confidence"), 1.5, "state.known_facts[0].confidence: expected a number from 0 to 1"),
        (("known_facts", 0, "at"), "yesterday", "state.known_facts[0].at: 'yesterday' is not an ISO 8601 time"),
        (("known_facts", 0, "at"), "2026-01-01T00:00:00", "state.known_facts[0].at: '2026-01-01T00:00:00' has no time"),
        (("artifacts", 0, "bytes"), -1, "state.artifacts[0].bytes: expected a whole number"),
        (("artifacts", 0), "log", "state.artifacts[0]: expected an object"),
        (
            ("constraints", "human_in_the_loop", "required_for_risk_levels", 1),
            "huge",
            "state.constraints.human_in_the_loop.required_for_risk_levels[1]: 'huge' is not a risk level",
        ),
        (("constraints", "humans"), {}, "state.constraints.humans: unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(place: tuple[Any, ...], value: object, message: str) -> None:
    wrong = json.loads(FROM_THE_BOOK)
    holder = wrong
    for part in place[:-1]:
        holder = holder[part]
    holder[place[-1]] = value
    with pytest.raises(InvalidValue) as refused:
        AgentState.from_json(wrong)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("place", [("goal",), ("known_facts", 0, "value"), ("artifacts", 0, "summary")])
def test_what_is_missing_is_named(place: tuple[Any, ...]) -> None:
    wrong = json.loads(FROM_THE_BOOK)
    holder = wrong
    for part in place[:-1]:
        holder = holder[part]
    del holder[place[-1]]
    with pytest.raises(InvalidValue, match=f"{place[-1]}: missing"):
        AgentState.from_json(wrong)


def test_a_fact_holds_a_copy_of_json() -> None:
    value = {"a": [1]}
    fact = KnownFact(key="k", value=value, source="s")
    value["a"].append(2)
    fact.to_json()["value"]["a"].append(3)
    assert fact.value == {"a": [1]}
    with pytest.raises(InvalidValue, match=r"known_facts\.k\.a"):
        KnownFact(key="k", value={"a": {1, 2}}, source="s")


def test_reading_does_not_change_what_is_read() -> None:
    value = json.loads(FROM_THE_BOOK)
    before = copy.deepcopy(value)
    AgentState.from_json(value)
    assert value == before


def test_risk_levels_are_ordered_by_risk_and_not_by_letters() -> None:
    assert RiskLevel.READ_ONLY < RiskLevel.WRITE_LOCAL < RiskLevel.EXTERNAL_ACTION
    assert sorted([RiskLevel.EXTERNAL_ACTION, RiskLevel.READ_ONLY, RiskLevel.WRITE_LOCAL]) == list(RiskLevel)
    assert max(RiskLevel) is RiskLevel.EXTERNAL_ACTION
    assert RiskLevel.WRITE_LOCAL >= "read_only"
    assert RiskLevel.WRITE_LOCAL <= RiskLevel.WRITE_LOCAL
    assert RiskLevel.EXTERNAL_ACTION > RiskLevel.WRITE_LOCAL
    assert RiskLevel("read_only") is RiskLevel.READ_ONLY
