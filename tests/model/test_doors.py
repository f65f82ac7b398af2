"""Bad input is refused where a record is made, with an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from holdfast.model.approval import Approval
from holdfast.model.commit import Held
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue
from holdfast.model.operations import Move, UntilEvent, UntilTime
from holdfast.model.queries import TaskFilter
from holdfast.model.records import MemoryFact
from holdfast.model.step import Step, StepState
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the point of it

UNMAKEABLE: dict[str, Callable[[], object]] = {
    "deadline without a zone": lambda: NewTask(name="n", deadline=NAIVE),
    "delay without a zone": lambda: NewTask(name="n", available_at=NAIVE),
    "timer without a zone": lambda: UntilTime(key="k", at=NAIVE),
    "retry without a zone": lambda: Move(to=TaskState.PENDING, reason="r", available_at=NAIVE),
    "filter without a zone": lambda: TaskFilter(created_after=NAIVE),
    "state as a string": lambda: Move(to="completed", reason="r"),  # type: ignore[arg-type]
    "number for a name": lambda: NewTask(name=5),  # type: ignore[arg-type]
    "half a priority": lambda: NewTask(name="n", priority=1.5),  # type: ignore[arg-type]
    "endless priority": lambda: NewTask(name="n", priority=2**40),
    "budget below nothing": lambda: NewTask(name="n", budget={"tokens": -1}),
    "claim number 0": lambda: Claim(worker_id="w", number=0, limit=1),
    "one string of names": lambda: Claim(worker_id="w", number=1, limit=1, names="job"),
    "event before the first": lambda: UntilEvent(key="k", channel="c", after=-1),
    "event nowhere": lambda: UntilEvent(key="k", channel="c", after=None),  # type: ignore[arg-type]
    "sequence 0": lambda: Held("w", 1, 0),
    "fence 0": lambda: Held("w", 0, 1),
    "lease of a nanosecond": lambda: NewWorker(lease=1e-9),
    "step time without a zone": lambda: Step(key="k", kind="s", position=1, state=StepState.RUNNING, started_at=NAIVE),
    "fact without a zone": lambda: MemoryFact(entity="e", attribute="a", value=1, created_at=NAIVE),
    "effect without a zone": lambda: Effect(
        effect_id="e", step_key="s", effect_class=EffectClass.ONCE, state=EffectState.ARMED, settle_at=NAIVE
    ),
    "deciders as a string": lambda: Approval(task_id="t", question="?", step_key="s", deciders="abc"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("make", UNMAKEABLE.values(), ids=UNMAKEABLE)
def test_what_cannot_be_made(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidValue):
        make()
