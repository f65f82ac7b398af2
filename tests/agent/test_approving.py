"""A person approves first: which calls, exactly which arguments, and what the model gets after a rejection."""

from datetime import timedelta

import pytest

from holdfast import (
    Absent,
    ApprovalState,
    Conflict,
    Constraints,
    Happened,
    Holdfast,
    HumanInTheLoop,
    RiskLevel,
    StatePatch,
    TaskState,
    tool,
)
from holdfast.agent.scripted import Line, call
from holdfast.testing import Sandbox, crash_everywhere
from tests.agent.support import PATIENCE, asked, register, tool_results
from tests.engine.support import reaches

DONE: list[tuple[str, object]] = []
SENT: set[str] = set()


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@tool(risk="read_only")
async def look(path: str) -> str:
    """Look."""
    DONE.append(("look", path))
    return "looked"


@tool(risk="write_local", effect="idempotent")
async def write(path: str) -> str:
    """Write."""
    DONE.append(("write", path))
    return "written"


def was_sent(effect_id: str, to: str, copies: int) -> Happened | Absent:
    del copies
    return Happened(f"sent to {to}") if effect_id in SENT else Absent()


@tool(timeout=5, settle=1, reconcile=was_sent)
async def send(to: str, effect_id: str, copies: int = 1) -> str:
    """Send."""
    SENT.add(effect_id)
    DONE.append(("send", (to, copies)))
    return f"sent to {to}"


ALL = [look, write, send]
SCRIPT: list[Line] = [call("look", path="a"), call("write", path="b"), call("send", to="ann"), "done"]


@pytest.mark.parametrize(
    ("levels", "needed"),
    [
        ([], []),
        (["external_action"], ["send"]),
        (["write_local", RiskLevel.EXTERNAL_ACTION], ["write", "send"]),
        (["read_only"], ["look"]),
    ],
)
async def test_which_calls_need_a_person(hold: Holdfast, levels: list[str], needed: list[str]) -> None:
    agent, _ = register(hold, SCRIPT, tools=ALL, approve=levels, builtins=False)
    handle = await hold.submit(agent, "go")
    agreed: list[str] = []
    async with hold.worker():
        for name in needed:
            approval = await asked(hold, handle)
            assert name not in [done for done, _ in DONE]
            agreed.append(approval.step_key.partition(":")[0])
            await hold.approve(approval.id, by="ann")
        assert await handle.result(timeout=PATIENCE) == "done"
    assert agreed == needed
    assert [name for name, _ in DONE] == ["look", "write", "send"]


async def test_an_approval_shows_exactly_what_is_called_and_it_runs_once_with_that(either: Holdfast) -> None:
    agent, model = register(
        either, [call("send", to="ann", copies=3), "done"], tools=ALL, approve=["external_action"], name="clerk"
    )
    handle = await either.submit(agent, "go")
    async with either.worker():
        approval = await asked(either, handle)
        await reaches(handle, TaskState.WAITING)
        assert approval.question == 'May the agent call send(to="ann", copies=3)?'
        assert approval.arguments == [{"to": "ann", "copies": 3}]
        assert (approval.risk, approval.requested_by, approval.step_key) == ("external_action", "clerk", "send:1.0")
        assert DONE == []
        await either.approve(approval.id, by="ann")
        await handle.result(timeout=PATIENCE)
    assert DONE == [("send", ("ann", 3))]
    assert tool_results(model) == ["sent to ann"]
    [effect] = await either.store.effects(task_id=handle.id)
    used = await either.store.approval(approval.id)
    assert used is not None
    assert used.consumed_by == effect.effect_id


async def test_a_rejected_call_is_not_made_and_the_model_goes_on(hold: Holdfast) -> None:
    agent, model = register(
        hold, [[call("send", to="ann"), call("look", path="a")], "done"], tools=ALL, approve=["external_action"]
    )
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        approval = await asked(hold, handle)
        await hold.reject(approval.id, by="ann", note="not on a Sunday")
        assert await handle.result(timeout=PATIENCE) == "done"
    assert DONE == [("look", "a")]
    refused, looked = tool_results(model)
    assert refused.startswith("Error: Rejected: ")
    assert refused.endswith("rejected by ann: not on a Sunday")
    assert looked == "looked"


async def test_approvals_survive_crashes(app: Holdfast) -> None:
    script: list[Line] = [[call("send", to="ann"), call("write", path="x")], call("send", to="bob"), "done"]
    agent, model = register(app, script, tools=ALL, approve=["external_action", "write_local"])

    async def scenario(box: Sandbox) -> tuple[list[str], list[tuple[str, object]]]:
        DONE.clear()
        handle = await box.hold.submit(agent, "go")
        while not (await handle.task()).state.is_terminal:
            await box.idle()
            for approval in await box.hold.approvals(handle):
                if "bob" in approval.question:
                    await box.hold.reject(approval.id, by="ann")
                else:
                    await box.hold.approve(approval.id, by="ann")
            await box.advance(10)
        assert await handle.result(timeout=1) == "done"
        assert DONE.count(("send", ("ann", 1))) == 1
        return [text.partition(":")[0] for text in tool_results(model)], sorted(set(DONE), key=str)

    survived = await crash_everywhere(app, scenario)
    assert survived.result == (["sent to ann", "written", "Error"], [("send", ("ann", 1)), ("write", "x")])


async def test_only_deciders_may_decide(hold: Holdfast) -> None:
    agent, _ = register(
        hold, [call("send", to="bob"), "done"], tools=ALL, approve=["external_action"], deciders=["ann"]
    )
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        approval = await asked(hold, handle)
        assert approval.deciders == ("ann",)
        with pytest.raises(Conflict, match="ann"):
            await hold.approve(approval.id, by="eve")
        assert DONE == []
        await hold.approve(approval.id, by="ann")
        await handle.result(timeout=PATIENCE)
    assert len(DONE) == 1


async def test_an_approval_that_expires_is_a_rejection(app: Holdfast, box: Sandbox) -> None:
    agent, model = register(
        app, [call("send", to="ann"), "done"], tools=ALL, approve=["external_action"],
        approval_expires=timedelta(hours=1),
    )  # fmt: skip
    handle = await app.submit(agent, "go")
    assert await handle.result(timeout=2 * 3600) == "done"
    assert DONE == []
    [error] = tool_results(model)
    assert "there was no decision in time" in error
    [approval] = await app.approvals(handle, states=list(ApprovalState))
    assert approval.state is ApprovalState.EXPIRED
    assert (await box.trace(handle)).took >= timedelta(hours=1)


async def test_a_patch_from_outside_changes_what_needs_a_person_from_the_next_call_on(hold: Holdfast) -> None:
    strict = Constraints(human_in_the_loop=HumanInTheLoop(required_for_risk_levels=(RiskLevel.EXTERNAL_ACTION,)))

    @tool(risk="read_only")
    async def change(strictly: bool) -> str:
        """A user changes the rules meanwhile."""
        version = (await handle.task()).version
        patch = StatePatch(constraints=strict if strictly else Constraints())
        await hold.patch_state(handle, patch, version=version, by="ann", reason="new rules")
        return "changed"

    script: list[Line] = [
        call("send", to="a"),
        call("change", strictly=True),
        call("send", to="b"),
        call("change", strictly=False),
        call("send", to="c"),
        "done",
    ]
    agent, _ = register(hold, script, tools=[*ALL, change])
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        approval = await asked(hold, handle)
        assert 'to="b"' in approval.question
        assert DONE == [("send", ("a", 1))]
        await hold.approve(approval.id, by="ann")
        await handle.result(timeout=PATIENCE)
    assert [("send", (to, 1)) for to in ("a", "b", "c")] == DONE
    assert len(await hold.approvals(handle, states=list(ApprovalState))) == 1


async def test_built_in_tools_need_no_approval_for_external_actions(hold: Holdfast) -> None:
    agent, _ = register(
        hold, [call("record_fact", key="a", value="b"), "done"], approve=["external_action", "write_local"]
    )
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        assert await handle.result(timeout=PATIENCE) == "done"
