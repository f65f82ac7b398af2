from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.checks import check_text
from holdfast.model.errors import InvalidValue
from holdfast.model.ids import new_id
from holdfast.model.task import AGEING, NewTask, rank, search_text
from holdfast.model.transitions import TaskState
from holdfast.model.worker import ALONE_AFTER, POISON_AFTER, NewWorker, after_death

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_ids_are_unique_and_sort_by_the_time_they_were_made() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert [made[:13] for made in ids] == sorted(made[:13] for made in ids)
    assert all(made[14] == "7" and made[19] in "89ab" for made in ids)


def test_ids_of_one_millisecond_sort_by_the_time_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(0, 1_000_000, 250))
    monkeypatch.setattr("holdfast.model.ids.time.time_ns", lambda: 1_700_000_000_000_000_000 + next(moments))
    ids = [new_id() for _ in range(4000)]
    assert ids == sorted(ids)
    assert len({made[:13] for made in ids}) == 1


def test_a_higher_priority_goes_first_until_the_lower_one_has_waited_long_enough() -> None:
    assert rank(NOON, 1) < rank(NOON, 0)
    assert rank(NOON, 1) < rank(NOON - AGEING / 2, 0)
    assert rank(NOON, 1) > rank(NOON - AGEING * 2, 0)


@pytest.mark.parametrize("name", ["", "a\0b", "line\nbreak", "\ud800", "x" * 201])
@pytest.mark.parametrize("field", ["id", "name", "queue", "agent_id", "key"])
def test_names_no_store_could_hold_are_refused_by_name(field: str, name: str) -> None:
    with pytest.raises(InvalidValue, match=f"task {field}"):
        NewTask(**{"name": "work", field: name})  # type: ignore[arg-type]


@given(st.text())
def test_text_is_refused_exactly_when_it_cannot_be_stored(text: str) -> None:
    storable = "\0" not in text and text == text.encode(errors="replace").decode()
    try:
        check_text("note", text)
    except InvalidValue:
        assert not storable
    else:
        assert storable


def test_search_folds_case_and_what_cannot_be_printed() -> None:
    text = search_text(name="Deploy", agent_id="a", key=None, user_input="STRASSE\0\ud800 Ünï")
    assert "strasse" in text
    assert "ünï" in text
    check_text("search", text)


@pytest.mark.parametrize("lease", [0, -1, float("nan"), 86_401])
def test_a_lease_too_short_to_keep_is_refused(lease: float) -> None:
    with pytest.raises(InvalidValue, match="lease"):
        NewWorker(lease=lease)


@pytest.mark.parametrize(
    ("state", "deaths", "lone_deaths", "alone", "expected"),
    [
        (TaskState.RUNNING, 0, 0, False, (TaskState.PENDING, 1, 0)),
        (TaskState.RUNNING, 0, 0, True, (TaskState.PENDING, 1, 1)),
        (TaskState.RUNNING, 9, POISON_AFTER - 1, True, (TaskState.FAILED, 10, POISON_AFTER)),
        (TaskState.RUNNING, 99, POISON_AFTER - 1, False, (TaskState.PENDING, 100, POISON_AFTER - 1)),
        (TaskState.REVIEW, 0, 0, False, (TaskState.REVIEW, 1, 0)),
        (TaskState.PENDING, 0, 0, False, (TaskState.PENDING, 0, 0)),
        (TaskState.WAITING, 5, 2, True, (TaskState.WAITING, 5, 2)),
    ],
)
def test_a_death_condemns_only_a_task_that_ran_alone(
    state: TaskState,
    deaths: int,
    lone_deaths: int,
    alone: bool,
    expected: tuple[TaskState, int, int],
) -> None:
    assert after_death(state, deaths=deaths, lone_deaths=lone_deaths, alone=alone) == expected


def test_a_reboot_alone_makes_no_suspect() -> None:
    assert ALONE_AFTER > 1


def test_a_state_given_as_a_plain_text_is_refused_with_the_name_that_is_meant() -> None:
    with pytest.raises(InvalidValue, match=r"task state is 'running'; use TaskState\.RUNNING$"):
        NewTask(name="work", state="running")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"'in_progress'; use TaskState\.PENDING or TaskState\.RUNNING or"):
        NewTask(name="work", state="in_progress")  # type: ignore[arg-type]
