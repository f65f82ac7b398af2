"""The state of an agent, now and then."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import Conflict, Holdfast, InvalidValue, NotFound, TaskState
from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import canonical
from holdfast.model.checkpoints import make_checkpoint
from holdfast.model.operations import Move, SaveCheckpoint, SetAsideCheckpoint
from holdfast.model.patch import StatePatch
from holdfast.model.records import Checkpoint
from holdfast.model.state_diff import ChangeKind
from holdfast.model.step import StepState
from holdfast.model.task import NewTask
from tests.engine.manage.state.support import FIRST, begin, flagged, line, patched, write

EMPTY = AgentState(goal="fix it", plan=("look", "mend"))


async def lived(hold: Holdfast) -> str:
    """Three steps, of which the second brought nothing, and a person in between."""
    task = await begin(hold)
    now = await hold.store.now()
    await write(hold, task, line("look", 1, at=now), patched(flagged("looked"), step="look", reason="saw"))
    await write(hold, task, line("think", 2, at=now - timedelta(hours=1)))
    await write(hold, task, patched(flagged("careful"), author="alice", reason="mind the database"))
    await write(hold, task, line("mend", 3, at=now), patched(flagged("mended"), step="mend"))
    return task


async def test_now(hold: Holdfast) -> None:
    task = await lived(hold)
    assert await hold.state(task) == replace(EMPTY, risk_flags=("looked", "careful", "mended"))


async def test_at_a_version(hold: Holdfast) -> None:
    task = await lived(hold)
    flags = [(await hold.state(task, at=version)).risk_flags for version in (1, 2, 3, 4)]
    assert flags == [(), ("looked",), ("looked", "careful"), ("looked", "careful", "mended")]


async def test_right_after_a_step(hold: Holdfast) -> None:
    task = await lived(hold)
    flags = {key: (await hold.state(task, at=key)).risk_flags for key in ("look", "think", "mend")}
    assert flags == {"look": ("looked",), "think": ("looked",), "mend": ("looked", "careful", "mended")}


async def test_after_a_step_of_an_earlier_round(hold: Holdfast) -> None:
    """By a key that only the earlier round has, and by one that both have."""
    task = await begin(hold)
    await write(hold, task, line("a", 1), patched(flagged("a1"), step="a"))
    await write(hold, task, line("b", 2), patched(flagged("b1"), step="b"))
    await write(hold, task, Move(to=TaskState.FAILED, reason="gave up"))
    await write(hold, task, Move(to=TaskState.PENDING, reason="again", new_round=True))
    await write(hold, task, line("a", 11, round_=2), patched(flagged("a2"), step="a"))
    assert (await hold.state(task, at="b")).risk_flags == ("a1", "b1")
    assert (await hold.state(task, at="a")).risk_flags == ("a1", "b1", "a2")


async def test_how_it_came_about(hold: Holdfast) -> None:
    task = await lived(hold)
    history = await hold.state_history(task)
    listed = [(one.version, one.patch, one.author, one.reason, one.step_key) for one in history]
    assert listed == [
        (1, FIRST, "agent", "", None),
        (2, flagged("looked"), "agent", "saw", "look"),
        (3, flagged("careful"), "alice", "mind the database", None),
        (4, flagged("mended"), "agent", "", "mend"),
    ]
    assert [one.at for one in history] == sorted(one.at for one in history)


async def test_what_changed(hold: Holdfast) -> None:
    task = await lived(hold)
    changed = await hold.state_diff(task, "look", 3)
    assert [(change.kind, change.path, change.new) for change in changed] == [
        (ChangeKind.ADDED, "risk_flags", "careful")
    ]
    assert [change.new for change in await hold.state_diff(task, 1)] == ["looked", "careful", "mended"]
    assert [change.old for change in await hold.state_diff(task, "mend", 3)] == ["mended"]


async def test_a_task_that_is_not_there_and_one_without_a_state(hold: Holdfast) -> None:
    await hold.store.submit([NewTask(id="plain", name="job")])
    await write(hold, "plain", line("look", 1))
    for ask in (hold.state, hold.state_history):
        with pytest.raises(NotFound, match="missing"):
            await ask("missing")
        with pytest.raises(Conflict, match="plain has no AgentState"):
            await ask("plain")
    with pytest.raises(NotFound, match="missing"):
        await hold.state("missing", at="look")
    with pytest.raises(Conflict, match="plain has no AgentState"):
        await hold.state("plain", at="look")


async def test_a_moment_that_never_was(quick: Holdfast) -> None:
    task = await lived(quick)
    await write(quick, task, line("wait", 4, state=StepState.RUNNING))
    for at in (0, 5, -1, "loo", "task"):
        with pytest.raises(NotFound, match=str(at)):
            await quick.state(task, at=at)
    with pytest.raises(InvalidValue):
        await quick.state(task, at=True)
    with pytest.raises(Conflict, match="'wait' of task task is running"):
        await quick.state(task, at="wait")


# Checkpoints are a cache


def marked(version: int, number: int = 1) -> Checkpoint:
    """A good checkpoint that says something no patch said, so that one sees that it was used."""
    state = AgentState(goal=f"from checkpoint {number}")
    return make_checkpoint(state, number=number, version=version, position=1)


async def test_the_newest_one_is_where_the_fold_begins(hold: Holdfast) -> None:
    task = await lived(hold)
    await write(hold, task, SaveCheckpoint(marked(1, 1)), SaveCheckpoint(marked(3, 2)))
    assert await hold.state(task) == AgentState(goal="from checkpoint 2", risk_flags=("mended",))
    assert await hold.state(task, at=3) == AgentState(goal="from checkpoint 2")
    assert await hold.state(task, at=2) == AgentState(goal="from checkpoint 1", risk_flags=("looked",))
    assert await hold.state(task, at="mend") == AgentState(goal="from checkpoint 2", risk_flags=("mended",))


async def test_only_the_patches_after_it_are_read(quick: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await lived(quick)
    await write(quick, task, SaveCheckpoint(marked(3)))
    asked, patches = [], quick.store.patches

    async def watched(task_id: str, *, after: int = 0) -> object:
        asked.append(after)
        return await patches(task_id, after=after)

    monkeypatch.setattr(quick.store, "patches", watched)
    await quick.state(task)
    await quick.state(task, at=2)
    assert asked == [3, 0]


async def test_one_that_holds_more_than_the_past_is_not_used(quick: Holdfast) -> None:
    """Parallel steps: the state after a is not a prefix of the history, and the checkpoint is one with c in it."""
    task = await begin(quick)
    await write(quick, task, line("c", 2), patched(flagged("c"), step="c"), SaveCheckpoint(marked(2)))
    await write(quick, task, line("a", 1), patched(flagged("a"), step="a"))
    assert (await quick.state(task, at="a")) == replace(EMPTY, risk_flags=("a",))


@pytest.mark.parametrize("damage", ["body", "checksum", "schema", "no state", "set aside"])
async def test_a_bad_one_is_passed_over(hold: Holdfast, damage: str) -> None:
    task = await lived(hold)
    good, bad = marked(2, 1), marked(3, 2)
    match damage:
        case "body":
            bad = replace(bad, body=canonical({"goal": "changed on the disk"}))
        case "checksum":
            bad = replace(bad, checksum="")
        case "schema":
            bad = replace(bad, schema=99)
        case "no state":
            bad = replace(make_checkpoint(AgentState(goal=""), number=2, version=3, position=1), body=b"[]")
    await write(hold, task, SaveCheckpoint(good), SaveCheckpoint(bad))
    if damage == "set aside":
        await write(hold, task, SetAsideCheckpoint(number=2, why="looked odd"))
    assert await hold.state(task) == AgentState(goal="from checkpoint 1", risk_flags=("careful", "mended"))


async def test_without_a_good_one_the_patches_alone_tell(quick: Holdfast) -> None:
    task = await lived(quick)
    await write(quick, task, SaveCheckpoint(replace(marked(4), checksum="wrong")))
    assert (await quick.state(task)).risk_flags == ("looked", "careful", "mended")


async def test_two_who_resolved_the_same_question(quick: Holdfast) -> None:
    """Both patches are stored: a state that could not be read any more would be useless."""
    task = await begin(quick)
    await write(quick, task, patched(StatePatch(add_questions=("why?",))))
    for author in ("agent", "alice"):
        await write(quick, task, patched(StatePatch(resolve_questions=("why?",)), author=author))
    assert (await quick.state(task)).open_questions == ()
