"""Names: whatever can be printed can be a name, everywhere, and is only ever itself."""

from __future__ import annotations

import pytest

from holdfast.model.approval import Approval
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.operations import OpenApproval, Reserve, UntilChildren, UntilEvent, WriteEffect, WriteStep
from holdfast.model.queries import TaskFilter
from holdfast.model.records import MemoryFact
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import Attempt, move, new_task, step
from holdfast.testing.contract.base import ContractBase
from holdfast.testing.snapshot import all_tasks

ODD_NAMES = [
    "a/b",
    "../../etc",
    "..",
    ".",
    "C:\\dir",
    "ünï",
    "e\u0301",
    "名前",
    "\U0001f980",
    " leading and trailing ",
    'it\'s "quoted"',
    "100%_",
    "{}[]()*?<>|&;$`!~#",
    "NULL",
    "con",
    "--",
    "%s :name ? $1",
    "x" * 200,
    "ü" * 200,
]

LOOKALIKES = [
    ["task", "Task", "TASK", "task ", " task"],
    ["é", "e\u0301"],
    ["a", "a/", "a/b", "a%2Fb", "a_b", "a b"],
    ["1", "01", "1.0", "1e0"],
    ["ß", "ss"],
]


class NamesContract(ContractBase):
    """Ids, names, keys, queues, channels."""

    @pytest.mark.parametrize("name", ODD_NAMES)
    async def test_an_odd_name_works_everywhere(self, store: StateStore, name: str) -> None:
        """As the name of everything that has one."""
        await store.submit(
            [new_task(name, name=name, agent_id=name, queue=name, key=name, schedule=name, budget={name: 5})]
        )
        await store.register(NewWorker(id=name, label=name))
        [claimed] = await store.claim(Claim(worker_id=name, number=1, limit=1, queues=(name,), names=(name,)))
        task = claimed.task
        named = (task.id, task.name, task.agent_id, task.queue, task.key, task.schedule, task.owner)
        assert named == (name,) * 7
        attempt = Attempt(store, claimed)
        effect = Effect(effect_id=name, step_key=name, effect_class=EffectClass.ONCE, state=EffectState.ARMED)
        await attempt.apply(
            WriteStep(step(name, kind=name)),
            WriteEffect(effect),
            OpenApproval(Approval(task_id=name, question=name, step_key=name, id=name)),
            Reserve(account=name, step_key=name, amounts={name: 1}),
            move(TaskState.WAITING, reason=name, waits=(UntilEvent(key=name, channel=name),)),
        )
        await store.emit(name, name, key=name, actor=name)
        await store.remember(MemoryFact(id=name, entity=name, attribute=name, value=name))
        loaded = await store.load(name)
        assert loaded.task.state is TaskState.PENDING
        assert [found.key for found in loaded.steps] == [name]
        assert [found.effect_id for found in loaded.effects] == [name]
        assert [found.id for found in loaded.approvals] == [name]
        assert [(found.meter, found.reserved) for found in loaded.accounts] == [(name, 1)]
        assert [event.key for event in await store.events(name)] == [name]
        assert [fact.id for fact in await store.recall(name, name)] == [name]
        assert (await store.find(TaskFilter(key=name, queue=name, name=name, agent_id=name))).items == (loaded.task,)

    @pytest.mark.parametrize("names", LOOKALIKES, ids=lambda names: names[0])
    async def test_names_that_look_alike_are_apart(self, store: StateStore, names: list[str]) -> None:
        """No case folding, no normalisation, no path rules."""
        answers = await store.submit([new_task(name, key=name, user_input=name) for name in names])
        assert all(answer.created for answer in answers)
        assert {task.id: task.user_input for task in await all_tasks(store)} == {name: name for name in names}
        for name in names:
            await store.emit(name, name)
            await store.remember(MemoryFact(id=name, entity=name, attribute="a", value=name))
        for name in names:
            assert [event.payload for event in await store.events(name)] == [name]
            assert [fact.value for fact in await store.recall(name)] == [name]

    async def test_listings_are_in_order_of_code_points(self, store: StateStore) -> None:
        """Not as some locale would sort them."""
        names = ["Z", "a", "B", "é", "z", "_", "ä", "10", "9", "\U0001f980", "\uffee"]
        await store.submit([new_task(name) for name in names])
        assert [task.id for task in await all_tasks(store)] == sorted(names)
        for name in names:
            await store.register(NewWorker(id=name))
        assert [worker.id for worker in await store.workers()] == sorted(names)
        claim = Claim(worker_id="a", number=1, limit=len(names), names=("job",))
        assert [claimed.task.id for claimed in await store.claim(claim)] == sorted(names)

    async def test_a_join_may_have_odd_children(self, store: StateStore) -> None:
        """Their ids are data, not syntax."""
        children = ("a,b", 'c"d', "e'f", "{g}")
        await store.submit([new_task(child) for child in children])
        await store.submit([new_task("parent", queue="parents")])
        await store.register(NewWorker(id="w"))
        [parent] = await store.claim(Claim(worker_id="w", number=1, limit=1, queues=("parents",), names=("job",)))
        waits = (UntilChildren(key="join", children=children),)
        await Attempt(store, parent).apply(move(TaskState.WAITING, waits=waits))
        claimed = await store.claim(Claim(worker_id="w", number=2, limit=9, names=("job",)))
        for child in claimed:
            await Attempt(store, child).apply(move(TaskState.COMPLETED))
        task = await store.get("parent")
        assert task is not None
        assert task.state is TaskState.PENDING
