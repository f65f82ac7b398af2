"""Tools that fail: which are tried again, what the model gets, and what is undone in the end."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from holdfast import (
    Absent,
    AgentStuck,
    Compensation,
    Decision,
    EffectState,
    Happened,
    Holdfast,
    InvalidValue,
    Retry,
    StepState,
    TaskFailed,
    TaskState,
    ToolError,
    Unknown,
    tool,
)
from holdfast.agent.scripted import call
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.support import PATIENCE, finished, look, output_of, register, steps_of, tool_results
from tests.engine.support import reaches, until


@pytest.mark.parametrize(("effect", "tries"), [("pure", 3), ("idempotent", 3), ("once", 1)])
@pytest.mark.usefixtures("box")
async def test_how_often_a_failing_tool_is_tried(app: Holdfast, effect: str, tries: int) -> None:
    ids: list[str] = []

    @tool(effect=effect, absent_on=ValueError) if effect == "once" else tool(effect=effect)
    async def act(effect_id: str) -> str:
        """Act."""
        ids.append(effect_id)
        raise ValueError(f"try {len(ids)}")

    agent, model = register(app, [call("act"), "done"], tools=[act])
    handle = await app.submit(agent, "go")
    assert await handle.result(timeout=600) == "done"
    assert len(ids) == tries
    assert len(set(ids)) == 1
    assert tool_results(model) == [f"Error: ValueError: try {tries}"]
    [step] = [step for step in await steps_of(app, handle) if step.key == "act:1.0"]
    assert (step.state, step.attempts) == (StepState.FAILED, tries)


@pytest.mark.usefixtures("box")
async def test_a_tool_that_works_the_second_time_has_worked(app: Holdfast) -> None:
    tries = 0

    @tool(effect="idempotent")
    def act() -> str:
        """Act."""
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError("busy")
        return "acted"

    agent, model = register(app, [call("act"), "done"], tools=[act])
    await (await app.submit(agent, "go")).result(timeout=600)
    assert tool_results(model) == ["acted"]


@pytest.mark.parametrize("effect", ["pure", "idempotent", "once"])
async def test_a_tool_error_is_reported_at_once(hold: Holdfast, effect: str) -> None:
    tries = 0

    class OutOfStock(ToolError):
        pass

    @tool(effect=effect)
    async def order() -> str:
        """Order it."""
        nonlocal tries
        tries += 1
        raise OutOfStock("there are none left")

    agent, model = register(hold, [call("order"), "done"], tools=[order])
    handle = await finished(hold, agent)
    assert tries == 1
    assert tool_results(model) == ["Error: OutOfStock: there are none left"]
    assert await hold.doubts(handle) == []


@pytest.mark.usefixtures("box")
async def test_retry_is_the_tools_own(app: Holdfast) -> None:
    tries = 0

    @tool(risk="read_only", retry=Retry(max_attempts=5, give_up_on=(KeyError,)))
    async def act() -> str:
        """Act."""
        nonlocal tries
        tries += 1
        raise (KeyError if tries == 4 else ValueError)(f"try {tries}")

    agent, model = register(app, [call("act"), "done"], tools=[act])
    await (await app.submit(agent, "go")).result(timeout=600)
    assert tries == 4
    assert tool_results(model) == ["Error: KeyError: 'try 4'"]


async def test_timeout_is_the_tools_own(app: Holdfast, box: Sandbox) -> None:
    tries = 0

    @tool(risk="read_only", timeout=timedelta(minutes=1), retry=Retry(max_attempts=2))
    async def hang() -> None:
        """Hang."""
        nonlocal tries
        tries += 1
        await asyncio.Event().wait()

    agent, model = register(app, [call("hang"), "done"], tools=[hang])
    handle = await app.submit(agent, "go")
    await handle.result(timeout=3600)
    assert tries == 2
    [error] = tool_results(model)
    assert error.startswith("Error: DeadlineExceeded: not over within its timeout of 60 s")
    assert timedelta(minutes=2) <= (await box.trace(handle)).took < timedelta(minutes=4)


async def test_a_tool_whose_text_cannot_be_stored_is_still_reported(hold: Holdfast) -> None:
    @tool(risk="read_only", retry=Retry(max_attempts=1))
    async def act() -> None:
        """Act."""
        raise ValueError("\ud800\0" + "x" * 100_000)

    agent, model = register(hold, [call("act"), "done"], tools=[act])
    await finished(hold, agent)
    [error] = tool_results(model)
    assert error.startswith("Error: ValueError: ")
    assert len(error) < 5_000


# In doubt


@pytest.mark.usefixtures("box")
async def test_a_once_tool_in_doubt_is_cleared_up_by_its_reconcile(app: Holdfast) -> None:
    sent: dict[str, str] = {}
    asked_about: list[tuple[str, datetime]] = []

    async def was_sent(effect_id: str, at: datetime) -> Happened | Absent:
        asked_about.append((effect_id, at))
        return Happened(f"sent at {at:%H}") if effect_id in sent else Absent()

    @tool(reconcile=was_sent, settle=1)
    async def send(at: datetime, effect_id: str) -> str:
        """Send it."""
        sent[effect_id] = f"{at}"
        raise ConnectionResetError("the answer was lost")

    agent, model = register(app, [call("send", at="2026-01-02T03:00:00Z"), "done"], tools=[send])
    handle = await app.submit(agent, "go")
    assert await handle.result(timeout=3600) == "done"
    assert tool_results(model) == ["sent at 03"]
    assert len(sent) == 1
    [(_, at)] = asked_about
    assert isinstance(at, datetime)
    assert await output_of(app, handle, "send:1.0") == {"value": "sent at 03"}


async def test_a_once_tool_is_never_doubled_wherever_its_worker_dies(app: Holdfast) -> None:
    sent: list[str] = []

    def was_sent(effect_id: str, to: str) -> Happened | Absent:
        return Happened(f"sent to {to}") if effect_id in sent else Absent()

    @tool(reconcile=was_sent, settle=1)
    async def send(to: str, effect_id: str) -> str:
        """Send it."""
        sent.append(effect_id)
        return f"sent to {to}"

    agent, model = register(
        app, [[call("send", to="ann"), call("send", to="bob")], call("send", to="ann"), "done"], tools=[send]
    )

    async def scenario(box: Sandbox) -> tuple[str, list[str], int]:
        sent.clear()
        handle = await box.hold.submit(agent, "go")
        result = await handle.result(timeout=3600)
        assert len(set(sent)) == len(sent)
        return result, tool_results(model), len(sent)

    survived = await crash_everywhere(app, scenario)
    assert survived.result == ("done", ["sent to ann", "sent to bob", "sent to ann"], 3)


async def test_a_person_says_what_became_of_it_and_the_model_sees_that(either: Holdfast) -> None:
    tries = 0

    @tool(settle=0)
    async def pay(amount: int) -> str:
        """Pay."""
        nonlocal tries
        del amount
        tries += 1
        raise ConnectionResetError("the answer was lost")

    agent, model = register(either, [call("pay", amount=3), "done"], tools=[pay])
    handle = await either.submit(agent, "go")
    async with either.worker():

        async def in_doubt() -> bool:
            return bool([doubt for doubt in await either.doubts(handle) if doubt.approval_id])

        await until(in_doubt, patience=PATIENCE)
        [doubt] = await either.doubts(handle)
        await reaches(handle, TaskState.WAITING)
        await either.resolve(doubt, Decision.HAPPENED, result={"receipt": 17}, by="ann")
        assert await handle.result(timeout=PATIENCE) == "done"
    assert tool_results(model) == ['{"receipt": 17}']
    assert tries == 1
    assert await output_of(either, handle, "pay:1.0") == {"value": {"receipt": 17}}


async def test_a_person_says_that_it_did_not_happen_and_it_is_done_once_more(hold: Holdfast) -> None:
    tries = 0

    @tool(settle=0)
    async def pay() -> str:
        """Pay."""
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConnectionResetError("the answer was lost")
        return "paid"

    agent, model = register(hold, [call("pay"), "done"], tools=[pay])
    handle = await hold.submit(agent, "go")
    async with hold.worker():

        async def in_doubt() -> bool:
            return bool([doubt for doubt in await hold.doubts(handle) if doubt.approval_id])

        await until(in_doubt, patience=PATIENCE)
        await hold.resolve((await hold.doubts(handle))[0], Decision.ABSENT, by="ann")
        await handle.result(timeout=PATIENCE)
    assert (tool_results(model), tries) == (["paid"], 2)


async def test_a_person_abandons_it_and_the_model_gets_an_error(hold: Holdfast) -> None:
    @tool(settle=0, reconcile=lambda _effect_id: Unknown("unknown"))
    async def pay() -> str:
        """Pay."""
        raise ConnectionResetError("the answer was lost")

    agent, model = register(hold, [call("pay"), "done"], tools=[pay])
    handle = await hold.submit(agent, "go")
    async with hold.worker():

        async def in_doubt() -> bool:
            return bool([doubt for doubt in await hold.doubts(handle) if doubt.approval_id])

        await until(in_doubt, patience=PATIENCE)
        await hold.resolve((await hold.doubts(handle))[0], Decision.ABANDON, by="ann", note="let it be")
        await handle.result(timeout=PATIENCE)
    [error] = tool_results(model)
    assert error.startswith("Error: EffectGivenUp")


# Undoing


@dataclass
class Room:
    number: int
    at: datetime


async def test_what_was_done_is_undone_with_typed_arguments_when_the_task_fails(app: Holdfast) -> None:
    undone: list[tuple[object, ...]] = []

    async def cancel(result: object, room: Room, nights: int) -> None:
        undone.append((result, room, nights))

    @tool(effect="idempotent", compensate=cancel)
    async def book(room: Room, nights: int = 2) -> str:
        """Book a room."""
        del nights
        return f"booked {room.number}"

    script = [
        call("book", room={"number": 1, "at": "2026-01-02T00:00:00Z"}),
        call("book", room={"number": 2, "at": "2026-01-02T00:00:00Z"}, nights=3),
        call("nope"),
    ]
    agent, _ = register(app, script, tools=[book], max_senseless_answers=0)

    async def scenario(box: Sandbox) -> tuple[str, list[str]]:
        undone.clear()
        handle = await box.hold.submit(agent, "go")
        with pytest.raises(TaskFailed) as failed:
            await handle.result(timeout=3600)
        assert failed.value.failure.type_name.endswith(AgentStuck.__name__)
        effects = await box.hold.store.effects(task_id=handle.id)
        assert {effect.state for effect in effects} == {EffectState.COMPENSATED}
        return failed.value.failure.type_name, sorted(set(map(str, undone)), reverse=True)

    survived = await crash_everywhere(app, scenario)
    second, first = survived.result[1]
    assert survived.crashes > 10
    assert second.startswith("('booked 2', Room(number=2, at=datetime.datetime(2026, 1, 2")
    assert second.endswith("3)")
    assert first.endswith("2)")


@pytest.mark.usefixtures("box")
async def test_a_once_tool_is_undone_once(app: Holdfast) -> None:
    undone: list[tuple[object, ...]] = []

    async def refund(result: object, amount: int, effect_id: str) -> None:
        undone.append((result, amount, effect_id))

    @tool(compensate=Compensation(refund, effect="once"))
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    agent, model = register(app, [call("pay", amount=3), call("nope")], tools=[pay], max_senseless_answers=0)
    handle = await app.submit(agent, "go")
    with pytest.raises(TaskFailed):
        await handle.result(timeout=3600)
    [(result, amount, effect_id)] = undone
    assert (result, amount) == ("paid 3", 3)
    effects = await app.store.effects(task_id=handle.id)
    assert {effect.state for effect in effects} == {EffectState.COMPENSATED, EffectState.DONE}
    assert effect_id in {effect.effect_id for effect in effects}
    assert len(model.requests) == 2  # the replay that finds how it is undone asks no tool


async def test_a_cancelled_agent_undoes_what_it_did(hold: Holdfast) -> None:
    undone: list[object] = []

    @tool(effect="idempotent", compensate=undone.append)
    async def act() -> str:
        """Act."""
        return "acted"

    agent, _ = register(hold, [call("act"), call("ask_question", question="Go on?"), "done"], tools=[act])
    handle = await hold.submit(agent, "go")
    async with hold.worker():

        async def asks() -> bool:
            return bool(await hold.approvals(handle))

        await until(asks, patience=PATIENCE)
        await hold.cancel(handle)

        async def is_cancelled() -> bool:
            return (await handle.task()).state is TaskState.CANCELLED

        await until(is_cancelled, patience=PATIENCE)
    assert undone == ["acted"]


async def test_a_tool_that_calls_itself_once_may_not_say_how_to_try_it_again() -> None:
    with pytest.raises(InvalidValue, match="are for effect='once'"):
        tool(risk="read_only", reconcile=lambda _effect_id: Absent())(look.function)
