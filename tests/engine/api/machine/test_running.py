"""Machines at work: paths, loops, data, events, and what can be seen from outside."""

# ruff: noqa: ANN401, ARG001 - a handler takes its ctx and data, whatever they are and whether it needs them or not

import asyncio
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, assert_type

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast import (
    Context,
    Goto,
    Handle,
    Holdfast,
    InvalidValue,
    Machine,
    Reached,
    Retry,
    StepState,
    SyncContext,
    TaskDefinition,
    TaskFailed,
    TaskState,
)
from tests.engine.api.machine.support import TICKET, moves_of, reaches, result_of


@dataclass
class Ticket:
    title: str
    tried: list[str] = field(default_factory=list)
    due: datetime | None = None


def ticket_machine(*, verified_after: int = 1, **options: Any) -> Machine[Ticket]:
    machine = Machine("ticket", data=Ticket, **TICKET, **options)

    @machine.state("new")
    async def triage(ctx: Context, data: Ticket) -> str | Goto[Ticket]:
        if data.title == "spam":
            return Goto("triaged", Ticket(data.title, ["spam filter"]), reason="looks like spam")
        return "triaged"

    @machine.state("triaged")
    async def fix(ctx: Context, data: Ticket) -> Goto[Ticket]:
        if data.tried == ["spam filter"]:
            return Goto("rejected")
        data.tried.append(await ctx.step("patch", patch, len(data.tried)))
        return Goto("fixed", reason=f"patch {len(data.tried)}")

    @machine.state("fixed")
    def check(ctx: SyncContext, data: Ticket) -> str:
        return "verified" if len(data.tried) >= verified_after else "triaged"

    return machine


async def patch(number: int) -> str:
    return f"patch {number}"


async def test_a_machine_goes_to_a_final_state_and_returns_it_with_the_data(hold: Holdfast) -> None:
    ticket = hold.register(ticket_machine())
    due = datetime(2026, 3, 1, tzinfo=UTC)
    handle = await hold.submit(ticket, Ticket("crash", due=due))
    assert_type(ticket, TaskDefinition[..., Reached[Ticket]])
    assert_type(handle, Handle[Reached[Ticket]])
    assert await result_of(hold, handle) == Reached("verified", Ticket("crash", ["patch 0"], due))
    assert await moves_of(handle) == [(None, "new"), ("new", "triaged"), ("triaged", "fixed"), ("fixed", "verified")]
    assert (await handle.task()).state is TaskState.COMPLETED


async def test_a_handler_chooses_among_the_moves_that_are_allowed(hold: Holdfast) -> None:
    machine = ticket_machine()
    handle = await hold.submit(hold.register(machine), Ticket("spam"))
    assert await result_of(hold, handle) == Reached("rejected", Ticket("spam", ["spam filter"]))
    visits = await machine.history(handle)
    assert [(visit.number, visit.came_from, visit.state, visit.reason) for visit in visits] == [
        (1, None, "new", "started"),
        (2, "new", "triaged", "looks like spam"),
        (3, "triaged", "rejected", ""),
    ]
    assert [visit.data.tried for visit in visits] == [[], ["spam filter"], ["spam filter"]]
    assert visits == sorted(visits, key=lambda visit: visit.entered_at)


async def test_a_state_that_is_visited_again_does_its_work_again(hold: Holdfast) -> None:
    ticket = hold.register(ticket_machine(verified_after=3))
    handle = await hold.submit(ticket, Ticket("hard"))
    reached = await result_of(hold, handle)
    assert reached.data.tried == ["patch 0", "patch 1", "patch 2"]
    keys = [step.key for step in await hold.store.steps(handle.id)]
    assert [key for key in keys if key.endswith("patch")] == ["ticket:2/patch", "ticket:4/patch", "ticket:6/patch"]
    assert [key for key in keys if "/" not in key] == [f"ticket:{number}" for number in range(1, 9)]


async def test_data_that_did_not_change_is_not_stored_again(quick: Holdfast) -> None:
    machine = Machine("m", initial="a", transitions={"a": "b", "b": "c", "c": "d"}, final="d")
    machine.state("a")(to("b"))
    machine.state("c")(to("d"))

    @machine.state("b")
    async def change(ctx: Context, data: dict[str, Any]) -> str:
        data["size"] = 7
        return "c"

    handle = await quick.submit(quick.register(machine), {"text": "x" * 1000})
    assert (await result_of(quick, handle)).data == {"text": "x" * 1000, "size": 7}
    sizes = [len(step.output or b"") > 1000 for step in await quick.store.steps(handle.id)]
    assert sizes == [True, False, True, False]


async def test_a_machine_may_do_without_data(quick: Holdfast) -> None:
    machine = Machine("m", initial="a", transitions={"a": "b"}, final="b")
    machine.state("a")(to("b"))
    assert await result_of(quick, await quick.submit(quick.register(machine))) == Reached("b", None)


async def test_data_with_a_type_may_not_be_left_out(quick: Holdfast) -> None:
    task = quick.register(ticket_machine())
    with pytest.raises(InvalidValue, match="'data'"):
        await quick.submit(task)


class Light(Enum):
    RED = "red"
    GREEN = "green"


async def test_handlers_may_name_states_by_the_members_of_an_enum(quick: Holdfast) -> None:
    machine = Machine("light", initial=Light.RED, transitions={Light.RED: {Light.GREEN: "go"}}, final=Light.GREEN)

    @machine.state(Light.RED)
    async def wait(ctx: Context, data: Any) -> Light:
        return Light.GREEN

    handle = await quick.submit(quick.register(machine))
    assert (await result_of(quick, handle)).state == "green"
    assert (await machine.history(handle))[-1].reason == "go"


# What is not allowed


@pytest.mark.parametrize(
    ("answer", "complaint", "tries"),
    [
        ("rejected", "is in 'new' and cannot go to 'rejected'; from there it may go to 'triaged'", 2),
        ("new", "cannot go to 'new'", 2),
        ("lost", "('lost' is not one of its states)", 2),
        (None, "returned None; return the name of the next state", 1),
        (("triaged", 1), "return the name of the next state", 1),
        (Goto("triaged", object()), "object", 1),
        (Goto("triaged", reason=7), "Goto(", 1),  # type: ignore[arg-type]
    ],
)
async def test_a_move_that_is_not_allowed_raises_and_changes_nothing(
    quick: Holdfast, answer: Any, complaint: str, tries: int
) -> None:
    calls: list[int] = []
    machine = Machine("ticket", retry=Retry(max_attempts=2, initial=0.0), **TICKET)

    @machine.state("new")
    async def wrong(ctx: Context, data: dict[str, Any]) -> Any:
        calls.append(data["n"])
        data["n"] += 1
        return answer

    machine.state("triaged")(to("fixed"))
    machine.state("fixed")(to("verified"))
    handle = await quick.submit(quick.register(machine), {"n": 0})
    with pytest.raises(TaskFailed) as failed:
        await result_of(quick, handle)
    assert complaint in failed.value.message
    assert "in state 'new' of machine 'ticket', visit 1" in failed.value.failure.traceback
    assert calls == [0] * tries  # each try begins with the data as the state was entered with
    assert await machine.state_of(handle) == "new"
    assert await moves_of(handle) == [(None, "new")]


# From outside


async def test_the_current_state_can_be_read_while_the_task_waits(hold: Holdfast) -> None:
    machine = Machine("order", initial="open", transitions={"open": "paid", "paid": "sent"}, final="sent")

    @machine.state("open")
    async def take(ctx: Context, data: dict[str, Any]) -> Goto[Any]:
        return Goto("paid", {**data, "amount": await ctx.wait_event("payments")}, reason="paid by card")

    @machine.state("paid")
    async def send(ctx: Context, data: dict[str, Any]) -> str:
        await ctx.wait_event("parcels")
        return "sent"

    handle = await hold.submit(hold.register(machine), {"item": "book"})
    assert await machine.state_of(handle) == "open"
    assert await machine.history(handle) == []
    async with hold.worker():
        await reaches(handle, TaskState.WAITING)
        assert await machine.state_of(handle) == "open"
        await hold.emit("payments", 12)
        await reaches(handle, TaskState.WAITING)
        while await machine.state_of(handle) != "paid":
            await reaches(handle, TaskState.WAITING)
        last = (await machine.history(handle))[-1]
        assert (last.came_from, last.reason, last.data) == ("open", "paid by card", {"item": "book", "amount": 12})
        await hold.emit("parcels")
        assert await handle.result(timeout=60) == Reached("sent", {"item": "book", "amount": 12})


async def test_a_task_of_something_else_has_no_state(quick: Holdfast) -> None:
    @quick.task
    async def other(ctx: Context) -> None: ...

    machine = ticket_machine()
    with pytest.raises(InvalidValue, match="is a 'other' and has no machine 'ticket' in it"):
        await machine.state_of(await quick.submit(other))


# As a part of other things


async def test_a_machine_inside_a_task_runs_as_a_part_of_it(quick: Holdfast) -> None:
    machine = ticket_machine()
    ticket = quick.register(machine)

    @quick.task
    async def two(ctx: Context) -> list[str]:
        first: Reached[Ticket] = await ticket(ctx, Ticket("crash"))
        second: Reached[Ticket] = await ticket(ctx, Ticket("spam"))
        return [first.state, second.state]

    handle = await quick.submit(two)
    assert await result_of(quick, handle) == ["verified", "rejected"]
    assert await machine.state_of(handle) == "verified"
    keys = {step.key for step in await quick.store.steps(handle.id)}
    assert {"ticket:1", "ticket:2/patch", "ticket#2:1", "ticket#2:3"} <= keys


async def test_a_machine_inside_a_handler_keeps_its_lines_apart(quick: Holdfast) -> None:
    inner = Machine("inner", initial="a", transitions={"a": "b"}, final="b")
    inner.state("a")(to("b"))
    part = quick.register(inner)
    outer = Machine("outer", initial="a", transitions={"a": ["a", "b"]}, final="b")

    @outer.state("a")
    async def again(ctx: Context, data: int) -> Goto[int]:
        await part(ctx, None)
        return Goto("a" if data else "b", data - 1)

    handle = await quick.submit(quick.register(outer), 1)
    assert (await result_of(quick, handle)).data == -1
    keys = [step.key for step in await quick.store.steps(handle.id)]
    assert keys == ["outer:1", "outer:1/inner:1", "outer:1/inner:2", "outer:2", *keys[4:]]
    assert keys[4:] == ["outer:2/inner:1", "outer:2/inner:2", "outer:3"]


async def test_a_blocking_task_cannot_run_a_machine_in_place(quick: Holdfast) -> None:
    ticket = quick.register(ticket_machine())

    @quick.task
    def blocking(ctx: SyncContext) -> Any:
        return asyncio.run(ticket(ctx, Ticket("crash")))

    @quick.task
    def as_a_child(ctx: SyncContext) -> str:
        return ctx.submit(ticket, Ticket("crash")).result().state

    with pytest.raises(TaskFailed, match="submit it as a child instead"):
        await result_of(quick, await quick.submit(blocking))
    assert await result_of(quick, await quick.submit(as_a_child)) == "verified"


async def test_machines_with_blocking_handlers_run_beside_each_other(quick: Holdfast) -> None:
    """The end of one handler takes nothing from the other, and the task is suspended when both of them wait."""
    ended = threading.Event()

    def early(ctx: SyncContext, data: int) -> Goto[int]:
        return Goto("b", ctx.step("add", add, data))

    def late(ctx: SyncContext, data: int) -> Goto[int]:
        assert ended.wait(60)
        return Goto("b", ctx.step("add", add, data))

    def waiting(ctx: SyncContext, data: str) -> Goto[Any]:
        return Goto("b", ctx.wait_event(data))

    first, second = (quick.register(one_state(handler.__name__, handler)) for handler in (early, late))
    left, right = (quick.register(one_state(name, waiting)) for name in ("left", "right"))

    @quick.task(retry=Retry(max_attempts=1))
    async def both(ctx: Context) -> list[Any]:
        async def run_first() -> Reached[Any]:
            try:
                reached: Reached[Any] = await first(ctx, 1)
            finally:
                ended.set()
            return reached

        found = [*await asyncio.gather(run_first(), second(ctx, 2))]
        found += await asyncio.gather(left(ctx, "l"), right(ctx, "r"))
        return [one.data for one in found]

    handle = await quick.submit(both)
    async with quick.worker(), asyncio.timeout(60):
        await reaches(handle, TaskState.WAITING)
        await quick.emit("l", 3)
        await quick.emit("r", 4)
        assert await handle.result() == [2, 3, 3, 4]


def one_state(name: str, handler: Any, **options: Any) -> Machine[Any]:
    machine = Machine(name, initial="a", transitions={"a": "b"}, final="b")
    machine.state("a", **options)(handler)
    return machine


async def test_a_state_that_may_leave_its_worker_is_refused_inside_a_once_step(quick: Holdfast) -> None:
    """Before anything runs: the call of the step around it would be in doubt."""
    ran: list[str] = []

    async def run(ctx: Context, data: str) -> str:
        ran.append(data)
        return "b"

    options: dict[str, dict[str, Any]] = {"plain": {}, "retry": {"retry": Retry()}, "timeout": {"timeout": 60}}
    parts = {name: quick.register(one_state(name, run, **given)) for name, given in options.items()}

    @quick.task
    async def job(ctx: Context) -> dict[str, str]:
        refused = {}

        async def outer() -> None:
            for name, part in parts.items():
                try:
                    await part(ctx, name)
                except InvalidValue as error:
                    refused[name] = str(error)

        await ctx.step("outer", outer, effect="once")
        return refused

    refused = await result_of(quick, await quick.submit(job))
    assert refused.keys() == {"retry", "timeout"}
    for name, message in refused.items():
        assert f"machine '{name}', whose state 'a' has {name}=, cannot be used inside step 'outer'" in message
    assert ran == ["plain"]


async def test_a_verifier_sees_the_final_state_and_a_rejection_starts_over(quick: Holdfast) -> None:
    machine = ticket_machine(retry=Retry(max_attempts=2))
    ticket = quick.register(machine)
    seen: list[Reached[Ticket]] = []

    @ticket.verify
    async def look(ctx: Context, result: Reached[Ticket]) -> bool:
        seen.append(result)
        return len(seen) == 2

    handle = await quick.submit(ticket, Ticket("crash"))
    await result_of(quick, handle)
    assert seen == [Reached("verified", Ticket("crash", ["patch 0"]))] * 2
    assert [step.round for step in await quick.store.steps(handle.id) if step.key == "ticket:4"] == [1, 2]
    assert len(await machine.history(handle)) == 4


async def test_handlers_may_do_everything_that_a_task_may(hold: Holdfast) -> None:
    @hold.task
    async def double(ctx: Context, number: int) -> int:
        return number * 2

    machine = Machine("all", initial="a", transitions={"a": "b", "b": "c"}, final="c")

    @machine.state("a")
    async def with_children(ctx: Context, data: int) -> Goto[int]:
        await ctx.progress(1, 2, "half")
        child = await ctx.submit(double, data)
        await ctx.sleep(0.01)
        return Goto("b", await child.result())

    @machine.state("b")
    def in_a_thread(ctx: SyncContext, data: int) -> Goto[int]:
        child = ctx.submit(double, data)
        assert all((ctx.uuid(), ctx.random(), ctx.now()))
        return Goto("c", ctx.step("add", add, child.result()))

    handle = await hold.submit(hold.register(machine), 2)
    assert await result_of(hold, handle) == Reached("c", 9)
    states = {step.state for step in await hold.store.steps(handle.id)}
    assert states == {StepState.COMPLETED}


def add(number: int) -> int:
    return number + 1


# Any table, any path


@given(some.data())
async def test_any_path_through_any_table_is_followed_and_reported(data: some.DataObject) -> None:
    count = data.draw(some.integers(1, 5), label="states")
    states = [f"s{number}" for number in range(count)]
    ahead = {
        state: [states[number + 1] if number + 1 < count else "end", *data.draw(_exits(states), label=state)]
        for number, state in enumerate(states)
    }
    path = ["s0"]
    while path[-1] != "end" and len(path) < 12:
        path.append(data.draw(some.sampled_from(sorted({*ahead[path[-1]]})), label="next"))
    while path[-1] != "end":
        path.append(ahead[path[-1]][0])
    calls: list[str] = []
    machine = Machine("m", initial="s0", transitions=ahead, final="end")
    for state in states:

        async def follow(ctx: Context, number: int, state: str = state) -> Goto[int]:
            calls.append(await ctx.step("note", lambda: state))
            return Goto(path[number + 1], number + 1)

        machine.state(state)(follow)
    async with Holdfast("memory://") as hold:
        handle = await hold.submit(hold.register(machine), 0)
        assert await result_of(hold, handle) == Reached("end", len(path) - 1)
        assert [visit.state for visit in await machine.history(handle)] == path
        assert await moves_of(handle) == list(zip([None, *path], path, strict=False))
    assert calls == path[:-1]


def _exits(states: list[str]) -> some.SearchStrategy[list[str]]:
    return some.lists(some.sampled_from([*states, "end"]), max_size=3)


def to(state: str) -> Any:
    async def go(ctx: Context, data: Any) -> str:
        return state

    return go
