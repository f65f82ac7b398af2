"""Names: any printable text can be a name, everywhere, and equals only itself."""

from __future__ import annotations

import random
import string

import pytest

from holdfast.model.approval import Approval
from holdfast.model.checks import MAX_KEY_BYTES
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import InvalidValue
from holdfast.model.ids import new_id
from holdfast.model.operations import (
    ApplyPatch,
    OpenApproval,
    Reserve,
    Settle,
    SubmitChild,
    UntilChildren,
    UntilEvent,
    UntilWoken,
    WriteEffect,
    WriteStep,
)
from holdfast.model.queries import TaskFilter
from holdfast.model.records import MemoryFact
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Claim, NewWorker
from holdfast.store.base import StateStore
from holdfast.testing.contract._support import (
    CANCEL,
    Attempt,
    apply_outside,
    move,
    new_task,
    row,
    running_task,
    step,
    stored,
)
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

    async def test_an_odd_name_works_everywhere(self, store: StateStore) -> None:
        """As the name of everything that has one."""
        for name in ODD_NAMES:
            with row(name):
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
                assert (await store.find(TaskFilter(key=name, queue=name, name=name, agent_id=name))).items == (
                    loaded.task,
                )

    async def test_a_key_of_a_journal_may_be_as_long_as_an_index_holds(self, store: StateStore) -> None:
        """In every table that has one; also with characters of four bytes, and with text that cannot be compressed."""
        at_random = random.Random(7)  # noqa: S311 - no secret
        wide = "".join(chr(at_random.randrange(0x20000, 0x2A000)) for _ in range(MAX_KEY_BYTES // 4))
        narrow = "".join(at_random.choice(string.ascii_letters) for _ in range(MAX_KEY_BYTES))
        attempt = await running_task(store, new_id(), budget={"llm_tokens": 9})
        task_id = attempt.task.id
        for position, key in enumerate((wide, narrow), 1):
            await attempt.apply(
                WriteStep(step(key, position)),
                WriteEffect(
                    Effect(
                        effect_id=f"e{position}", step_key=key, effect_class=EffectClass.ONCE, state=EffectState.DONE
                    )
                ),
                ApplyPatch(body=b"{}", author="a", step_key=key),
                OpenApproval(Approval(task_id=task_id, question="?", step_key=key, id=f"a{position}")),
                Reserve(account=task_id, step_key=key, amounts={"llm_tokens": 2}),
                SubmitChild(new_task(f"child {position}")),
            )
            await attempt.apply(Settle(account=task_id, step_key=key, amounts={"llm_tokens": 1}))
            await attempt.apply(Reserve(account=task_id, step_key=key, amounts={"llm_tokens": 3}))
        waits = (
            UntilChildren(key=wide, children=("child 1", "child 2")),
            UntilEvent(key=narrow, channel="news"),
        )
        await attempt.apply(move(TaskState.WAITING, waits=waits))
        loaded = await store.load(task_id)
        assert [line.key for line in loaded.steps] == [wide, narrow]
        assert await store.step(task_id, wide, of_round=1) == loaded.steps[0]
        assert {effect.step_key for effect in loaded.effects} == {wide, narrow}
        assert {approval.step_key for approval in loaded.approvals} == {wide, narrow}
        assert {patch.step_key for patch in loaded.patches} == {wide, narrow}
        assert {(held.step_key, held.amount) for held in loaded.reservations} == {(wide, 3), (narrow, 3)}
        for child in ("child 1", "child 2"):
            await apply_outside(store, child, CANCEL)
        assert (await stored(store, task_id)).state is TaskState.PENDING

    async def test_a_key_that_is_longer_is_refused_at_the_door(self, store: StateStore) -> None:
        """Counted in bytes; names stay as short as they were."""
        attempt = await running_task(store)
        for key in ("x" * (MAX_KEY_BYTES + 1), "\U00020000" * (MAX_KEY_BYTES // 4 + 1), "", "a\nb"):
            with pytest.raises(InvalidValue, match="step key"):
                step(key)
            with pytest.raises(InvalidValue, match="step key"):
                await attempt.send(Reserve(account="task", step_key=key, amounts={}))
            with pytest.raises(InvalidValue, match="wait key"):
                await attempt.send(move(TaskState.WAITING, waits=(UntilWoken(key=key),)))
        with pytest.raises(InvalidValue, match="at most 200"):
            new_task(key="x" * 201)

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
