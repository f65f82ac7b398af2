"""The fuzzer finds what it is made for: each test puts a defect into the engine, or a program, and has it reported."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import LeaseLost
from holdfast.agent import first_messages
from holdfast.agent import run as agent_run
from holdfast.engine.attempt import context
from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.attempt.journal import Journal
from holdfast.engine.attempt.scope import Scope
from holdfast.engine.effects import compensation, once_step
from holdfast.engine.effects.recorded_call import CallRecord
from holdfast.engine.outside import ClaimedTask, claim
from holdfast.engine.outside.writer import LeaseWriter
from holdfast.engine.steps import step
from holdfast.model.task import NewTask, Submitted
from holdfast.store.sqlite.write_transaction import WriteTransaction
from holdfast.store.transaction import StoreTransaction
from tests.proof.program_fuzz.driver import HANGS, Verdict, run_case
from tests.proof.program_fuzz.grammar import Case, Fault, Node, case_from_json
from tests.proof.program_fuzz.interpreter import Interpreter
from tests.proof.program_fuzz.office import Office
from tests.proof.program_fuzz.report import explain

PAY = Node("pay", "once", {"keyed": True, "reconcile": True, "script": []})
STUMBLE = Node("stumble", "stumble", {"times": 1})
LOOK = Node("look", "pure", {"keyed": True, "fails": 0})

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program on a store in memory; returns what was wrong."""
    numbers = itertools.count(1)

    async def run(*parts: Node, hangs_after: float = HANGS, **options: Any) -> tuple[str, ...]:  # noqa: ANN401
        case = Case(seed=1, store="memory", body=Node("n0", "seq", {}, parts), **options)
        return (await run_one(case, hangs_after=hangs_after)).wrong

    async def run_one(case: Case, *, hangs_after: float = HANGS) -> Verdict:
        folder = tmp_path / f"run-{next(numbers)}"
        folder.mkdir()
        return await run_case(case, "memory://", folder, hangs_after=hangs_after)

    run.one = run_one  # type: ignore[attr-defined]
    return run


def forget_once_steps(patch: pytest.MonkeyPatch) -> None:
    """Have the engine meet each once step as if for the first time."""
    numbers = itertools.count(1)

    def look_up_nothing(attempt: Attempt, *_: object) -> CallRecord:
        return CallRecord(recorded=None, effect=None, effect_id=f"{attempt.task.id}-{next(numbers)}", error=None)

    patch.setattr(once_step, "look_up", look_up_nothing)


async def test_a_once_step_whose_journal_is_ignored(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await run(PAY, STUMBLE) == ()
    forget_once_steps(monkeypatch)
    assert any("pay happened twice" in wrong for wrong in await run(PAY, STUMBLE))


async def test_a_crash_after_an_act_that_is_not_declared_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    dies = (Fault("die after", act=2),)  # passed before the act, and after it
    assert await run(PAY, faults=dies) == ()

    async def pay_blindly(interpreter: Any, ctx: Any, node: Node, place: Any) -> Any:  # noqa: ANN401
        async def pay(effect_id: str) -> str:
            await interpreter._pass_by("")
            about = interpreter._about(node, place) | {"once": True, "undo": None}
            interpreter.records.write("act", place.label(node), **about, effect=effect_id, value="paid")
            await interpreter._pass_by("")
            return "paid"

        return await ctx.step("pay", pay)

    monkeypatch.setattr(Interpreter, "_run_once", pay_blindly)
    assert any("pay happened twice" in wrong for wrong in await run(PAY, faults=dies))


async def test_keys_that_are_positions(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay skips what is inside a completed step: whatever is counted after it gets another key."""
    inner = Node("inner", "nested", {"keyed": True}, (LOOK,))
    assert await run(inner, PAY, STUMBLE) == ()

    positions: dict[Journal, Iterator[int]] = {}

    def allot_position(journal: Journal, scope: Scope, *_: object) -> str:
        return journal.allot_explicit(scope, f"step-{next(positions.setdefault(journal, itertools.count(1)))}")

    monkeypatch.setattr(Journal, "allot", allot_position)
    wrong = await run(inner, PAY, STUMBLE)
    assert any("happened twice" in one or "JournalMismatch" in one or "two values" in one for one in wrong), wrong


async def test_numbers_that_differ_in_a_replay(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Node("draw", "draw")
    assert await run(draw, LOOK, STUMBLE) == ()
    monkeypatch.setattr("holdfast.engine.steps.waits.draw", lambda *_: random.randbytes(32))
    assert any("draw returned two values" in wrong for wrong in await run(draw, LOOK, STUMBLE))


async def test_a_completed_step_that_runs_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await run(LOOK, STUMBLE) == ()
    monkeypatch.setattr(Journal, "find", lambda *_: None)
    assert any("look ran again" in wrong for wrong in await run(LOOK, STUMBLE))


async def test_a_row_that_is_written_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Node("row", "transaction", {"keyed": True, "fails": 0})
    assert await run(row, STUMBLE) == ()
    monkeypatch.setattr(Journal, "find", lambda *_: None)
    assert any("row was written 2 times" in wrong for wrong in await run(row, STUMBLE))


async def test_a_submission_apart_from_its_transaction(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Node("row", "transaction", {"keyed": True, "fails": 0, "submits": True})
    assert await run(row, STUMBLE) == ()
    submit = StoreTransaction.submit

    async def not_at_all(_: StoreTransaction, tasks: Sequence[NewTask]) -> list[Submitted]:
        return [Submitted(task_id=task.id, created=True) for task in tasks]

    async def twice(tx: StoreTransaction, tasks: Sequence[NewTask]) -> list[Submitted]:
        await submit(tx, [replace(task, id=f"{task.id} again") for task in tasks])
        return await submit(tx, tasks)

    for wrong_one, found in ((not_at_all, 0), (twice, 2)):
        monkeypatch.setattr(StoreTransaction, "submit", wrong_one)
        assert any(f"row wrote 1 rows, and submitted {found} tasks" in wrong for wrong in await run(row, STUMBLE))


async def test_sagas_that_forget_or_go_forwards(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    booked = [Node(name, "once", {**PAY.options, "undo": "once"}) for name in ("first", "second")]
    broken = Node("broken", "broken")
    assert await run(*booked, broken) == ()
    to_do = compensation._to_do
    with monkeypatch.context() as patch:
        patch.setattr(compensation, "_to_do", lambda attempt: to_do(attempt)[::-1])
        assert any("first was undone before" in wrong for wrong in await run(*booked, broken))
    monkeypatch.setattr(compensation, "_to_do", lambda attempt: to_do(attempt)[:1])
    assert any("first was not undone" in wrong for wrong in await run(*booked, broken))


async def test_a_question_that_no_one_answers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer_nothing(_: Office) -> int:
        return 0

    ask = Node("ask", "ask", {"keyed": True})
    assert await run(ask) == ()
    monkeypatch.setattr(Office, "_answer", answer_nothing)
    assert any("it hangs" in wrong for wrong in await run(ask, hangs_after=2.0))


async def test_a_fork_that_does_its_past_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (PAY, LOOK, Node("sleep", "sleep", {"keyed": True, "seconds": 10.0}))
    assert await run(*parts, fork_after=4) == ()
    forget_once_steps(monkeypatch)
    assert any("did again what its origin had done" in wrong for wrong in await run(*parts, fork_after=4))


async def test_a_failure_is_shrunk_and_can_be_repeated(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_once_steps(monkeypatch)
    loop = Node("loop", "loop", {"times": 2}, (LOOK, Node("ask", "ask", {"keyed": True})))
    handled = Node("handled", "handled", {}, (PAY, Node("draw", "draw")))
    body = Node("n0", "seq", {}, (loop, handled, STUMBLE))
    case = Case(seed=7, store="memory", body=body, faults=(Fault("hand back", commit=3),), rejections=1)
    explanation = await explain(await run.one(case), "tests/proof/program_fuzz", run.one)  # type: ignore[attr-defined]
    assert "HOLDFAST_SEED=7" in explanation
    smallest = case_from_json(explanation.rpartition("case_from_json: ")[2])
    assert [node.id for node in smallest.body.walk()] in (["n0", "pay", "stumble"], ["n0", "pay"]), explanation
    assert smallest.faults == ()
    assert (await run.one(smallest)).wrong  # type: ignore[attr-defined]


async def test_a_child_without_the_labels_of_its_parent(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    child = Node("child", "child", {"keyed": True, "many": 1, "claimable": False}, (LOOK,))
    assert await run(child) == ()
    monkeypatch.setattr(context, "merged_labels", lambda _, own: own or {})
    assert "task child-child has the labels {}" in " ".join(await run(child))


async def test_charges_and_patches_that_count_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [Node("fee", "charge", {"keyed": True}), Node("note", "patch", {"keyed": True}), STUMBLE]
    assert await run(*parts) == ()
    monkeypatch.setattr(Journal, "find", lambda *_: None)
    wrong = await run(*parts)
    assert any("of charge" in one for one in wrong), wrong
    assert any("of patch" in one for one in wrong), wrong


async def test_messages_that_are_lost_or_read_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Node("agent", "agent", {"keyed": True, "reconcile": True, "approved": True, "messages": 2})
    options: dict[str, Any] = {"faults": (Fault("die after", act=1), Fault("die after", act=2))}
    assert await run(agent, **options) == ()
    with monkeypatch.context() as patch:
        patch.setattr(agent_run, "inbox", lambda task_id: f"another:{task_id}")
        assert any("had not read" in wrong for wrong in await run(agent, **options))
    begin = first_messages.begin

    async def begin_deaf(attempt: Any) -> Any:  # noqa: ANN401
        return replace(await begin(attempt), last_read=0)

    monkeypatch.setattr(first_messages, "begin", begin_deaf)
    assert any("read a message twice" in wrong for wrong in await run(agent, **options))


async def test_an_agent_outside_whose_steps_are_forgotten(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = Node("outside", "outside", {"keyed": True, "steps": 3, "troubles": ["silent after", "release"]})
    assert await run(outside) == ()

    async def take_without_past(*args: object, **options: Any) -> ClaimedTask | None:  # noqa: ANN401
        taken = await claim(*args, **options)  # type: ignore[arg-type]
        return None if taken is None else replace(taken, steps=())

    with monkeypatch.context() as patch:
        patch.setattr("tests.proof.program_fuzz.outside.claim", take_without_past)
        assert any("outside/o0 ran again" in wrong for wrong in await run(outside))
    commit = LeaseWriter.commit

    async def accept_anything(writer: LeaseWriter, write: Any) -> None:  # noqa: ANN401
        with suppress(LeaseLost):
            await commit(writer, write)

    monkeypatch.setattr(LeaseWriter, "commit", accept_anything)
    assert any("that lost the task wrote to it" in wrong for wrong in await run(outside))


async def test_a_machine_that_begins_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Node("machine", "machine", {}, (LOOK, STUMBLE))
    assert await run(machine) == ()
    monkeypatch.setattr(Journal, "find", lambda *_: None)
    assert any("machine entered state 0 again, after state 1" in wrong for wrong in await run(machine))


async def test_prunes_that_take_too_much_or_too_little(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    child = Node("child", "child", {"keyed": True, "many": 1}, (LOOK, Node("ask", "ask", {"keyed": True})))
    sleep = Node("sleep", "sleep", {"keyed": True, "seconds": 10.0})
    assert await run(child, sleep, prune_after=5) == ()

    find = WriteTransaction.all

    def find_children(tx: WriteTransaction, query: str, *values: Any) -> list[Any]:  # noqa: ANN401
        if query != "prunable_tasks":
            return find(tx, query, *values)
        tx.statement("DELETE FROM tasks WHERE parent_id IS NOT NULL AND finished_at IS NOT NULL")
        return []

    monkeypatch.setattr(WriteTransaction, "all", find_children)
    wrong = await run(child, sleep, prune_after=5)
    assert any("one was pruned without the other" in one for one in wrong), wrong
    assert any("main has ended, and was not pruned" in one for one in wrong), wrong


async def test_a_step_that_begins_without_its_permit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = {"keyed": True, "fails": 0, "limited": True}
    branches = Node("all", "gather", {}, tuple(Node(f"limited{n}", "pure", limited) for n in range(3)))

    async def pass_by(*_: object) -> None:
        await asyncio.sleep(0)  # long enough for the others to begin

    monkeypatch.setattr(Interpreter, "_pass_by", pass_by)
    assert await run(branches, limited_steps=1) == ()

    def begin_at_once(attempt: Attempt, _: object) -> object:
        return attempt.begin_work()

    monkeypatch.setattr(step, "begin_try", begin_at_once)
    assert any("under a limit of 1" in wrong for wrong in await run(branches, limited_steps=1))
