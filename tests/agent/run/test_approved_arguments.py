"""What a person approved is what is called: by this process and the next, by this version of the tool and the next."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field

from holdfast import (
    Absent,
    Agent,
    Approval,
    ApprovalState,
    Context,
    Decision,
    Doubt,
    EffectState,
    Handle,
    Holdfast,
    ManualClock,
    ModelError,
    Retry,
    ScriptedModel,
    TaskState,
    decode,
    tool,
)
from holdfast.agent.round_trip import is_same
from holdfast.agent.scripted import Line, call
from holdfast.agent.tool import Tool
from holdfast.agent.transcript import RecordedAnswer
from tests.agent.parameters import KEPT, REFUSED_WHEN_CALLED, Kind
from tests.agent.support import PATIENCE, asked, finished, register, tool_results
from tests.engine.support import crashing_worker, ended, reaches, until

HOUR = 3600.0
NAMES = [kind.name for kind in KEPT]
WROTE = {kind.name: kind.wrote for kind in KEPT}
Seen = list[tuple[str, dict[str, Any]]]


async def doubt_about(hold: Holdfast, handle: Handle[Any]) -> Doubt:
    """Return what a person is asked about, once the task waits for the answer."""

    async def is_asked() -> bool:
        return any(doubt.approval_id for doubt in await hold.doubts(handle))

    await until(is_asked, patience=PATIENCE)
    await reaches(handle, TaskState.WAITING)
    [doubt] = await hold.doubts(handle)
    return doubt


async def all_approvals(hold: Holdfast, handle: Handle[Any]) -> list[Approval]:
    return await hold.approvals(handle, states=tuple(ApprovalState), limit=100)


# Every kind of parameter


def settled(value: Any) -> Any:  # noqa: ANN401
    return list(value) if isinstance(value, Iterator) else value


def act_of(seen: Seen, *, under_way: asyncio.Event | None = None) -> Tool:
    """Return a tool with every kind of parameter, which records how it was called; with ``under_way`` it never ends."""

    def note(who: str, values: dict[str, Any]) -> None:
        seen.append((who, {name: settled(value) for name, value in values.items()}))

    async def act(**named: Any) -> str:  # noqa: ANN401
        """Act."""
        note("tool", named)
        if under_way is not None:
            under_way.set()
            await asyncio.Event().wait()
        return "acted"

    def was_done(_effect_id: str, *args: object) -> Absent:
        note("reconcile", dict(zip(NAMES, args, strict=True)))
        return Absent()

    def undo(result: str, *args: object) -> None:
        assert result == "acted"
        note("compensate", dict(zip(NAMES, args, strict=True)))

    parameters = [inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, annotation=one.hint) for one in KEPT]
    act.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    act.__annotations__ = {one.name: one.hint for one in KEPT}
    return tool(settle=0, reconcile=was_done, compensate=undo)(act)


async def test_every_kind_of_parameter_is_called_as_approved_by_every_process(url: str, clock: ManualClock) -> None:
    seen: Seen = []
    script: list[Line] = [call("act", **WROTE), ModelError("it is over")]

    def agent(hold: Holdfast, under_way: asyncio.Event | None = None) -> Any:  # noqa: ANN401
        tools = [act_of(seen, under_way=under_way)]
        once = Retry(max_attempts=1)
        options: dict[str, Any] = {"approve": ["external_action"], "retry": once, "model_retry": once}
        return register(hold, script, tools=tools, builtins=False, **options)[0]

    async with Holdfast(url, clock=clock) as hold:
        handle = await hold.submit(agent(hold), "go")
        async with crashing_worker(hold):
            question = await asked(hold, handle)
        await hold.approve(question.id, by="ann")
    under_way = asyncio.Event()
    async with Holdfast(url, clock=clock) as hold:  # it dies in the middle of the call
        agent(hold, under_way)
        async with crashing_worker(hold), asyncio.timeout(PATIENCE):
            await under_way.wait()
    clock.advance(HOUR)
    async with Holdfast(url, clock=clock) as hold:  # it finds out, calls again, fails later, and undoes
        agent(hold)
        handle = hold.handle(handle.id)
        async with hold.worker():
            await reaches(handle, TaskState.FAILED)
        [effect] = await hold.store.effects(task_id=handle.id, states={EffectState.COMPENSATED})
        assert [one.state for one in await all_approvals(hold, handle)] == [ApprovalState.APPROVED]
    assert effect.arguments == question.arguments_bytes
    [approved] = decode(question.arguments_bytes)
    expected = {name: settled(value) for name, value in act_of([]).restore(approved).items()}
    assert [who for who, _ in seen] == ["tool", "reconcile", "tool", "compensate"]
    for who, values in seen:
        for name in NAMES:
            assert is_same(values[name], expected[name]), (who, name)


async def test_no_approval_for_arguments_that_cannot_be_passed_exactly(url: str) -> None:
    made: list[str] = []

    def act_on(kind: Kind) -> Tool:
        async def act(**_named: object) -> str:
            """Act."""
            made.append(kind.name)
            return "acted"

        parameter = inspect.Parameter(kind.name, inspect.Parameter.KEYWORD_ONLY, annotation=kind.hint)
        act.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
        act.__annotations__ = {kind.name: kind.hint}
        return tool(name=f"act_on_{kind.name}")(act)

    tools = [act_on(kind) for kind in REFUSED_WHEN_CALLED]
    calls = [call(f"act_on_{kind.name}", **{kind.name: kind.wrote}) for kind in REFUSED_WHEN_CALLED]
    async with Holdfast(url) as hold:
        agent, model = register(hold, [calls, "done"], tools=tools, approve=["external_action"], builtins=False)
        handle = await finished(hold, agent)
        assert await all_approvals(hold, handle) == []
        assert await hold.store.effects(task_id=handle.id) == []
    assert made == []
    for kind, words in zip(REFUSED_WHEN_CALLED, tool_results(model), strict=True):
        assert f"its parameter {kind.name!r} cannot be restored unchanged" in words


# A tool that was changed


def clean_v1(made: list[Any], under_way: asyncio.Event | None = None) -> Tool:
    def was_cleaned(_effect_id: str, *args: object) -> Absent:
        made.append(("asked", args))
        return Absent()

    @tool(name="clean", settle=0, reconcile=was_cleaned)
    async def clean(path: str, *, dry_run: bool = True) -> str:
        """Clean."""
        made.append((path, dry_run))
        if under_way is not None:
            under_way.set()
            await asyncio.Event().wait()
        return "cleaned"

    return clean


def clean_v2(made: list[Any], _under_way: asyncio.Event | None = None) -> Tool:
    def was_cleaned(_effect_id: str, *args: object) -> Absent:
        made.append(("asked", args))
        return Absent()

    @tool(name="clean", settle=0, reconcile=was_cleaned)
    async def clean(path: str, *, recursive: bool = True) -> str:
        """Clean, for real."""
        made.append((path, "recursive", recursive))
        return "cleaned for real"

    return clean


def cleaner(hold: Holdfast, clean: Tool) -> tuple[Any, ScriptedModel]:
    script: list[Line] = [call("clean", path="/srv/tmp"), "done"]
    return register(hold, script, tools=[clean], approve=["external_action"], builtins=False)


MISFIT = "it does not take 'dry_run'; it also takes 'recursive'"


async def test_an_approved_call_that_no_longer_fits_goes_to_a_person_and_waits_for_the_old_version(
    url: str, clock: ManualClock
) -> None:
    made: list[Any] = []
    async with Holdfast(url, clock=clock) as hold:
        agent, _ = cleaner(hold, clean_v1(made))
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold):
            question = await asked(hold, handle)
        await hold.approve(question.id, by="ann")
    async with Holdfast(url, clock=clock) as hold:
        _, model = cleaner(hold, clean_v2(made))
        handle = hold.handle(handle.id)
        async with hold.worker():
            for _ in range(2):  # to try again helps only once the tool takes them again
                doubt = await doubt_about(hold, handle)
                assert MISFIT in doubt.question
                assert "it was not called" in doubt.question
                assert doubt.arguments == [{"path": "/srv/tmp", "dry_run": True}]
                last = doubt.approval_id
                await hold.resolve(doubt, Decision.ABSENT, by="ann")

                async def is_asked_again(before: str | None = last) -> bool:
                    return any(one.approval_id not in {None, before} for one in await hold.doubts(handle))

                await until(is_asked_again, patience=PATIENCE)
            doubt = await doubt_about(hold, handle)
        assert model.requests == []
        await hold.resolve(doubt, Decision.ABSENT, by="ann")
    assert made == []
    async with Holdfast(url, clock=clock) as hold:
        cleaner(hold, clean_v1(made))
        handle = hold.handle(handle.id)
        async with hold.worker():
            assert await ended(handle) == "done"
        assert [one.state for one in await all_approvals(hold, handle)] == [ApprovalState.APPROVED]
    assert made == [("/srv/tmp", True)]


async def test_a_call_in_doubt_that_no_longer_fits_is_not_asked_about_with_other_arguments(
    url: str, clock: ManualClock
) -> None:
    made: list[Any] = []
    under_way = asyncio.Event()
    async with Holdfast(url, clock=clock) as hold:
        agent, _ = cleaner(hold, clean_v1(made, under_way))
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold):
            await hold.approve((await asked(hold, handle)).id, by="ann")
            async with asyncio.timeout(PATIENCE):
                await under_way.wait()
    clock.advance(HOUR)
    async with Holdfast(url, clock=clock) as hold:
        _, model = cleaner(hold, clean_v2(made))
        handle = hold.handle(handle.id)
        async with hold.worker():
            doubt = await doubt_about(hold, handle)
            assert MISFIT in doubt.question
            await hold.resolve(doubt, Decision.ABANDON, by="ann")
            assert await ended(handle) == "done"
    assert made == [("/srv/tmp", True)], "neither v2 nor its reconcile was called"
    assert "was given up" in tool_results(model)[0]


async def test_a_question_about_a_call_that_no_longer_fits_is_taken_back(url: str) -> None:
    made: list[Any] = []

    @tool
    async def send(to: str) -> str:
        """Send."""
        made.append(to)
        return "sent"

    script: list[Line] = [[call("clean", path="/srv/tmp"), call("send", to="ann")], "done"]
    options: dict[str, Any] = {"approve": ["external_action"], "builtins": False}
    async with Holdfast(url) as hold:
        agent, _ = register(hold, script, tools=[clean_v1(made), send], **options)
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold):
            await until(lambda: _has_asked(hold, handle, 2), patience=PATIENCE)
        questions = {one.step_key.partition(":")[0]: one for one in await hold.approvals(handle)}
        await hold.approve(questions["send"].id, by="ann")
    async with Holdfast(url) as hold:
        register(hold, script, tools=[clean_v2(made), send], **options)
        handle = hold.handle(handle.id)
        async with hold.worker():
            doubt = await doubt_about(hold, handle)
            states = {one.id: one.state for one in await all_approvals(hold, handle)}
            assert states[questions["clean"].id] is ApprovalState.VOID
            assert made == ["ann"]
            await hold.resolve(doubt, Decision.HAPPENED, result="by hand", by="ann")
            assert await ended(handle) == "done"
    assert made == ["ann"]


async def _has_asked(hold: Holdfast, handle: Handle[Any], number: int) -> bool:
    return len(await hold.approvals(handle)) == number


async def test_an_undo_that_no_longer_fits_goes_to_a_person(url: str) -> None:
    undone: list[Any] = []
    options: dict[str, Any] = {"settle": 0, "compensate": lambda _result, *args: undone.append(args)}

    @tool(name="book", **options)
    async def first(room: str, *, nights: int = 1) -> str:
        """Book."""
        return f"{room} for {nights}"

    @tool(name="book", **options)
    async def second(room: str, *, guests: int = 9) -> str:
        """Book."""
        return f"{room} for {guests}"

    thinking = asyncio.Event()

    async def think(_request: object) -> str:
        thinking.set()
        await asyncio.Event().wait()
        return "never"

    async with Holdfast(url) as hold:
        agent, _ = register(hold, [call("book", room="7"), think], tools=[first], builtins=False)
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold), asyncio.timeout(PATIENCE):
            await thinking.wait()
    async with Holdfast(url) as hold:
        register(hold, ["not said", ModelError("it is over")], tools=[second], builtins=False)
        handle = hold.handle(handle.id)
        async with hold.worker():
            doubt = await doubt_about(hold, handle)
            assert "was not undone" in doubt.question
            assert "it does not take 'nights'; it also takes 'guests'" in doubt.question
            await hold.resolve(doubt, Decision.UNDONE, by="ann")
            await reaches(handle, TaskState.FAILED)
    assert undone == []


# Default factories


class Order(BaseModel):
    item: str
    request_id: str = Field(default_factory=lambda: uuid.uuid4().hex)


def ordering(made: list[str], *, under_way: asyncio.Event | None = None, **options: Any) -> Tool:  # noqa: ANN401
    @tool(**options)
    async def order(what: Order) -> str:
        """Order."""
        made.append(what.request_id)
        if under_way is not None:
            under_way.set()
            await asyncio.Event().wait()
        return f"ordered {what.request_id}"

    return order


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_default_factory_is_asked_about_once(url: str, effect: str) -> None:
    made: list[str] = []
    script: list[Line] = [call("order", what={"item": "disk"}), "done"]
    options: dict[str, Any] = {"approve": ["external_action"], "builtins": False}
    async with Holdfast(url) as hold:
        agent, _ = register(hold, script, tools=[ordering(made, effect=effect)], **options)
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold):
            question = await asked(hold, handle)
        await hold.approve(question.id, by="ann")
    async with Holdfast(url) as hold:
        register(hold, script, tools=[ordering(made, effect=effect)], **options)
        async with hold.worker():
            assert await ended(hold.handle(handle.id)) == "done"
        assert [one.state for one in await all_approvals(hold, handle)] == [ApprovalState.APPROVED]
    [arguments] = decode(question.arguments_bytes)
    assert made == [arguments["what"]["request_id"]]


async def test_a_call_that_is_made_again_is_made_with_the_same_defaults(url: str) -> None:
    made: list[str] = []
    script: list[Line] = [call("order", what={"item": "disk"}), "done"]
    under_way = asyncio.Event()
    async with Holdfast(url) as hold:
        agent, _ = register(hold, script, tools=[ordering(made, under_way=under_way, effect="idempotent")])
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold), asyncio.timeout(PATIENCE):
            await under_way.wait()
    async with Holdfast(url) as hold:
        register(hold, script, tools=[ordering(made, effect="idempotent")])
        async with hold.worker():
            assert await ended(hold.handle(handle.id)) == "done"
    assert len(made) == 2
    assert len(set(made)) == 1


async def test_an_idempotent_call_that_no_longer_fits_is_an_error_and_the_model_asks_again(url: str) -> None:
    made: list[Any] = []

    @tool(name="order", effect="idempotent")
    async def changed(what: Order, urgent: str = "no") -> str:
        """Order."""
        made.append((what.item, urgent))
        return "ordered"

    script: list[Line] = [
        call("order", what={"item": "disk"}),
        call("order", what={"item": "disk"}, urgent="yes"),
        "done",
    ]
    options: dict[str, Any] = {"approve": ["external_action"], "builtins": False}
    async with Holdfast(url) as hold:
        agent, _ = register(hold, script, tools=[ordering(made, effect="idempotent")], **options)
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold):
            question = await asked(hold, handle)
        await hold.approve(question.id, by="ann")
    async with Holdfast(url) as hold:
        _, model = register(hold, script, tools=[changed], **options)
        handle = hold.handle(handle.id)
        async with hold.worker():
            again = await asked(hold, handle)
            assert made == []
            await hold.approve(again.id, by="ann")
            assert await ended(handle) == "done"
    assert "it also takes 'urgent'" in tool_results(model, 0)[0]
    assert made == [("disk", "yes")]


# Journals of older versions


async def test_what_an_older_version_asked_about_is_not_read_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    script: list[Line] = [call("order", what={"item": "disk"}), "done"]
    options: dict[str, Any] = {"approve": ["external_action"], "builtins": False}
    with monkeypatch.context() as patched:
        whole: Callable[[RecordedAnswer], dict[str, Any]] = RecordedAnswer.to_data
        patched.setattr(RecordedAnswer, "to_data", lambda self: {k: v for k, v in whole(self).items() if k != "read"})
        async with Holdfast(url) as hold:
            agent, _ = register(hold, script, tools=[ordering(made)], **options)
            handle = await hold.submit(agent, "go")
            async with crashing_worker(hold):
                question = await asked(hold, handle)
            await hold.approve(question.id, by="ann")
    async with Holdfast(url) as hold:
        register(hold, script, tools=[ordering(made)], **options)
        async with hold.worker():
            assert await ended(hold.handle(handle.id)) == "done"
        assert [one.state for one in await all_approvals(hold, handle)] == [ApprovalState.APPROVED]
    [arguments] = decode(question.arguments_bytes)
    assert made == [arguments["what"]["request_id"]]


# Earlier rounds


async def is_good(_ctx: Context, answer: str) -> bool | str:
    return "good" in answer or "do it better"


async def test_in_a_new_round_a_call_is_known_by_what_the_model_wrote(url: str) -> None:
    made: list[str] = []
    script: list[Line] = [call("order", what={"item": "disk"}), "bad", call("order", what={"item": "disk"}), "good"]
    async with Holdfast(url) as hold:
        agent, model = register(hold, script, tools=[ordering(made)], verify=is_good, builtins=False)
        handle = await finished(hold, agent)
        assert (await handle.task()).round == 2
    [request_id] = made
    assert tool_results(model) == [f"ordered {request_id}"] * 2


async def test_a_sub_agent_takes_over_what_its_sibling_did_by_what_the_model_wrote(url: str) -> None:
    made: list[str] = []
    disk, tape = call("order", what={"item": "disk"}), call("order", what={"item": "tape"})
    left: list[Any] = [disk, "done", tape, "done", tape, disk, "all done"]
    helper = Agent("helper", model=ScriptedModel(lambda _: left.pop(0)), description="Helps.", tools=[ordering(made)])
    both = [call("helper", request="Order a disk."), call("helper", request="Order a tape.")]
    script: list[Line] = [*both, "bad", both[0], "good"]  # the first of them now does what the other one did, too
    async with Holdfast(url) as hold:
        agent, _ = register(hold, script, tools=[helper], verify=is_good)
        await finished(hold, agent)
    assert len(made) == 2
    assert left == []


async def test_a_call_that_was_refused_is_not_made_when_the_tool_appears(url: str) -> None:
    made: list[str] = []
    thinking = asyncio.Event()

    async def think(_request: object) -> str:
        thinking.set()
        await asyncio.Event().wait()
        return "never"

    async with Holdfast(url) as hold:
        agent, _ = register(hold, [call("order", what={"item": "disk"}), think], builtins=False)
        handle = await hold.submit(agent, "go")
        async with crashing_worker(hold), asyncio.timeout(PATIENCE):
            await thinking.wait()
    async with Holdfast(url) as hold:
        _, model = register(hold, ["not said", "done"], tools=[ordering(made)], builtins=False)
        async with hold.worker():
            assert await ended(hold.handle(handle.id)) == "done"
    assert made == []
    assert "there is no tool 'order'" in tool_results(model)[0]
