"""Talking to an agent: each message is read once, in order, before the next model call, whatever crashes."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from holdfast import (
    Conflict,
    Context,
    Holdfast,
    InvalidValue,
    NotFound,
    Request,
    TaskCancelled,
    TaskFailed,
    TaskState,
    tool,
)
from holdfast.agent.first_messages import CARRIED_BYTES
from holdfast.agent.scripted import Answer, call
from holdfast.agent.transcript import read_transcript
from holdfast.model.commit import Commit, Verdict
from holdfast.model.history import measure
from holdfast.model.operations import RequireQuiet
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.support import PATIENCE, asked, finished, heard, keys_of, look, register, shown
from tests.engine.effects.support import Send, stand_between
from tests.engine.support import reaches


async def test_a_message_is_read_before_the_next_model_call(either: Holdfast) -> None:
    @tool(risk="read_only")
    async def listen() -> str:
        """A user sends a message meanwhile."""
        await either.send(handle, "First.", by="ann")
        await either.send(handle, "Second.")
        return "listened"

    agent, model = register(either, [call("listen"), "done"], tools=[listen])
    handle = await either.submit(agent, "go")
    async with either.worker():
        assert await handle.result(timeout=PATIENCE) == "done"
    assert shown(model) == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "listened"),
        ("user", "First."),
        ("user", "Second."),
    ]
    assert await keys_of(either, handle) == ["llm:1", "listen:1.0", "message:1", "message:2", "llm:2"]


async def test_a_message_to_a_waiting_agent_is_read_when_it_goes_on(hold: Holdfast) -> None:
    agent, model = register(hold, [call("ask_question", question="Which?"), "done"])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, handle)
        await reaches(handle, TaskState.WAITING)
        await hold.send(handle, "By the way.")
        assert (await handle.task()).state is TaskState.WAITING
        await hold.answer(question.id, "the red one", by="ann")
        await handle.result(timeout=PATIENCE)
    assert shown(model)[-2:] == [("tool", "the red one"), ("user", "By the way.")]


async def test_a_message_that_is_not_read_yet_outlives_a_prune(hold: Holdfast) -> None:
    """Otherwise the agent would never end: its inbox counts the message, and there is nothing to read."""
    agent, model = register(hold, [call("ask_question", question="Which?"), "done"])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        question = await asked(hold, handle)
        await hold.send(handle, "By the way.")
        assert (await hold.store.prune(timedelta(0))).events == 0
        await hold.answer(question.id, "the red one", by="ann")
        assert await handle.result(timeout=PATIENCE) == "done"
    assert heard(model) == ["go", "By the way."]
    assert len(model.requests) == 2


async def test_a_message_before_the_first_claim_is_read_after_the_task(hold: Holdfast) -> None:
    agent, model = register(hold, ["done"])
    handle = await hold.submit(agent, "go")
    await hold.send(handle, "One more thing.")
    async with hold.worker():
        await handle.result(timeout=PATIENCE)
    assert heard(model) == ["go", "One more thing."]
    assert len(model.requests) == 1


async def test_a_message_that_comes_with_the_final_answer_is_answered_too(hold: Holdfast) -> None:
    async def answer(request: Request) -> Answer:
        if request.turn == 0:
            await hold.send(handle, "Wait!")
        return f"answer {request.turn}"

    agent, model = register(hold, answer)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        assert await handle.result(timeout=PATIENCE) == "answer 1"
    assert shown(model) == [("user", "go"), ("assistant", "answer 0"), ("user", "Wait!")]
    assert sum(move.to_state is TaskState.RUNNING for move in await hold.store.history(handle.id)) == 1


@pytest.mark.parametrize("verified", [False, True])
async def test_a_message_at_the_very_last_moment_keeps_the_task_going(either: Holdfast, verified: bool) -> None:
    agent, model = register(either, ["first", "second"], verify=(lambda _ctx, _result: True) if verified else None)
    sent = 0

    async def say_something_before_the_end(commits: Sequence[Commit], send: Send) -> list[Verdict]:
        nonlocal sent
        ends = any(isinstance(operation, RequireQuiet) for commit in commits for operation in commit.operations)
        if ends and not sent:
            sent += 1  # the agent has looked for messages for the last time, and found none
            await either.send(handle, "Wait!")
        return await send(commits)

    stand_between(either, say_something_before_the_end)
    handle = await either.submit(agent, "go")
    async with either.worker():
        assert await handle.result(timeout=PATIENCE) == "second"
    assert sent == 1
    assert shown(model) == [("user", "go"), ("assistant", "first"), ("user", "Wait!")]
    reasons = [move.reason for move in await either.store.history(handle.id)]
    assert any(reason.startswith("not over yet: ") for reason in reasons)
    assert (await handle.task()).attempts <= 1


async def test_messages_are_read_once_and_in_order_whatever_crashes(app: Holdfast) -> None:
    current: list[str] = []
    sent: list[str] = []

    async def answer(request: Request) -> Answer:
        """Send messages while the model answers, mostly during answers that would have been the last."""
        turn = request.turn or 0
        for text in (f"message {turn}.0", f"message {turn}.1"):
            if turn < 4 and text not in sent:
                await app.send(current[-1], text, key=text)
                sent.append(text)
        return call("look", place=str(turn)) if turn == 1 else f"answer {turn}"

    agent, model = register(app, answer, tools=[look])

    async def scenario(box: Sandbox) -> int:
        sent.clear()
        handle = await box.hold.submit(agent, "go", delay=1)
        current.append(handle.id)
        result = await handle.result(timeout=3600)
        # What the model was shown in the end equals the journal, in the order of the journal.
        recorded = [(one.role, one.content) for one in read_transcript(await box.hold.store.steps(handle.id))]
        assert [*shown(model), ("assistant", result)] == [("user", "go"), *recorded]
        assert heard(model) == ["go", *sent]
        return len(sent) % 2

    survived = await crash_everywhere(app, scenario)
    assert survived.crashes > 10


async def test_messages_are_read_once_across_rounds(hold: Holdfast) -> None:
    async def answer(request: Request) -> Answer:
        await hold.send(handle, f"message {request.turn}", key=str(request.turn)) if request.turn in {0, 2} else None
        return f"answer {request.turn}"

    verdicts = iter(["not yet", True])
    agent, model = register(hold, answer, verify=lambda _ctx, _result: next(verdicts))
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        assert await handle.result(timeout=PATIENCE) == "answer 3"
    assert [content for _, content in shown(model) if "accepted" not in content] == [
        "go",
        "answer 0",
        "message 0",
        "answer 1",
        "answer 2",
        "message 2",
    ]


async def test_the_same_key_says_nothing_new(hold: Holdfast) -> None:
    agent, model = register(hold, ["done"])
    handle = await hold.submit(agent, "go")
    for text in ("Hello.", "Hello again."):
        await hold.send(handle, text, key="greeting")
    await hold.send(handle.id, "Other.", key="other")
    async with hold.worker():
        await handle.result(timeout=PATIENCE)
    assert heard(model) == ["go", "Hello.", "Other."]


# Refused


async def test_a_completed_task_says_how_to_go_on(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    handle = await finished(hold, agent)
    with pytest.raises(
        Conflict, match=r"is completed and reads no more messages; .* hold.submit\(agent, text, after=handle\)"
    ):
        await hold.send(handle, "Hello?")


async def test_a_cancelled_task_says_how_to_go_on(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    handle = await hold.submit(agent, "go")
    await hold.cancel(handle)
    with pytest.raises(Conflict, match="is cancelled"):
        await hold.send(handle, "Hello?")


async def test_a_failed_task_says_how_to_go_on(hold: Holdfast) -> None:
    agent, model = register(hold, lambda request: "found" if len(request.messages) > 1 else "", max_senseless_answers=0)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=PATIENCE)
        with pytest.raises(Conflict, match=r"has failed; send the message with hold.resume\(task, message=...\)"):
            await hold.send(handle, "Hello?")
        await hold.resume(handle, message="Hello!", by="ann")
        assert await handle.result(timeout=PATIENCE) == "found"
    assert heard(model)[-1] == "Hello!"


async def test_a_task_in_review_reads_nothing(hold: Holdfast) -> None:
    async def check(_ctx: Context, _result: str) -> bool:
        with pytest.raises(Conflict, match="is being verified and reads no messages"):
            await hold.send(handle, "Hello?")
        refused.append(True)
        return True

    refused: list[bool] = []
    agent, _ = register(hold, ["done"], verify=check)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        await handle.result(timeout=PATIENCE)
    assert refused == [True]


async def test_what_cannot_be_said(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    handle = await hold.submit(agent, "go")
    for nothing in ("", " \n", None, 3):
        with pytest.raises(InvalidValue, match="give a text"):
            await hold.send(handle, nothing)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="NUL or a lone surrogate"):
        await hold.send(handle, "a\0b")
    with pytest.raises(InvalidValue, match="by is empty"):
        await hold.send(handle, "Hello.", by="")
    with pytest.raises(NotFound):
        await hold.send("unknown", "Hello.")


# Going on from a task that has ended


async def test_a_task_goes_on_from_another_with_its_state_and_conversation(either: Holdfast) -> None:
    agent, model = register(
        either,
        [
            call("record_fact", key="color", value="red"),
            call("update_plan", plan=["a", "b"], current_step="a"),
            "It is red.",
            "As I said: red.",
            "Still red.",
        ],
    )
    first = await finished(either, agent, "What color?")
    second = await finished(either, agent, "Sure?", after=first)
    third = await finished(either, agent, "Really?", after=second.id)
    assert await third.result() == "Still red."
    said = [(role, content) for role, content in shown(model) if content and role in {"user", "assistant"}]
    assert said == [
        ("user", "What color?"),
        ("assistant", "It is red."),
        ("user", "Sure?"),
        ("assistant", "As I said: red."),
        ("user", "Really?"),
    ]
    state = await either.state(third)
    assert (state.goal, state.plan, state.current_step) == ("Really?", ("a", "b"), "a")
    assert [(fact.key, fact.value) for fact in state.known_facts] == [("color", "red")]
    assert await keys_of(either, third) == ["llm:1"]


async def test_going_on_survives_crashes(app: Holdfast) -> None:
    agent, model = register(app, [call("look"), "one", call("look", place="there"), "two"], tools=[look])

    async def scenario(box: Sandbox) -> tuple[str, list[tuple[str, str]]]:
        first = await box.hold.submit(agent, "go")
        await first.result(timeout=3600)
        second = await box.hold.submit(agent, "on", after=first)
        return await second.result(timeout=3600), shown(model)

    survived = await crash_everywhere(app, scenario)
    assert survived.result[0] == "two"
    assert [content for _, content in survived.result[1]] == [
        "go", "", "nothing here", "one", "on", "", "nothing there",
    ]  # fmt: skip


async def test_messages_and_rejections_are_part_of_what_is_gone_on_from(hold: Holdfast) -> None:
    verdicts = iter(["too short", True, True])
    agent, model = register(hold, ["one", "two", "three"], verify=lambda _ctx, _result: next(verdicts))
    first = await hold.submit(agent, "go")
    await hold.send(first, "Be nice.")
    async with hold.worker():
        await first.result(timeout=PATIENCE)
    await finished(hold, agent, "on", after=first)
    contents = [content for _, content in shown(model)]
    assert [content for content in contents if not content.startswith("Your work was not accepted: too short")] == [
        "go",
        "Be nice.",
        "one",
        "two",
        "on",
    ]
    assert len(contents) == 6


async def test_another_agent_may_go_on_and_so_may_one_from_a_failure(hold: Holdfast) -> None:
    agent, _ = register(hold, [call("look"), ""], tools=[look], max_senseless_answers=0)
    other, model = register(hold, [call("look"), "never", "mended"], name="other", tools=[look])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=PATIENCE)
    second = await finished(hold, other, "Mend it.", after=handle)
    assert await second.result() == "mended"
    assert heard(model)[0] == "go"
    assert heard(model)[-1] == "Mend it."


async def test_a_task_that_has_not_ended_is_talked_to_instead(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    handle = await hold.submit(agent, "go")
    with pytest.raises(Conflict, match=r"is pending and has not ended; send it a message with hold.send"):
        await hold.submit(agent, "on", after=handle)


async def test_only_agents_go_on_from_other_tasks(hold: Holdfast) -> None:
    @hold.task
    async def plain(_ctx: Context, text: str) -> str:
        return text

    agent, _ = register(hold, ["done"])
    handle = await finished(hold, agent)
    with pytest.raises(InvalidValue, match="cannot continue another task with after="):
        await hold.submit(plain, "on", after=handle)
    with pytest.raises(InvalidValue, match="only agents registered here can"):
        await hold.submit("elsewhere", "on", after=handle, queue="q")
    with pytest.raises(NotFound):
        await hold.submit(agent, "on", after="unknown")


async def test_a_plain_task_is_not_talked_to(hold: Holdfast) -> None:
    @hold.task
    async def plain(_ctx: Context) -> None: ...

    handle = await hold.submit(plain)
    with pytest.raises(InvalidValue, match="does not belong to an agent and reads no messages"):
        await hold.send(handle, "hello")


async def test_a_plain_task_can_be_gone_on_from(hold: Holdfast) -> None:
    @hold.task
    async def plain(_ctx: Context, text: str) -> str:
        return text

    agent, model = register(hold, ["done"])
    handle = await hold.submit(plain, "hello")
    async with hold.worker():
        await handle.result(timeout=PATIENCE)
    await finished(hold, agent, "on", after=handle)
    assert heard(model) == ["hello", "on"]


async def test_a_task_that_was_pruned_meanwhile_is_a_clear_error(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done", "never"])
    first = await finished(hold, agent)
    second = await hold.submit(agent, "on", after=first)
    assert (await hold.store.prune(older_than=timedelta(0))).tasks == 1
    async with hold.worker():
        with pytest.raises(TaskFailed, match=f"NotFound.*{first.id}"):
            await second.result(timeout=PATIENCE)
    with pytest.raises(NotFound, match=first.id):
        await hold.submit(agent, "on", after=first)


async def test_once_it_has_begun_the_task_before_it_may_be_pruned(hold: Holdfast) -> None:
    agent, model = register(hold, ["one", call("ask_question", question="Go on?"), "two"])
    first = await finished(hold, agent)
    second = await hold.submit(agent, "on", after=first)
    async with hold.worker():
        question = await asked(hold, second)
        await hold.store.prune(older_than=timedelta(0))
        assert await hold.store.get(first.id) is None
        await hold.answer(question.id, "yes", by="ann")
        assert await second.result(timeout=PATIENCE) == "two"
    assert [content for _, content in shown(model)][-5:] == ["go", "one", "on", "", "yes"]


async def test_a_large_conversation_is_carried_within_its_bound(hold: Holdfast) -> None:
    @tool(risk="read_only")
    async def read(part: int) -> str:
        """Read."""
        return f"{part} " + "word " * 700

    def answer(request: Request) -> Answer:
        is_over = request.turn == 20 or request.messages[-1].content == "Go on."
        return "That is all." if is_over else call("read", part=request.turn)

    agent, model = register(hold, answer, tools=[read])
    first = await finished(hold, agent, "The goal.")
    assert measure(model.requests[-1].messages).bytes > 2 * CARRIED_BYTES
    handle = first
    for _ in range(3):
        handle = await finished(hold, agent, "Go on.", after=handle)
        carried = model.requests[-1].messages
        assert measure(carried).bytes < CARRIED_BYTES + 1_000
        assert carried[0].content == "The goal."
        assert carried[-1].content == "Go on."
        assert any("left out" in message.content or "omitted" in message.content for message in carried)


async def test_a_cancelled_task_can_be_gone_on_from(hold: Holdfast) -> None:
    agent, model = register(hold, [call("ask_question", question="Go on?"), "done"])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        await asked(hold, handle)
        await hold.cancel(handle)
        with pytest.raises(TaskCancelled):
            await handle.result(timeout=PATIENCE)
    await finished(hold, agent, "on", after=handle)
    assert [content for _, content in shown(model)][-4:] == [
        "go",
        "",
        "The result of this call is not known.",
        "on",
    ]
