from __future__ import annotations

import json
from functools import reduce
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.model.agent_state import AgentState, ArtifactRef, Constraints, HumanInTheLoop, KnownFact, RiskLevel
from holdfast.model.budget import Budget
from holdfast.model.canonical import canonical
from holdfast.model.errors import InvalidValue
from holdfast.model.patch import StatePatch, apply

words = st.sampled_from(["a", "b", "c", "d", "Wörter"])
few = st.lists(words, max_size=3).map(tuple)
facts = st.builds(KnownFact, key=words, value=st.none() | st.booleans() | st.integers(0, 2) | words, source=words)
artifacts = st.builds(ArtifactRef, artifact_id=words, type=words, summary=words, bytes=st.integers(0, 9))
budgets = st.builds(Budget, max_steps=st.none() | st.integers(0, 9), max_cost=st.none() | st.integers(0, 9))
constraints = st.builds(
    Constraints,
    human_in_the_loop=st.none()
    | st.builds(HumanInTheLoop, required_for_risk_levels=st.lists(st.sampled_from(RiskLevel)).map(tuple)),
)


@st.composite
def patches(draw: st.DrawFn, *, resolves: bool = False) -> StatePatch:
    set_flags, add_questions = draw(few), draw(few)
    return StatePatch(
        append_facts=draw(st.lists(facts, max_size=3).map(tuple)),
        replace_plan=draw(st.none() | few),
        add_questions=add_questions,
        resolve_questions=tuple(text for text in draw(few) if text not in add_questions) if resolves else (),
        add_artifacts=draw(st.lists(artifacts, max_size=3).map(tuple)),
        set_flags=set_flags,
        clear_flags=tuple(flag for flag in draw(few) if flag not in set_flags),
        current_step=draw(st.none() | words | st.just("")),
        complete_steps=draw(few),
        goal=draw(st.none() | words),
        constraints=draw(st.none() | constraints),
        budget=draw(st.none() | budgets),
    )


states = st.lists(patches(), max_size=3).map(lambda found: reduce(apply, found, AgentState(goal="g")))


@given(states)
def test_a_patch_of_nothing_is_the_identity(state: AgentState) -> None:
    assert apply(state, StatePatch()) == state


@given(states, patches())
def test_saying_it_twice_is_saying_it_once(state: AgentState, patch: StatePatch) -> None:
    once = apply(state, patch)
    assert apply(once, patch) == once


@given(st.lists(patches(), max_size=5))
def test_a_state_is_the_fold_of_its_patches_also_through_json(found: list[StatePatch]) -> None:
    start = AgentState(goal="g")
    straight = reduce(apply, found, start)
    stored = [StatePatch.from_json(json.loads(canonical(patch.to_json()))) for patch in found]
    assert canonical(reduce(apply, stored, start).to_json()) == canonical(straight.to_json())
    # A checkpoint anywhere on the way changes nothing.
    for cut in range(len(found)):
        checkpoint = AgentState.from_json(json.loads(canonical(reduce(apply, found[:cut], start).to_json())))
        assert reduce(apply, found[cut:], checkpoint) == straight


@given(patches(resolves=True))
def test_a_patch_round_trips_and_writes_only_what_it_changes(patch: StatePatch) -> None:
    value = patch.to_json()
    assert canonical(StatePatch.from_json(value).to_json()) == canonical(value)
    assert StatePatch.from_json(value) == patch
    assert patch.is_empty == (value == {})


@given(states, patches(resolves=True))
def test_apply_does_what_the_patch_says(state: AgentState, patch: StatePatch) -> None:
    assume(set(patch.resolve_questions) <= set(state.open_questions))
    before = canonical(state.to_json())
    after = apply(state, patch)
    assert canonical(state.to_json()) == before
    assert set(after.open_questions) == (set(state.open_questions) - set(patch.resolve_questions)) | set(
        patch.add_questions
    )
    assert set(after.risk_flags) == (set(state.risk_flags) - set(patch.clear_flags)) | set(patch.set_flags)
    assert len(set(after.risk_flags)) == len(after.risk_flags)
    assert after.known_facts[: len(state.known_facts)] == state.known_facts
    assert after.plan == (state.plan if patch.replace_plan is None else patch.replace_plan)
    latest = {artifact.artifact_id: artifact for artifact in (*state.artifacts, *patch.add_artifacts)}
    assert {artifact.artifact_id: artifact for artifact in after.artifacts} == latest


def test_a_plan_can_be_emptied_and_a_current_step_cleared() -> None:
    state = AgentState(goal="g", plan=("a",), current_step="a")
    patch = StatePatch(replace_plan=(), current_step="")
    assert patch.to_json() == {"replace_plan": [], "current_step": ""}
    assert not patch.is_empty
    assert apply(state, patch) == AgentState(goal="g")


def test_facts_that_python_takes_for_equal_are_kept_apart() -> None:
    one, true = (KnownFact(key="k", value=value, source="s") for value in (1, True))
    state = apply(AgentState(goal="g"), StatePatch(append_facts=(one, true, one)))
    assert [fact.value for fact in state.known_facts] == [1, True]


def test_an_artifact_with_a_known_id_takes_its_place() -> None:
    first, second, better = (
        ArtifactRef(artifact_id=name, type="t", summary=summary, bytes=1)
        for name, summary in (("x", "old"), ("y", "other"), ("x", "new"))
    )
    state = apply(AgentState(goal="g"), StatePatch(add_artifacts=(first, second)))
    assert apply(state, StatePatch(add_artifacts=(better,))).artifacts == (better, second)


def test_resolving_an_unknown_question_is_refused_with_its_text() -> None:
    with pytest.raises(InvalidValue, match="'Which namespace'"):
        apply(AgentState(goal="g"), StatePatch(resolve_questions=("Which namespace",)))


@pytest.mark.parametrize(
    "both",
    [{"set_flags": ("x",), "clear_flags": ("x",)}, {"add_questions": ("x",), "resolve_questions": ("x",)}],
)
def test_a_patch_that_contradicts_itself_is_refused(both: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="'x'"):
        StatePatch(**both)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"append_fact": []}, r"patch\.append_fact: unknown key"),
        ({"append_facts": [{"key": "k"}]}, r"patch\.append_facts\[0\]\.value: missing"),
        ({"budget": {"max_steps": "1"}}, r"patch\.budget\.max_steps"),
        ([], "patch: expected an object"),
    ],
)
def test_wrong_json_is_refused_with_its_place(value: object, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        StatePatch.from_json(value)


def test_lists_are_kept_as_tuples() -> None:
    fact = KnownFact(key="k", value="v", source="s")
    assert StatePatch(append_facts=[fact], replace_plan=["a"]) == StatePatch(  # type: ignore[arg-type]
        append_facts=(fact,), replace_plan=("a",)
    )
    assert AgentState(goal="g", plan=["a"]) == AgentState(goal="g", plan=("a",))  # type: ignore[arg-type]


def test_a_single_text_is_not_taken_for_its_letters() -> None:
    for name in ("replace_plan", "add_questions", "set_flags", "complete_steps"):
        with pytest.raises(InvalidValue, match=rf"{name} is 'why'; give a tuple, also for one: \('why',\)"):
            StatePatch(**{name: "why"})  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="plan is 'why'"):
        AgentState(goal="g", plan="why")  # type: ignore[arg-type]
