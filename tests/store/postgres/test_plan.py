"""Planning a batch: which Commits may be applied as one set."""

from holdfast.model.commit import Commit, Expect, Held
from holdfast.model.operations import (
    Emit,
    Operation,
    ReopenChild,
    Reserve,
    Rest,
    SubmitChild,
    UntilChildren,
    UntilEvent,
)
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.store.postgres.plan import locks, runs
from tests.store.postgres.support import COMPLETE, move, step

EMIT = Emit(channel="news", payload=1)


def commit(task_id: str, *operations: Operation) -> Commit:
    return Commit(task_id=task_id, guard=Held("worker", 1, 1), operations=operations or (step(),))


def test_steps_of_different_tasks_are_one_run() -> None:
    assert runs([commit("a"), commit("b"), commit("c")]) == [[0, 1, 2]]


def test_the_commits_of_one_task_follow_one_another() -> None:
    assert runs([commit("a"), commit("a"), commit("b"), commit("a"), commit("b")]) == [[0, 2], [1, 4], [3]]


def test_what_touches_others_stands_alone_and_in_order() -> None:
    outsider = Commit(task_id="x", guard=Expect(), operations=(step(),))
    assert runs([commit("a"), commit("b", EMIT), commit("c"), outsider, commit("d")]) == [[0], [1], [2], [3], [4]]


def test_an_account_of_ones_own_is_ones_own() -> None:
    own = Reserve(account="a", step_key="s", amounts={})
    shared = Reserve(account="team", step_key="s", amounts={})
    assert runs([commit("a", own), commit("b")]) == [[0, 1]]
    assert runs([commit("a", shared), commit("b")]) == [[0], [1]]


def test_the_end_of_a_task_keeps_its_order() -> None:
    """It may wake a task that another Commit of the batch is about."""
    batch = [commit("a"), commit("a"), commit("b", COMPLETE), commit("c"), commit("d", COMPLETE)]
    assert runs(batch) == [[0], [1, 2, 3, 4]]


def test_waiting_for_children_stands_alone_but_for_events_does_not() -> None:
    children = move(TaskState.WAITING, waits=(UntilChildren(key="j", children=("x",)),))
    event = move(TaskState.WAITING, waits=(UntilEvent(key="e", channel="news"),))
    assert runs([commit("a", children), commit("b")]) == [[0], [1]]
    assert runs([commit("a", event), commit("b")]) == [[0, 1]]


def test_everything_is_locked_before_anything_is_read() -> None:
    children = move(TaskState.WAITING, waits=(UntilChildren(key="j", children=("x", "y")),))
    event = move(TaskState.WAITING, waits=(UntilEvent(key="e", channel="replies"),))
    child = SubmitChild(NewTask(name="job", key="k"))
    found = locks([commit("a", children), commit("b", event, EMIT), commit("c", child, COMPLETE)])
    assert found.tasks == {"a", "b", "c", "x", "y"}
    assert found.ending == {"c"}
    assert (found.emits, found.listens) == ({"news"}, {"replies"})
    assert found.keys == [("job", "k")]


def test_a_child_that_is_begun_again_is_locked_and_the_commit_stands_alone() -> None:
    again = commit("a", ReopenChild(child_id="x", revision=1, reason=""))
    assert runs([commit("b"), again, commit("c")]) == [[0], [1], [2]]
    assert locks([again]).tasks == {"a", "x"}


def test_a_task_that_works_again_has_its_limits_locked_and_the_commit_stands_alone() -> None:
    """It may get a permit that another Commit of the batch gives back, or the other way round."""
    rests, works = commit("a", Rest(resting=True)), commit("b", Rest(resting=False))
    assert runs([rests, works, commit("c")]) == [[0], [1], [2]]
    assert locks([rests, works]).wakes == {"b"}
