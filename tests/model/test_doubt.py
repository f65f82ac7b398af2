from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from holdfast.model.doubt import Absent, Decision, Doubt, Happened, Unknown
from holdfast.model.effect import Effect, EffectClass, EffectState


def test_the_answers_of_a_tool_are_values() -> None:
    assert Happened("x") == Happened("x") != Happened("y")
    assert Happened() == Happened(None)
    assert Absent() == Absent()
    assert Unknown() == Unknown("") != Unknown("why")
    assert len({Happened("x"), Absent(), Unknown("why")}) == 3
    assert Absent() not in {Happened(), Unknown()}


def test_an_answer_cannot_be_changed() -> None:
    happened, unknown = Happened("x"), Unknown("why")
    with pytest.raises(FrozenInstanceError):
        happened.result = "y"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        unknown.why = "y"  # type: ignore[misc]


def test_they_are_distinguished_by_their_content() -> None:
    def read(answer: Happened | Absent | Unknown) -> str:
        match answer:
            case Happened(result):
                return f"happened: {result}"
            case Absent():
                return "absent"
            case Unknown(why):
                return f"unknown: {why}"

    assert [read(Happened(1)), read(Absent()), read(Unknown("?"))] == ["happened: 1", "absent", "unknown: ?"]


def test_decisions_go_by_plain_words() -> None:
    assert [decision.value for decision in Decision] == ["happened", "absent", "compensate", "abandon", "undone"]
    assert Decision("happened") is Decision.HAPPENED
    assert str(Decision.ABSENT) == "absent"
    with pytest.raises(ValueError, match="perhaps"):
        Decision("perhaps")


def test_a_doubt_before_its_question_offers_no_decision() -> None:
    effect = Effect(effect_id="e", step_key="pay", effect_class=EffectClass.ONCE, state=EffectState.IN_DOUBT)
    doubt = Doubt(effect=effect, task_name="work", question="Did it happen?", arguments=[5], decisions=())
    assert (doubt.evidence, doubt.approval_id) == ((), None)
