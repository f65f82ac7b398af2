"""The short way for everyday Commits: what may take it, and that the result is the same."""

import pytest

from holdfast.model.commit import Commit, Expect, Held, Refusal
from holdfast.model.operations import ApplyPatch, Emit, Operation, ReopenChild, UntilChildren, UntilEvent
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.plain import WORTH_A_TRANSACTION, take_plain
from tests.store.postgres.support import (
    COMPLETE,
    begin,
    break_rule,
    claimed,
    held,
    is_blocked,
    move,
    outside,
    paused,
    step,
)

PATCH = ApplyPatch(body=b"{}", author="test")
TOO_FAR = Step(key="far", kind="step", position=2**63, state=StepState.COMPLETED)
"""No column holds its position."""


def commit(task_id: str, *operations: Operation, owner: str = "worker", actor: str = "worker") -> Commit:
    return Commit(task_id=task_id, guard=Held(owner, 1, 1), operations=operations, actor=actor)


def taken(*commits: Commit) -> list[int]:
    """Say which Commits of a batch take the short way, however few they are."""
    others = [commit(f"others-{number}", step()) for number in range(WORTH_A_TRANSACTION)]
    plain = take_plain([*others, *commits])
    assert plain is not None
    return [position - len(others) for position in plain.held if position >= len(others)]


def test_steps_and_completions_are_plain() -> None:
    assert taken(commit("a", step()), commit("b", step("x"), step("y"), COMPLETE), commit("c", COMPLETE)) == [0, 1, 2]


@pytest.mark.parametrize(
    "operations",
    [
        (),
        (PATCH,),
        (step(), PATCH),
        (move(TaskState.FAILED),),
        (move(TaskState.WAITING, waits=(UntilEvent(key="e", channel="news"),)),),
        (move(TaskState.COMPLETED, error="partly"),),
        (move(TaskState.COMPLETED, counts_attempt=True),),
        (move(TaskState.COMPLETED, new_round=True),),
        (move(TaskState.COMPLETED, feedback="well done"),),
    ],
)
def test_anything_else_is_not(operations: tuple[Operation, ...]) -> None:
    assert taken(commit("a", *operations)) == []


def test_what_comes_from_outside_or_from_another_worker_is_not() -> None:
    outsider = Commit(task_id="a", guard=Expect(), operations=(step(),))
    assert taken(outsider, commit("b", step(), owner="other"), commit("c", step(), actor="other")) == []


def test_two_commits_of_one_task_keep_their_order() -> None:
    assert taken(commit("a", step()), commit("b", step()), commit("a", COMPLETE)) == [1]


def test_a_child_with_a_new_waiter_is_not_plain() -> None:
    wait = move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("child",)),))
    assert taken(commit("child", COMPLETE), commit("parent", wait), commit("stranger", COMPLETE)) == [2]


async def test_the_end_of_a_child_that_its_parent_begins_again_keeps_its_place(store: PostgresStore) -> None:
    """The parent is refused, for the child has not ended yet: among many plain Commits as well."""
    parent, *others = await claimed(store, "a-parent", *(f"t{n:02}" for n in range(WORTH_A_TRANSACTION)))
    await store.submit([NewTask(id="child", name="job", queue="worker", parent_id="a-parent")])
    [child] = await store.claim(Claim(worker_id="worker", number=2, limit=1, queues=("worker",), names=("job",)))
    again = ReopenChild(child_id="child", revision=3, reason="again")
    verdicts = await store.commit(
        [held(parent, 1, again), held(child, 1, COMPLETE), *(held(claim, 1, COMPLETE) for claim in others)]
    )
    assert [verdict.refusal for verdict in verdicts] == [Refusal.CONFLICT, *[None] * (len(others) + 1)]


def test_a_few_beside_others_are_not_worth_a_transaction() -> None:
    few = [commit(str(number), step()) for number in range(WORTH_A_TRANSACTION - 1)]
    assert take_plain(few) is not None
    assert take_plain([*few, commit("a", PATCH)]) is None
    assert take_plain([commit("a", PATCH)]) is None


async def test_each_gets_its_own_answer(store: PostgresStore) -> None:
    """Plain ones, others, one that is refused as late and one that the database itself refuses, in any order."""
    claims = await claimed(store, *(f"t{number:02}" for number in range(WORTH_A_TRANSACTION + 5)))
    late, refused, patched, *plain = claims
    await store.commit([held(late, 1, step())])
    commits = [held(claim, 1, step(), COMPLETE) for claim in plain]
    commits.insert(3, held(patched, 1, PATCH))
    commits.insert(7, held(late, 1, step()))
    commits.insert(11, held(refused, 1, type(step())(TOO_FAR)))
    verdicts = await store.commit(commits)
    assert [verdict.task_id for verdict in verdicts] == [one.task_id for one in commits]
    assert [position for position, verdict in enumerate(verdicts) if verdict.duplicate] == [7]
    assert [position for position, verdict in enumerate(verdicts) if verdict.refusal is not None] == [11]
    assert verdicts[11].refusal is Refusal.CONFLICT
    assert (verdicts[3].version, verdicts[3].owner) == (1, "worker")
    ended = [verdict for verdict in verdicts if verdict.state is TaskState.COMPLETED]
    assert [(one.owner, one.sequence, one.revision) for one in ended] == [(None, 1, 3)] * len(plain)
    assert {lease.task_id for lease in await store.owned("worker")} == {"t00", "t01", "t02"}


async def test_the_end_of_an_awaited_task_wakes_in_the_middle_of_a_batch(store: PostgresStore) -> None:
    """It is not as plain as it looks, and what comes after it in the batch depends on it."""
    parent, child, *others = await claimed(
        store, "a-parent", "b-child", *(f"t{n:02}" for n in range(WORTH_A_TRANSACTION))
    )
    wait = move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("b-child",)),))
    await store.commit([held(parent, 1, wait)])
    verdicts = await store.commit(
        [
            *(held(claim, 1, COMPLETE) for claim in others),
            held(child, 1, COMPLETE),
            outside("a-parent", Emit(channel="news", payload=1), move(TaskState.CANCELLED)),
        ]
    )
    assert all(verdict.applied for verdict in verdicts)
    moves = [(one.from_state, one.to_state) for one in await store.history("a-parent")]
    assert moves[-2:] == [(TaskState.WAITING, TaskState.PENDING), (TaskState.PENDING, TaskState.CANCELLED)]


RULES = {
    "locked before it is looked for": ("commit_plain", "FOR NO KEY UPDATE", ""),
    "looked for at all": ("with_nothing_loose", "j.child_id = e.task_id", "false"),
}


@pytest.mark.parametrize("rule", [None, *RULES])
async def test_a_parent_that_begins_to_wait_while_its_child_is_completed(
    url: str, store: PostgresStore, *, rule: str | None
) -> None:
    """The end waits for the parent's commit, and only then looks for the parents that count on it."""
    if rule is not None:
        break_rule(url, *RULES[rule])
    parent, child = await claimed(store, "a-parent", "b-child")
    wait = move(TaskState.WAITING, waits=(UntilChildren(key="join", children=("b-child",)),))
    async with paused(url) as waiter:
        await waiter.commit([held(parent, 1, wait)])
        ending = begin(store.commit([held(child, 1, COMPLETE)]))
        assert await is_blocked(url, ending)
        await waiter.finish()
    [verdict] = await ending
    assert verdict.state is TaskState.COMPLETED
    task = await store.get("a-parent")
    assert task is not None
    # Without either rule the parent counts on a child that has ended, and sleeps for ever.
    assert task.state is (TaskState.PENDING if rule is None else TaskState.WAITING)


async def test_of_a_lone_submission_nothing_stays_where_its_id_is_taken(store: PostgresStore) -> None:
    """The short way for one task: neither its key nor anything else is left behind."""
    await store.submit([NewTask(id="a", name="job", user_input=1)])
    [answer] = await store.submit([NewTask(id="a", name="job", key="k", user_input=2)])
    assert (answer.task_id, answer.created, answer.conflict) == ("a", False, True)
    [answer] = await store.submit([NewTask(id="b", name="job", key="k", user_input=2)])
    assert (answer.task_id, answer.created) == ("b", True)


async def test_two_lone_submissions_of_one_id_at_once(url: str, store: PostgresStore) -> None:
    """The second fails where the first is not visible yet; nothing of its key stays, and it learns which was first."""
    async with paused(url) as first:
        await first.submit([NewTask(id="a", name="job", user_input=1)])
        second = begin(store.submit([NewTask(id="a", name="job", key="k", user_input=1)]))
        assert await is_blocked(url, second)
        await first.finish()
    [answer] = await second
    assert (answer.task_id, answer.created, answer.conflict) == ("a", False, False)
    [answer] = await store.submit([NewTask(id="b", name="job", key="k")])
    assert (answer.task_id, answer.created) == ("b", True)
