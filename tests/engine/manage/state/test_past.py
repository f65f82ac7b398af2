"""Which patches make up the state right after a step."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.manage.past_state import patches_before
from holdfast.model.records import PatchRecord
from holdfast.model.step import Step, StepState

START = datetime(2026, 1, 1, tzinfo=UTC)


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


def step(key: str, position: int, finished: float = 0, round_: int = 1) -> Step:
    return Step(
        key=key,
        kind="step",
        position=position,
        state=StepState.COMPLETED,
        round=round_,
        finished_at=second(finished),
    )


def patch(version: int, key: str | None, at: float = 0, round_: int = 1) -> PatchRecord:
    return PatchRecord(version=version, body=b"{}", author="a", reason="", at=second(at), step_key=key, round=round_)


def versions(steps: Sequence[Step], records: Sequence[PatchRecord], key: str, round_: int = 1) -> list[int]:
    [at] = [one for one in steps if one.key == key and one.round == round_]
    return [record.version for record in patches_before(steps, records, at)]


def test_a_patch_goes_with_the_step_that_carried_it() -> None:
    steps = [step("a", 1), step("b", 2), step("c", 3)]
    records = [patch(1, None), patch(2, "a"), patch(3, "b"), patch(4, "b"), patch(5, "c")]
    assert versions(steps, records, "a") == [1, 2]
    assert versions(steps, records, "b") == [1, 2, 3, 4]
    assert versions(steps, records, "c") == [1, 2, 3, 4, 5]


def test_of_steps_at_the_same_time_the_place_in_the_journal_counts() -> None:
    """c was over first, a last."""
    steps = [step("a", 1, 3), step("b", 2, 2), step("c", 3, 1)]
    records = [patch(1, None), patch(2, "c", 1), patch(3, "b", 2), patch(4, "a", 3)]
    assert versions(steps, records, "a") == [1, 4]
    assert versions(steps, records, "b") == [1, 3, 4]
    assert versions(steps, records, "c") == [1, 2, 3, 4]


def test_an_outside_patch_counts_if_a_step_of_the_past_came_after_it() -> None:
    steps = [step("a", 1, 10), step("b", 2, 20), step("c", 3, 30)]
    records = [patch(1, None), patch(2, "a", 10), patch(3, None, 15), patch(4, "b", 20), patch(5, "c", 30)]
    assert versions(steps, records, "a") == [1, 2]
    assert versions(steps, records, "b") == [1, 2, 3, 4]


@pytest.mark.parametrize(("finished", "expected"), [(14, [1, 2]), (15, [1, 2, 3]), (16, [1, 2, 3])])
def test_after_a_step_without_a_patch_the_clock_tells(finished: float, expected: list[int]) -> None:
    steps = [step("a", 1, 10), step("b", 2, finished), step("c", 3, 30)]
    records = [patch(1, None), patch(2, "a", 10), patch(3, None, 15), patch(4, "c", 30)]
    assert versions(steps, records, "b") == expected


def test_after_a_step_with_a_patch_the_clock_does_not_tell() -> None:
    """It may stand still, or be another machine's: the version says that this one came later."""
    steps = [step("a", 1, 10), step("b", 2, 20)]
    assert versions(steps, [patch(1, None), patch(2, "a", 10), patch(3, None, 10), patch(4, "b", 20)], "a") == [1, 2]


def test_an_outside_patch_that_was_made_for_a_later_state_does_not_count() -> None:
    """It came after c's patch, and so for a state of which c is a part, although a was over later still."""
    steps = [step("a", 1, 30), step("b", 2, 40), step("c", 3, 10)]
    records = [patch(1, None), patch(2, "c", 10), patch(3, None, 20), patch(4, "a", 30)]
    assert versions(steps, records, "b") == [1, 4]
    assert versions(steps, records, "c") == [1, 2, 3, 4]


def test_the_first_patch_counts_for_the_first_step() -> None:
    """Whatever the clocks say: it is where the state begins."""
    assert versions([step("a", 1, 5)], [patch(1, None, 6)], "a") == [1]


def test_a_key_means_another_step_in_another_round() -> None:
    steps = [step("a", 1), step("b", 2), step("a", 11, round_=2), step("b", 12, round_=2)]
    records = [
        patch(1, None),
        patch(2, "a"),
        patch(3, "b"),
        patch(4, None, 99),
        patch(5, "a", round_=2),
        patch(6, None, 0, round_=2),
        patch(7, "b", round_=2),
    ]
    assert versions(steps, records, "a", 1) == [1, 2]
    assert versions(steps, records, "a", 2) == [1, 2, 3, 4, 5]
    assert versions(steps, records, "b", 2) == [1, 2, 3, 4, 5, 6, 7]


def test_a_patch_of_a_step_that_is_not_in_the_journal_is_placed_as_one_from_outside() -> None:
    steps = [step("a", 1, 10), step("b", 2, 20)]
    records = [patch(1, "begin"), patch(2, "a", 10), patch(3, "lost", 15), patch(4, "b", 20)]
    assert versions(steps, records, "a") == [1, 2]
    assert versions(steps, records, "b") == [1, 2, 3, 4]


@given(st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=12))
def test_of_one_step_after_the_other_the_past_is_what_was_there(lives: list[int | None]) -> None:
    """None is a patch from outside, a number a step with so many patches: the state of then is a prefix."""
    steps: list[Step] = []
    records, there = [patch(1, None)], {}
    for moment, life in enumerate(lives, 1):
        if life is None:
            records.append(patch(len(records) + 1, None, moment))
            continue
        key = f"step-{moment}"
        steps.append(step(key, len(steps) + 1, moment))
        records += [patch(len(records) + 1 + number, key, moment) for number in range(life)]
        there[key] = len(records)
    for key, version in there.items():
        assert versions(steps, records, key) == list(range(1, version + 1))
