"""Who says whether the work is good, and what happens to work that is not."""

import pytest

from holdfast import (
    Absent,
    Context,
    Happened,
    Holdfast,
    Human,
    Judge,
    Retry,
    ScriptedModel,
    StepState,
    TaskFailed,
    TaskState,
    tool,
)
from holdfast.agent.beginning import REJECTED
from holdfast.agent.scripted import Line, call
from holdfast.agent.verifying import read_judgement
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.support import PATIENCE, asked, finished, heard, keys_of, look, register, shown, told
from tests.engine.support import reaches


async def test_rejected_work_goes_back_with_the_reason_and_the_conversation(either: Holdfast) -> None:
    async def check(_ctx: Context, result: str) -> bool | str:
        return True if "sources" in result else "it names no sources"

    agent, model = register(either, [call("look"), "short", "with sources"], tools=[look], verify=check)
    handle = await finished(either, agent)
    assert await handle.result() == "with sources"
    assert shown(model) == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "nothing here"),
        ("assistant", "short"),
        ("user", REJECTED.format(reason="it names no sources")),
    ]
    assert [request.turn for request in model.requests] == [0, 1, 2]
    assert await keys_of(either, handle) == ["llm:1", "look:1.0", "llm:2", "feedback", "llm:3"]
    assert (await handle.task()).round == 2


@pytest.mark.parametrize("verify", [lambda _ctx, _result: False, lambda _ctx, _result: "never good"])
async def test_attempts_run_out(hold: Holdfast, verify: object) -> None:
    agent, model = register(hold, lambda request: f"try {request.turn}", verify=verify, retry=Retry(max_attempts=3))
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match="Rejected: ") as failed:
            await handle.result(timeout=PATIENCE)
    assert failed.value.failure.type_name == "Rejected"
    assert len(model.requests) == 3
    assert [content for role, content in shown(model) if role == "assistant"] == ["try 0", "try 1"]
    assert sum("not accepted" in text for text in heard(model)) == 2
    assert (await handle.task()).result == "try 2"


async def test_what_was_done_once_is_not_done_again_in_the_next_round(app: Holdfast) -> None:
    sent: list[tuple[str, str]] = []

    def was_sent(effect_id: str, to: str) -> Happened | Absent:
        return Happened(f"sent to {to}") if effect_id in [sent_id for _, sent_id in sent] else Absent()

    @tool(timeout=5, settle=1, reconcile=was_sent)
    async def send(to: str, effect_id: str) -> str:
        """Send."""
        sent.append((to, effect_id))
        return f"sent to {to}"

    script: list[Line] = [
        [call("send", to="ann"), call("send", to="bob")],
        "first",
        [call("look"), call("send", to="ann"), call("send", to="eve")],
        call("send", to="ann"),
        "second",
    ]
    agent, model = register(
        app, script, tools=[send, look], verify=lambda _ctx, result: True if result == "second" else "again"
    )

    async def scenario(box: Sandbox) -> tuple[list[str], list[str]]:
        sent.clear()
        handle = await box.hold.submit(agent, "go")
        assert await handle.result(timeout=3600) == "second"
        assert len({effect for _, effect in sent}) == len(sent)
        return sorted(to for to, _ in sent), told(model)

    survived = await crash_everywhere(app, scenario)
    # The first "ann" of the second round is the one of the first round; the second is another one.
    assert survived.result[0] == ["ann", "ann", "bob", "eve"]
    assert survived.result[1] == [
        "sent to ann", "sent to bob", "nothing here", "sent to ann", "sent to eve", "sent to ann",
    ]  # fmt: skip


async def test_a_judge_accepts_or_says_why_not(either: Holdfast) -> None:
    judge = ScriptedModel(lambda request: "ACCEPT" if "better" in request.messages[-1].content else "REJECT: too thin")
    agent, model = register(either, ["thin", "better"], verify=Judge(criteria="It is thick.", model=judge))
    handle = await finished(either, agent, "Write it.")
    assert await handle.result() == "better"
    assert heard(model)[-1] == REJECTED.format(reason="too thin")
    system, user = shown(judge)
    assert "It is thick." in system[1]
    assert user[1] == "The task:\nWrite it.\n\nThe result:\nbetter"
    judged = [step for step in await either.store.steps(handle.id) if step.key == "verify/judge"]
    assert [(step.round, step.kind, step.state) for step in judged] == [
        (1, "llm", StepState.COMPLETED),
        (2, "llm", StepState.COMPLETED),
    ]


async def test_a_judge_without_a_model_is_that_of_the_agent(hold: Holdfast) -> None:
    agent, model = register(
        hold, lambda request: "ACCEPT" if "check the work" in request.messages[0].content else "done", verify=Judge()
    )
    handle = await finished(hold, agent)
    assert await handle.result() == "done"
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    "said",
    [
        "ACCEPT",
        "accept.",
        "ACCEPT: fine",
        "**ACCEPT** - fine",
        '"ACCEPT"',
        "<think>REJECT?</think>\nACCEPT",
        "Accepted",
    ],
)
def test_what_counts_as_yes(said: str) -> None:
    assert read_judgement(said) is True


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("I like it very much.", "I like it very much."),
        ("Acceptable, perhaps.", "Acceptable, perhaps."),
        ("", "the judge said nothing"),
        ("**REJECT**: bad", "bad"),
        ("reject", "reject"),
    ],
)
async def test_what_is_neither_yes_nor_no_is_no(hold: Holdfast, said: str, reason: str) -> None:
    judge = ScriptedModel(lambda request: "accept." if "second" in request.messages[-1].content else said)
    agent, model = register(hold, ["first", "second"], verify=Judge(model=judge))
    await finished(hold, agent)
    assert heard(model)[-1] == REJECTED.format(reason=reason)


async def test_a_judge_is_not_asked_again_about_what_it_has_judged(app: Holdfast) -> None:
    judge = ScriptedModel(lambda request: "ACCEPT" if "second" in request.messages[-1].content else "REJECT: no")
    agent, _ = register(app, ["first", "second"], verify=Judge(model=judge))

    async def scenario(box: Sandbox) -> str:
        judge.requests.clear()
        handle = await box.hold.submit(agent, "go")
        result = await handle.result(timeout=3600)
        assert len(judge.requests) <= 3  # at most the call under way twice
        return result

    survived = await crash_everywhere(app, scenario)
    assert survived.result == "second"


@pytest.mark.parametrize("verify", ["human", Human(question="Good enough?", deciders=("ann",))])
async def test_a_person_verifies(hold: Holdfast, verify: object) -> None:
    agent, model = register(hold, ["first", "second"], verify=verify)
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        approval = await asked(hold, handle)
        await reaches(handle, TaskState.WAITING)
        assert approval.question == ("Is the work done?" if verify == "human" else "Good enough?")
        assert "first" in str(approval.arguments)
        await hold.reject(approval.id, by="ann", note="try harder")
        again = await asked(hold, handle)
        assert "second" in str(again.arguments)
        await hold.approve(again.id, by="ann")
        assert await handle.result(timeout=PATIENCE) == "second"
    assert "rejected by ann: try harder" in heard(model)[-1]
    assert [content for _, content in shown(model)][:2] == ["go", "first"]


async def test_a_manual_retry_starts_the_conversation_over(hold: Holdfast) -> None:
    agent, model = register(
        hold, lambda _: "done" if len(model.requests) > 2 else "", max_senseless_answers=1, builtins=False
    )
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=PATIENCE)
        await hold.retry(handle)
        assert await handle.result(timeout=PATIENCE) == "done"
    assert shown(model) == [("user", "go")]
    assert await keys_of(hold, handle) == ["llm:1", "llm:2", "llm:3"]
