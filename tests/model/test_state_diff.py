from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.agent_state import AgentState, ArtifactRef, KnownFact
from holdfast.model.budget import Budget
from holdfast.model.state_diff import ChangeKind, diff

OLD = AgentState(
    goal="deploy",
    budget=Budget(max_steps=5),
    plan=("a", "b"),
    known_facts=(KnownFact(key="k", value=1, source="s"),),
    open_questions=("where?",),
    risk_flags=("budget_pressure",),
)


def test_nothing_changed() -> None:
    assert diff(OLD, OLD) == ()


def test_every_kind_of_change_is_one_line() -> None:
    new = AgentState(
        goal="deploy now",
        budget=Budget(max_steps=9, max_llm_tokens=10),
        plan=("b", "a"),
        known_facts=(*OLD.known_facts, KnownFact(key="k", value=True, source="s")),
        artifacts=(ArtifactRef(artifact_id="i", type="t", summary="", bytes=0),),
        risk_flags=OLD.risk_flags,
        current_step="b",
        completed_steps=("a",),
    )
    assert [change.to_text() for change in diff(OLD, new)] == [
        '~ goal: "deploy" -> "deploy now"',
        "~ budget.max_steps: 5 -> 9",
        "+ budget.max_llm_tokens: 10",
        '~ plan: ["a","b"] -> ["b","a"]',
        '+ known_facts: {"key":"k","source":"s","value":true}',
        '- open_questions: "where?"',
        '+ artifacts: {"artifact_id":"i","bytes":0,"summary":"","type":"t"}',
        '+ current_step: "b"',
        '+ completed_steps: "a"',
    ]
    assert diff(OLD, new)[0].to_json() == {"path": "goal", "kind": "changed", "old": "deploy", "new": "deploy now"}


@given(
    *[
        st.builds(
            AgentState,
            goal=st.sampled_from("ab"),
            plan=st.lists(st.sampled_from("ab"), max_size=2).map(tuple),
            risk_flags=st.lists(st.sampled_from("ab"), max_size=2, unique=True).map(tuple),
        )
    ]
    * 2
)
def test_the_way_back_is_the_mirror(old: AgentState, new: AgentState) -> None:
    mirror: Any = {ChangeKind.ADDED: ChangeKind.REMOVED, ChangeKind.REMOVED: ChangeKind.ADDED}
    forth = {(change.path, change.kind, str(change.old), str(change.new)) for change in diff(old, new)}
    back = {
        (change.path, mirror.get(change.kind, change.kind), str(change.new), str(change.old))
        for change in diff(new, old)
    }
    assert forth == back
