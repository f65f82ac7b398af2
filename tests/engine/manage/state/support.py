"""A task with a state, without an agent: lines of its journal and patches, written as an agent would."""

from datetime import datetime

from holdfast import Holdfast
from holdfast.model.canonical import canonical
from holdfast.model.commit import Commit, Expect
from holdfast.model.operations import ApplyPatch, Operation, WriteStep
from holdfast.model.patch import StatePatch
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask

FIRST = StatePatch(goal="fix it", replace_plan=("look", "mend"))


async def begin(hold: Holdfast, task_id: str = "task", *, deadline: datetime | None = None) -> str:
    """Submit a task that no worker claims, with the patch that begins its state."""
    await hold.store.submit([NewTask(id=task_id, name="agent", queue="unserved", deadline=deadline)])
    await write(hold, task_id, patched(FIRST))
    return task_id


async def write(hold: Holdfast, task_id: str, *operations: Operation) -> None:
    [verdict] = await hold.store.commit([Commit(task_id=task_id, guard=Expect(), operations=operations, actor="a")])
    assert verdict.applied, verdict


def patched(patch: StatePatch, *, author: str = "agent", reason: str = "", step: str | None = None) -> ApplyPatch:
    return ApplyPatch(body=canonical(patch.to_json()), author=author, reason=reason, step_key=step)


def line(
    key: str, position: int, *, state: StepState = StepState.COMPLETED, at: datetime | None = None, round_: int = 1
) -> WriteStep:
    return WriteStep(
        Step(key=key, kind="step", position=position, state=state, finished_at=at, output=b"1", round=round_)
    )


def flagged(*flags: str) -> StatePatch:
    """A patch that is easily seen in the state."""
    return StatePatch(set_flags=flags)
