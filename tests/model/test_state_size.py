"""How large a state and a change of it may be: what is refused, and what is shortened instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import AgentState, ArtifactRef, InvalidValue, KnownFact, StatePatch
from holdfast.model.canonical import canonical
from holdfast.model.patch import apply
from holdfast.model.state_size import (
    FACT_BYTES,
    FACTS_BYTES,
    MESSAGE_BYTES,
    PATCH_BYTES,
    REST_BYTES,
    TEXT_BYTES,
    check_growth,
    check_patch_size,
    fit_fact,
    fit_patch,
    freshest,
)

LONG = "x" * (TEXT_BYTES + 1)


def fact(value: Any, key: str = "k") -> KnownFact:  # noqa: ANN401
    return KnownFact(key=key, value=value, source="s")


def artifact(**changed: Any) -> ArtifactRef:  # noqa: ANN401
    return replace(ArtifactRef(artifact_id="a", type="note", summary="s", bytes=1), **changed)


def test_every_part_of_a_patch_has_a_limit() -> None:
    several = tuple(fact("x" * (FACT_BYTES - 100), f"k{number}") for number in range(PATCH_BYTES // FACT_BYTES + 2))
    table: list[tuple[StatePatch, str]] = [
        (StatePatch(replace_plan=("a", LONG)), "replace_plan: 'xxx"),
        (StatePatch(add_questions=(LONG,)), "add_questions: 'xxx"),
        (StatePatch(set_flags=(LONG,)), "set_flags: 'xxx"),
        (StatePatch(complete_steps=(LONG,)), "complete_steps: 'xxx"),
        (StatePatch(current_step=LONG), "current_step takes 8,001 bytes, and 8,000 are allowed"),
        (StatePatch(goal="x" * (MESSAGE_BYTES + 1)), "goal takes 256,001 bytes"),
        (StatePatch(add_artifacts=(artifact(summary=LONG),)), "the summary of an artifact takes"),
        (StatePatch(add_artifacts=(artifact(type=LONG),)), "the type of an artifact takes"),
        (StatePatch(append_facts=(fact("x" * FACT_BYTES),)), "the fact 'k' takes 16,0"),
        (StatePatch(append_facts=(fact(["é" * FACT_BYTES]),)), "the fact 'k' takes 32,0"),
        (StatePatch(append_facts=(fact(1, LONG * 2),)), "the fact 'xxx"),
        (StatePatch(append_facts=several), "the patch takes .*; send it in parts"),
    ]
    for patch, words in table:
        with pytest.raises(InvalidValue, match=words) as refused:
            check_patch_size(patch)
        assert len(str(refused.value)) < 300, "a refusal does not repeat what is too long"
        fitted = fit_patch(patch)
        if patch.append_facts != several:
            check_patch_size(fitted)
    check_patch_size(StatePatch(add_questions=(LONG[1:],), append_facts=several[:3]))
    check_patch_size(StatePatch(resolve_questions=(LONG * 100,), clear_flags=(LONG * 100,)))


@given(st.text() | st.lists(st.text()), st.text(), st.integers(200, 2_000))
def test_a_fact_is_shortened_to_any_size(value: Any, key: str, most: int) -> None:  # noqa: ANN401
    large = fact([value, "\x01é" * 3_000], key * 50)
    fitted = fit_fact(large, most)
    assert len(canonical(fitted.to_json())) <= max(most, 1_200)
    assert "left out" in str(fitted.value)
    small = fact("y")
    assert fit_fact(small, most) is small


def test_the_oldest_facts_leave_a_state_that_is_full() -> None:
    each = 10_000
    most = FACTS_BYTES // each
    state = AgentState(goal="g")
    for number in range(most + 20):
        state = apply(state, StatePatch(append_facts=(fact("x" * each, f"k{number}"),)))
    assert most - 10 < len(state.known_facts) <= most
    assert state.known_facts[-1].key == f"k{most + 19}"
    alone = fact("x" * (FACTS_BYTES + 1))
    assert freshest([fact("y"), alone]) == (alone,), "the newest stays, whatever its size"


def test_what_has_no_end_of_its_own_is_bounded() -> None:
    full = AgentState(
        goal="g", open_questions=tuple(f"{number} {'x' * 7_000}" for number in range(REST_BYTES // 7_000))
    )
    more = apply(full, StatePatch(add_questions=("y" * 7_000, "z" * 7_000)))
    with pytest.raises(InvalidValue, match=r"would take .* bytes, and 1,000,000 are allowed; resolve questions"):
        check_growth(full, more)
    check_growth(more, full)
    check_growth(more, replace(more, known_facts=(fact(1),)))


def test_a_question_that_was_shortened_is_resolved_by_its_whole_text() -> None:
    added = apply(AgentState(goal="g"), fit_patch(StatePatch(add_questions=(LONG,))))
    [shown] = added.open_questions
    assert len(shown) <= TEXT_BYTES
    resolved = fit_patch(StatePatch(resolve_questions=(LONG,)), added.open_questions)
    assert apply(added, resolved).open_questions == ()
    whole = replace(added, open_questions=(LONG,))  # of an old store
    assert apply(whole, fit_patch(StatePatch(resolve_questions=(LONG,)), whole.open_questions)).open_questions == ()
