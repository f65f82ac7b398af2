"""What every agent may add to a task's state, without holding it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Conflict, Holdfast, InvalidValue, ManualClock, NotFound, TaskState
from holdfast.engine.outside import LeaseToken, add_artifact, patch_state
from holdfast.engine.outside.shared_state import ALLOWED, append, checked_patch
from holdfast.model.approval import Approval
from holdfast.model.commit import Commit, Expect
from holdfast.model.errors import LeaseLost, StateConflict
from holdfast.model.operations import OpenApproval
from holdfast.model.patch import StatePatch
from holdfast.model.task import NewTask
from tests.service.handover.support import Outside, everything, facts, task_of


def patch(**given: Any) -> StatePatch:  # noqa: ANN401
    return checked_patch(given, "mcp:ada")


async def artifact(hold: Holdfast, task_id: str, content: bytes = b"log", **options: Any) -> Any:  # noqa: ANN401
    given: dict[str, Any] = {"name": "df.log", "media_type": None, "summary": "a log", "by": "mcp:ada", "lease": None}
    return await add_artifact(hold, task_id, content, **given | options)


@pytest.mark.parametrize("forbidden", ["goal", "constraints", "budget", "add_artifacts", "approve", ""])
def test_what_is_the_operators_is_in_no_patch(forbidden: str) -> None:
    with pytest.raises(InvalidValue, match=r"a patch cannot hold .*Goal, budget and constraints are the operator's"):
        checked_patch({"set_flags": ["x"], forbidden: {}}, "mcp:ada")


def test_everything_else_is() -> None:
    given: dict[str, object] = {
        "append_facts": [{"key": "k", "value": 1}],
        "replace_plan": ["a"],
        "add_questions": ["q"],
        "resolve_questions": ["r"],
        "set_flags": ["f"],
        "clear_flags": ["g"],
        "current_step": "a",
        "complete_steps": ["b"],
    }
    assert set(given) == ALLOWED
    read = checked_patch(given, "mcp:ada")
    assert set(read.to_json()) == ALLOWED


@pytest.mark.parametrize(
    ("source", "kept"),
    [(None, "mcp:ada"), ("", "mcp:ada"), ("df -h", "mcp:ada/df -h"), ("human:ann", "mcp:ada/human:ann")],
)
def test_facts_are_in_the_callers_name(source: str | None, kept: str) -> None:
    fact: dict[str, object] = {"key": "disk", "value": "92%", "at": "2001-01-01T00:00:00+00:00"}
    [read] = patch(append_facts=[fact | ({} if source is None else {"source": source})]).append_facts
    assert (read.source, read.at) == (kept, None)  # the caller cannot choose its time


@pytest.mark.parametrize("given", [{}, {"append_facts": []}, {"set_flags": []}], ids=repr)
def test_a_patch_that_changes_nothing_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="changes nothing"):
        checked_patch(given, "mcp:ada")


@pytest.mark.parametrize("wrong", ["text", {"key": "k"}, ["text"], [1], [{"value": 1}]], ids=repr)
def test_invalid_facts(wrong: object) -> None:
    with pytest.raises(InvalidValue):
        checked_patch({"append_facts": wrong}, "mcp:ada")


async def test_of_two_patches_for_one_version_one_is_applied(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    answers = await asyncio.gather(
        *(
            patch_state(hold, task.id, patch(set_flags=[name]), version=1, by=f"mcp:{name}", reason="")
            for name in ("ada", "bob", "cat")
        ),
        return_exceptions=True,
    )
    lost = [answer for answer in answers if isinstance(answer, StateConflict)]
    assert len(lost) == 2, answers
    [won] = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert {one.version for one in lost} == {2}
    assert all(one.state == won.state for one in lost)  # they get the current state
    assert won.state == await hold.state(task.id)


async def test_a_patch_takes_nothing_from_the_holder_of_the_task(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await patch_state(hold, task.id, patch(set_flags=["careful"]), version=1, by="mcp:bob", reason="")
    await ada.step(lease, "look", 1, facts(disk="92%"))
    state = await hold.state(task.id)
    assert (state.risk_flags, len(state.known_facts)) == (("careful",), 1)


async def test_many_who_add_at_once_lose_nothing(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease
    await asyncio.gather(
        *(append(hold, task.id, facts(**{f"by-{number}": 1}), by="mcp:bob", lease=None) for number in range(5)),
        *(append(hold, task.id, facts(**{f"held-{number}": 1}), by="mcp:ada", lease=lease) for number in range(5)),
    )
    known = sorted(fact.key for fact in (await hold.state(task.id)).known_facts)
    assert known == sorted([*(f"by-{number}" for number in range(5)), *(f"held-{number}" for number in range(5))])


@pytest.mark.parametrize("held", [False, True])
async def test_a_fact_that_is_known_changes_nothing(
    hold: Holdfast, ada: Outside, clock: ManualClock, held: bool
) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease if held else None
    for _ in range(3):
        clock.advance(1)
        shared = await append(hold, task.id, facts(disk="92%"), by="mcp:ada", lease=lease)
        assert len(shared.state.known_facts) == 1
    newer = await append(hold, task.id, facts(disk="40%"), by="mcp:ada", lease=lease)
    assert [fact.value for fact in newer.state.known_facts] == ["92%", "40%"]


async def test_a_lease_that_is_over_adds_nothing(
    hold: Holdfast, ada: Outside, bob: Outside, clock: ManualClock
) -> None:
    task, other = await ada.offer(), await ada.offer("other")
    lease = (await ada.take(task.id)).lease
    with pytest.raises(InvalidValue, match=f"the lease is on task {task.id}, not on {other.id}"):
        await append(hold, other.id, facts(x=1), by="mcp:ada", lease=lease)
    clock.advance(61)
    await bob.take(task.id)
    before = await everything(hold, task.id)
    with pytest.raises(LeaseLost):
        await append(hold, task.id, facts(x=1), by="mcp:ada", lease=lease)
    with pytest.raises(LeaseLost):
        await artifact(hold, task.id, lease=lease)
    with pytest.raises(LeaseLost):
        await artifact(hold, task.id, lease=LeaseToken(task.id, lease.fence + 1, "guess"))
    assert await everything(hold, task.id) == before


@pytest.mark.parametrize("held", [False, True])
async def test_an_artifact_is_stored_linked_and_mentioned(hold: Holdfast, ada: Outside, held: bool) -> None:
    task = await ada.offer()
    lease = (await ada.take()).lease if held else None
    mention = await artifact(hold, task.id, b"/dev/sdb 92%", lease=lease)
    assert (mention.bytes, mention.summary) == (12, "a log")
    assert await hold.store.read_artifact(mention.artifact_id) == b"/dev/sdb 92%"
    [link] = await hold.store.artifact_links(task.id)
    assert (link.artifact_id, link.name) == (mention.artifact_id, "df.log")
    assert [one.artifact_id for one in (await hold.state(task.id)).artifacts] == [mention.artifact_id]


async def test_the_same_bytes_are_stored_once(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    first, second = await artifact(hold, task.id), await artifact(hold, task.id, name="again.log")
    assert first.artifact_id == second.artifact_id
    assert len((await hold.state(task.id)).artifacts) == 1


async def test_an_artifact_that_is_too_large_leaves_nothing(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    before = await everything(hold, task.id)
    with pytest.raises(InvalidValue):
        await artifact(hold, task.id, b"x" * 101, max_bytes=100)
    assert await everything(hold, task.id) == before


async def test_nothing_is_added_to_what_has_ended(hold: Holdfast, ada: Outside) -> None:
    task = await ada.offer()
    await ada.holding((await ada.take()).lease).finish(1)
    before = await everything(hold, task.id)
    with pytest.raises(Conflict):
        await append(hold, task.id, facts(x=1), by="mcp:ada", lease=None)
    with pytest.raises(Conflict, match=r"is completed: .*nothing was changed"):
        await artifact(hold, task.id)
    with pytest.raises(Conflict):
        await patch_state(hold, task.id, patch(set_flags=["x"]), version=1, by="mcp:ada", reason="")
    assert await everything(hold, task.id) == before


async def test_a_task_that_is_not_there(hold: Holdfast) -> None:
    for call in (
        append(hold, "nowhere", facts(x=1), by="mcp:ada", lease=None),
        artifact(hold, "nowhere"),
        patch_state(hold, "nowhere", patch(set_flags=["x"]), version=0, by="mcp:ada", reason=""),
    ):
        with pytest.raises(NotFound):
            await call


async def test_a_task_whose_agent_keeps_no_state_can_have_artifacts_and_no_facts(hold: Holdfast) -> None:
    await hold.store.submit([NewTask(id="plain", name="deploy")])
    mention = await artifact(hold, "plain")
    assert [link.artifact_id for link in await hold.store.artifact_links("plain")] == [mention.artifact_id]
    assert (await task_of(hold, "plain")).state is TaskState.PENDING
    with pytest.raises(Conflict, match="has no AgentState"):
        await append(hold, "plain", facts(x=1), by="mcp:ada", lease=None)


async def test_a_question_that_a_person_is_asked_meanwhile_stays_open(
    hold: Holdfast, ada: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question stands in the state already, so asking a person changes no version of it."""
    task = await ada.offer()
    await patch_state(hold, task.id, patch(add_questions=["Which disk?"]), version=1, by="mcp:bob", reason="")
    looked = hold.approvals

    async def look_and_be_late(*given: Any, **options: Any) -> Any:  # noqa: ANN401
        seen = await looked(*given, **options)
        monkeypatch.undo()
        approval = Approval(task_id=task.id, kind="question", question="Which disk?", step_key="asked")
        asks = Commit(task_id=task.id, guard=Expect(), operations=(OpenApproval(approval),), actor="agent")
        assert all(verdict.applied for verdict in await hold.store.commit([asks]))
        return seen

    monkeypatch.setattr(hold, "approvals", look_and_be_late)
    version = (await task_of(hold, task.id)).version
    closing = patch(resolve_questions=["Which disk?"])
    with pytest.raises(Conflict, match="a person is still asked 'Which disk\\?'") as refused:
        await patch_state(hold, task.id, closing, version=version, by="mcp:bob", reason="")
    assert not isinstance(refused.value, StateConflict)
    assert (await hold.state(task.id)).open_questions == ("Which disk?",)
    # Another change of the task does not keep a question from being closed.
    other = await ada.offer("More")
    lease = (await ada.take(other.id)).lease
    await patch_state(hold, other.id, patch(add_questions=["Why?"]), version=1, by="mcp:bob", reason="")

    async def look_and_go_on(*given: Any, **options: Any) -> Any:  # noqa: ANN401
        seen = await looked(*given, **options)
        monkeypatch.undo()
        await ada.step(lease, "looked")
        return seen

    monkeypatch.setattr(hold, "approvals", look_and_go_on)
    closed = await patch_state(hold, other.id, patch(resolve_questions=["Why?"]), version=2, by="mcp:bob", reason="")
    assert closed.state.open_questions == ()
