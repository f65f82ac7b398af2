"""A run that begins with a state: what is given at ``submit``, and what is patched before the first claim."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Agent,
    AgentState,
    ArtifactRef,
    Budget,
    Conflict,
    Constraints,
    Context,
    Holdfast,
    HumanInTheLoop,
    InvalidValue,
    KeyConflict,
    KnownFact,
    Price,
    RiskLevel,
    ScriptedModel,
    StateConflict,
    StatePatch,
    TaskFailed,
    TaskState,
    tool,
)
from holdfast.agent.scripted import call
from holdfast.engine.api.first_state import GIVEN
from holdfast.engine.manage import state as stating
from holdfast.model.checkpoints import damage_of
from holdfast.model.worker import Claim, NewWorker
from tests.agent.support import PATIENCE, asked, finished, register, shown

EARLY = datetime(2026, 1, 2, tzinfo=UTC)
NOTED = KnownFact(key="service", value="X", source="user", at=EARLY)
MENTIONED = ArtifactRef(
    artifact_id="log_123", type="tool_result.logs", summary="nginx error log", bytes=48231, step="deploy"
)
GIVEN_STATE = AgentState(
    goal="Deploy X",
    plan=("look", "deploy", "verify"),
    known_facts=(NOTED,),
    open_questions=("Which namespace?",),
    artifacts=(MENTIONED,),
    risk_flags=("friday",),
    current_step="deploy",
    completed_steps=("look",),
)


def approving(*levels: RiskLevel) -> Constraints:
    return Constraints(human_in_the_loop=HumanInTheLoop(required_for_risk_levels=levels))


async def patches_of(hold: Holdfast, handle: Any) -> list[tuple[int, str, str]]:  # noqa: ANN401
    return [(one.version, one.author, one.reason) for one in await hold.state_history(handle)]


# What is given is what it begins with


async def test_a_state_is_the_start_of_a_run(hold: Holdfast) -> None:
    agent, model = register(hold, ["done"])
    handle = await hold.submit(agent, "Deploy X", state=GIVEN_STATE)
    assert (await handle.task()).version == 0
    assert await hold.state(handle) == GIVEN_STATE
    assert await hold.state_history(handle) == []
    async with hold.worker():
        assert await handle.result(timeout=PATIENCE) == "done"
    assert await hold.state(handle, at=1) == GIVEN_STATE
    assert await patches_of(hold, handle) == [(1, "submit", GIVEN)]
    system, said = shown(model)[0][1], shown(model)[1]
    for words in ("look", "deploy", "verify", "Which namespace?", "friday", '"service"', "log_123"):
        assert words in system
    assert said == ("user", "Deploy X")


async def test_plan_facts_and_artifacts_by_themselves(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    stored = await hold.artifacts.write(b"a long log", media_type="text/plain")
    named = ArtifactRef(artifact_id=(await hold.artifacts.write(b"other")).id, type="log", summary="mine", bytes=0)
    handle = await finished(
        hold, agent, plan=["look", "mend"], facts={"disk": "97 %", "hosts": ["a"]}, artifacts=[stored, named, stored.id]
    )
    state = await hold.state(handle)
    assert (state.goal, state.plan) == ("go", ("look", "mend"))
    assert [(one.key, one.value, one.source) for one in state.known_facts] == [
        ("disk", "97 %", "submit"),
        ("hosts", ["a"], "submit"),
    ]
    assert all(one.at is not None for one in state.known_facts)
    assert state.artifacts == (
        ArtifactRef(artifact_id=stored.id, type="text/plain", summary="", bytes=10),
        replace(named, bytes=5),
    )


async def test_any_text_and_any_value_come_back(hold: Holdfast) -> None:
    odd = "nothing \0, half \ud800, \u2028"
    given = replace(
        GIVEN_STATE,
        plan=(odd,),
        known_facts=(KnownFact(key=odd, value={odd: [1, 1.5, True, None, 2**60]}, source=odd, at=EARLY),),
        artifacts=(ArtifactRef(artifact_id="a", type=odd, summary=odd, bytes=1, step=odd),),
        current_step=odd,
    )
    agent, _ = register(hold, ["done"])
    handle = await hold.submit(agent, "Deploy X", state=given)
    fork = await hold.fork(handle, user_input=("Deploy Y",))
    assert (await hold.submit(agent, "Deploy X", state=given, key="k")).id
    assert await hold.state(fork) == replace(given, goal="Deploy Y")
    async with hold.worker():
        await handle.result(timeout=PATIENCE)
    assert await hold.state(handle) == given


async def test_they_come_on_top_of_the_state(quick: Holdfast) -> None:
    agent, _ = register(quick, ["done"])
    handle = await quick.submit(
        agent, "Deploy X", state=GIVEN_STATE, plan=["only this"], facts=[replace(NOTED, key="b")]
    )
    state = await quick.state(handle)
    assert state.plan == ("only this",)
    assert [one.key for one in state.known_facts] == ["service", "b"]
    assert state.risk_flags == ("friday",)


async def test_the_goal_and_the_text(quick: Holdfast) -> None:
    """The goal is the state's; the text is what is said. Without a text, the goal is said, and without a goal, the
    text is the goal."""
    agent, model = register(quick, ["a", "b", "c", "d"])
    both = await finished(quick, agent, "Go on with step two", state=GIVEN_STATE)
    assert (await quick.state(both)).goal == "Deploy X"
    assert shown(model)[1] == ("user", "Go on with step two")
    for alone in (await quick.submit(agent, state=GIVEN_STATE), await quick.submit(agent, GIVEN_STATE)):
        async with quick.worker():
            await alone.result(timeout=PATIENCE)
        assert (await quick.state(alone)).goal == "Deploy X"
        assert shown(model)[1] == ("user", "Deploy X")
    text = await finished(quick, agent, "Deploy Y", state=replace(GIVEN_STATE, goal=""))
    assert (await quick.state(text)).goal == "Deploy Y"


async def test_artifacts_are_kept_while_the_task_waits(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    stored = await hold.artifacts.write(b"a long log")
    handle = await hold.submit(agent, "go", artifacts=[stored.id])
    assert [one.artifact_id for one in await hold.store.artifact_links(handle.id)] == [stored.id]
    await hold.store.prune(older_than=timedelta(0))
    assert (await hold.artifacts.stat(stored.id)).size == 10


async def test_many_begin_with_the_same(quick: Holdfast) -> None:
    agent, _ = register(quick, ["done"])
    many = await quick.submit_many(
        agent, [("one",), ("two",)], plan=["look"], artifacts=[await quick.artifacts.write(b"x")]
    )
    assert [(await quick.state(one)).goal for one in many] == ["one", "two"]
    assert [(await quick.state(one)).plan for one in many] == [("look",), ("look",)]
    assert all([await quick.store.artifact_links(one.id) for one in many])


async def test_a_child_begins_with_a_patch(quick: Holdfast) -> None:
    agent, _ = register(quick, ["Done."])

    @quick.task
    async def parent(ctx: Context) -> str:
        with pytest.raises(InvalidValue, match=r"ctx.submit\(agent.bind\(text, start=StatePatch"):
            ctx.submit(agent, "Deploy X", plan=["look"])  # type: ignore[call-overload]
        start = StatePatch(replace_plan=("look",), budget=Budget(max_steps=5)).to_json()
        child = await ctx.submit(agent.bind("Deploy X", start=start))
        await child.result()
        return child.id

    task = await quick.submit(parent)
    async with quick.worker():
        state = await quick.state(await task.result(timeout=PATIENCE))
    assert (state.goal, state.plan, state.budget.max_steps) == ("Deploy X", ("look",), 5)


async def test_an_agent_is_submitted_as_it_was_registered(quick: Holdfast) -> None:
    agent = Agent("devops", model=ScriptedModel(["Done."]))
    quick.register(agent)
    with pytest.raises(InvalidValue, match=r"submit .* what hold.register returned for an agent"):
        await quick.submit(agent, "Deploy X")  # type: ignore[call-overload]


async def test_where_the_agent_is_not_known_it_is_reported_when_the_state_begins(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold, Holdfast(f"sqlite:///{tmp_path}/hold.db") as command:
        agent, _ = register(hold, ["Done."])
        task = await hold.submit(agent, "Deploy X", plan=["look"])
        assert (await hold.state(task)).plan == ("look",)
        with pytest.raises(Conflict, match=f"submitted with one, .* a process in which '{agent.name}' is registered"):
            await command.state(task.id)


def test_a_script_gives_it_too(url: str) -> None:
    hold = Holdfast(url)
    agent, _ = register(hold, ["done"])
    with hold.sync as h:
        handle = h.submit(agent, "go", state=GIVEN_STATE, plan=["a"], facts={"b": 1}, artifacts=[])
        assert h.state(handle).plan == ("a",)
        patched = h.patch_state(handle, StatePatch(set_flags=("c",)), version=0, by="ann")
        assert patched.risk_flags == ("friday", "c")


# It can only make the rules tighter


async def test_constraints_are_joined(hold: Holdfast) -> None:
    done: list[str] = []

    @tool(risk="write_local", effect="idempotent")
    def write(text: str) -> str:
        """Write."""
        done.append(text)
        return "written"

    agent, _ = register(hold, [call("write", text="x"), "done"], tools=[write], approve=["external_action"])
    loose = await hold.submit(agent, "go", state=replace(GIVEN_STATE, constraints=approving()))
    assert (await hold.state(loose)).constraints == approving(RiskLevel.EXTERNAL_ACTION)
    tight = await hold.submit(agent, "go", state=replace(GIVEN_STATE, constraints=approving(RiskLevel.WRITE_LOCAL)))
    both = approving(RiskLevel.EXTERNAL_ACTION, RiskLevel.WRITE_LOCAL)
    assert (await hold.state(tight)).constraints == both
    await hold.cancel(loose)
    async with hold.worker():
        question = await asked(hold, tight)
        assert done == []
        await hold.approve(question.id, by="ann")
        assert await tight.result(timeout=PATIENCE) == "done"
    assert (await hold.state(tight)).constraints == both


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        (Budget(max_steps=5), Budget(max_steps=3), Budget(max_steps=3)),
        (Budget(max_steps=5), Budget(max_steps=9), Budget(max_steps=5)),
        (Budget(), Budget(max_llm_tokens=7), Budget(max_llm_tokens=7)),
        (Budget(max_llm_tokens=7), Budget(), Budget(max_llm_tokens=7)),
        (Budget(max_steps=5, on_exhausted="ask"), Budget(max_steps=3), Budget(max_steps=3, on_exhausted="ask")),
        (Budget(max_steps=5), Budget(max_steps=3, on_exhausted="ask"), Budget(max_steps=3)),
        (Budget(max_cost=2), Budget(max_cost=0.5), Budget(max_cost=Decimal("0.5"))),
        (
            Budget(max_wall_time_ms=10, max_artifact_bytes_in_context=9),
            Budget(max_wall_time_ms=20, max_artifact_bytes_in_context=8),
            Budget(max_wall_time_ms=10, max_artifact_bytes_in_context=8),
        ),
    ],
)
async def test_of_two_limits_the_smaller_counts(quick: Holdfast, own: Budget, given: Budget, expected: Budget) -> None:
    agent, _ = register(quick, ["done"], budget=own, prices={ScriptedModel(["x"]).name: Price(input=1, output=1)})
    handle = await quick.submit(agent, "go", state=replace(GIVEN_STATE, budget=given))
    assert (await quick.state(handle)).budget == expected
    ledger = await quick.budget(handle)
    assert {meter: line.limit for meter, line in ledger.lines.items() if line.limit is not None} == expected.limits()


async def test_the_smaller_budget_stops_the_run(hold: Holdfast) -> None:
    @tool(risk="read_only")
    def look() -> str:
        """Look."""
        return "seen"

    agent, _ = register(
        hold, [call("look"), call("look"), call("look"), "done"], tools=[look], budget=Budget(max_steps=50)
    )
    handle = await hold.submit(agent, "go", state=replace(GIVEN_STATE, budget=Budget(max_steps=3)))
    async with hold.worker():
        with pytest.raises(TaskFailed, match="BudgetExceeded"):
            await handle.result(timeout=PATIENCE)
    assert (await hold.state(handle)).budget == Budget(max_steps=3)


async def test_a_cost_without_prices_is_refused(quick: Holdfast) -> None:
    agent, _ = register(quick, ["done"])
    with pytest.raises(InvalidValue, match="would never be reached"):
        await quick.submit(agent, "go", state=replace(GIVEN_STATE, budget=Budget(max_cost=1)))
    assert not (await quick.store.find()).items


# It is part of what is asked


async def test_the_same_key_with_another_state_is_a_conflict(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    facts = [KnownFact(key="disk", value="full", source="ann")]
    first = await hold.submit(agent, "go", key="k", state=GIVEN_STATE, facts=facts)
    assert (await hold.submit(agent, "go", key="k", state=GIVEN_STATE, facts=facts)).id == first.id
    for other in ({"state": replace(GIVEN_STATE, plan=())}, {"plan": ["x"]}, {}):
        with pytest.raises(KeyConflict):
            await hold.submit(agent, "go", key="k", **other)


async def test_what_cannot_be_meant_is_refused_and_nothing_is_stored(quick: Holdfast) -> None:
    agent, _ = register(quick, ["done"])

    @quick.task
    async def plain(ctx: Context, text: str) -> str:
        del ctx
        return text

    wrong: Any = 1
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (agent, {"state": {"goal": "x"}}, "give an AgentState"),
        (agent, {"state": AgentState(goal="x", plan=(wrong,))}, "plan"),
        (agent, {"state": AgentState(goal="x", known_facts=(wrong,))}, "holds a value that is not valid"),
        (agent, {"plan": "look"}, "list of texts"),
        (agent, {"plan": [1]}, "list of texts"),
        (agent, {"facts": "x"}, "list of KnownFact"),
        (agent, {"facts": [("a", 1)]}, "not a KnownFact"),
        (agent, {"facts": {"a": object()}}, "known_facts"),
        (agent, {"artifacts": "x"}, "list of artifacts"),
        (agent, {"artifacts": ["0" * 64]}, "not in this store"),
        (agent, {"artifacts": [MENTIONED]}, "not in this store"),
        (agent, {"artifacts": [3]}, "not an artifact"),
        (agent, {"state": replace(GIVEN_STATE, artifacts=(replace(MENTIONED, artifact_id="a\0b"),))}, "printed"),
        (agent, {"state": replace(GIVEN_STATE, artifacts=(replace(MENTIONED, bytes=-1),))}, "bytes"),
        (agent, {"plan": ["x" * 9_000]}, "8,000"),
        (agent, {"facts": {str(i): "x" * 15_000 for i in range(20)}}, "256,000"),
        (plain, {"plan": ["x"]}, "only agents registered here can"),
        (plain, {"state": GIVEN_STATE}, "only agents registered here can"),
        ("elsewhere", {"plan": ["x"], "queue": "q"}, "only agents registered here can"),
    ]
    for task, options, words in refused:
        with pytest.raises(InvalidValue, match=words):
            await quick.submit(task, "go", **options)
    for args in ((), ("a", "b"), (GIVEN_STATE, "b")):
        with pytest.raises(InvalidValue):
            await quick.submit(agent, *args, plan=["x"])
    with pytest.raises(InvalidValue, match="two states"):
        await quick.submit(agent, GIVEN_STATE, state=GIVEN_STATE)
    with pytest.raises(InvalidValue, match="start"):
        await quick.submit(agent.bind("go", start={"plan": ["x"]}))
    assert not (await quick.store.find()).items


# Before the first claim


async def test_a_patch_may_come_before_the_first_claim(hold: Holdfast) -> None:
    agent, model = register(hold, ["done"])
    handle = await hold.submit(agent, "Deploy X", state=GIVEN_STATE)
    first = await hold.patch_state(
        handle,
        StatePatch(replace_plan=("stop",), append_facts=(replace(NOTED, key="n", at=None),)),
        version=0,
        by="ann",
    )
    assert first.plan == ("stop",)
    with pytest.raises(StateConflict) as late:
        await hold.patch_state(handle, StatePatch(set_flags=("x",)), version=0, by="bob")
    assert (late.value.version, late.value.state.plan) == (2, ("stop",))
    await hold.patch_state(handle, StatePatch(set_flags=("x",)), version=2, by="bob")
    async with hold.worker():
        assert await handle.result(timeout=PATIENCE) == "done"
    assert await patches_of(hold, handle) == [(1, "submit", GIVEN), (2, "ann", ""), (3, "bob", "")]
    assert (await hold.state(handle)).plan == ("stop",)
    assert "stop" in shown(model)[0][1]
    assert (await hold.state(handle, at=1)) == GIVEN_STATE


async def test_also_of_a_task_without_a_start(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"], approve=["external_action"], budget=Budget(max_steps=9))
    handle = await hold.submit(agent, "go")
    before = await hold.state(handle)
    assert before == AgentState(goal="go", constraints=approving(RiskLevel.EXTERNAL_ACTION), budget=Budget(max_steps=9))
    await hold.patch_state(handle, StatePatch(set_flags=("x",)), version=0, by="ann")
    async with hold.worker():
        await handle.result(timeout=PATIENCE)
    assert await hold.state(handle) == replace(before, risk_flags=("x",))
    assert (await hold.state(handle, at=1)) == before


async def test_a_patch_before_the_first_claim_can_only_make_the_rules_tighter(hold: Holdfast) -> None:
    """It may also come from a process that has older code of the agent."""
    own = Budget(max_steps=9, max_artifact_bytes_in_context=800)
    agent, _ = register(hold, ["done"], approve=["external_action"], budget=own)
    handle = await hold.submit(agent, "go")
    free = StatePatch(constraints=Constraints(), budget=Budget(max_steps=90, max_artifact_bytes_in_context=900))
    await hold.patch_state(handle, free, version=0, by="ann")
    async with hold.worker():
        await handle.result(timeout=PATIENCE)
    state = await hold.state(handle)
    assert (state.constraints, state.budget) == (approving(RiskLevel.EXTERNAL_ACTION), own)
    assert [one.author for one in await hold.state_history(handle)] == ["submit", "ann", "holdfast"]


async def test_a_patch_before_the_first_claim_makes_nothing_looser_in_a_new_round_either(hold: Holdfast) -> None:
    """The first round has ended before its model was asked: its deadline had passed when a worker came."""
    agent, _ = register(hold, ["done"], approve=["external_action"])
    handle = await hold.submit(agent, "go", deadline=0.001)
    await hold.patch_state(handle, StatePatch(constraints=Constraints()), version=0, by="ann")
    async with hold.worker():
        with pytest.raises(TaskFailed):
            await handle.result(timeout=PATIENCE)
        await hold.retry(handle, deadline=PATIENCE)
        await handle.result(timeout=PATIENCE)
    assert (await hold.state(handle)).constraints == approving(RiskLevel.EXTERNAL_ACTION)


async def test_of_many_patches_at_once_one_is_first(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    handle = await hold.submit(agent, "go", plan=["a"])
    flags = [StatePatch(set_flags=(str(number),)) for number in range(8)]
    answers = await asyncio.gather(
        *(hold.patch_state(handle, flag, version=0, by="ann") for flag in flags), return_exceptions=True
    )
    assert sum(isinstance(one, AgentState) for one in answers) == 1
    assert sum(isinstance(one, StateConflict) for one in answers) == 7
    assert (await handle.task()).version == 2


async def test_a_patch_while_the_first_attempt_begins_waits_for_its_state(
    hold: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would write the first state: so the patch gives way, and says which version there is then."""
    began, go_on = asyncio.Event(), asyncio.Event()
    equipped = Agent.equipped

    async def slow(self: Agent, attempt: Any) -> Agent:  # noqa: ANN401
        began.set()
        await go_on.wait()
        return await equipped(self, attempt)

    monkeypatch.setattr(Agent, "equipped", slow)
    agent, _ = register(hold, ["done"])
    handle = await hold.submit(agent, "go", plan=["a"])
    async with hold.worker():
        await began.wait()
        patching = asyncio.create_task(hold.patch_state(handle, StatePatch(replace_plan=("b",)), version=0, by="ann"))
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises((StateConflict, Conflict)):
            await patching
        await handle.result(timeout=PATIENCE)
    assert await patches_of(hold, handle) == [(1, "submit", GIVEN)]


async def test_a_claim_between_the_look_and_the_commit(hold: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is about to write the first state: written twice, it would undo the patch."""
    monkeypatch.setattr(stating, "_MOST_LOOKS", 2)
    agent, _ = register(hold, ["done"])
    handle = await hold.submit(agent, "go", plan=["a"])
    commit, held = hold.store.commit, await hold.store.register(NewWorker(lease=3600))
    claimed: list[Any] = []

    async def late(commits: Any) -> Any:  # noqa: ANN401
        if not claimed and commits[0].actor == "ann":
            claimed.extend(await hold.store.claim(Claim(worker_id=held.id, number=1, limit=1, names=["agent"])))
        return await commit(commits)

    monkeypatch.setattr(hold.store, "commit", late)
    with pytest.raises(Conflict, match="running and its agent has not written its first state"):
        await hold.patch_state(handle, StatePatch(replace_plan=("b",)), version=0, by="ann")
    assert len(claimed) == 1
    assert (await handle.task()).version == 0


async def test_a_worker_that_dies_before_it_has_written_the_first_state(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    handle = await hold.submit(agent, "go", plan=["a"])
    dying = await hold.store.register(NewWorker(lease=3600))
    [claimed] = await hold.store.claim(Claim(worker_id=dying.id, number=1, limit=1, names=["agent"]))
    assert (claimed.task.id, claimed.task.version) == (handle.id, 0)
    assert (await hold.state(handle)).plan == ("a",)
    await hold.store.retire(dying.id)
    await hold.patch_state(handle, StatePatch(set_flags=("x",)), version=0, by="ann")
    async with hold.worker():
        await handle.result(timeout=PATIENCE)
    state = await hold.state(handle)
    assert (state.plan, state.risk_flags) == (("a",), ("x",))
    assert [one.author for one in await hold.state_history(handle)] == ["submit", "ann"]


async def test_while_a_worker_has_it_and_has_not_begun_nothing_is_patched(
    quick: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stating, "_MOST_LOOKS", 2)
    agent, _ = register(quick, ["done"])
    handle = await quick.submit(agent, "go", plan=["a"])
    held = await quick.store.register(NewWorker(lease=3600))
    await quick.store.claim(Claim(worker_id=held.id, number=1, limit=1, names=["agent"]))
    with pytest.raises(Conflict, match="running and its agent has not written its first state"):
        await quick.patch_state(handle, StatePatch(set_flags=("x",)), version=0, by="ann")
    assert (await handle.task()).version == 0


async def test_the_state_is_begun_once_in_any_order(hold: Holdfast) -> None:
    """Workers claim while others patch: each patch comes before the beginning, after it, or too late."""
    agent, _ = register(hold, lambda _: "done")

    async def patched(number: int) -> int | None:
        given = AgentState(goal=f"goal {number}", plan=("given",), known_facts=(replace(NOTED, value=number),))
        handle, version = await hold.submit(agent, "go", state=given), 0
        await asyncio.sleep(number / 1000)
        done = False
        while not done:
            try:
                await hold.patch_state(handle, StatePatch(replace_plan=("patched",)), version=version, by="ann")
                done = True
            except StateConflict as conflict:
                version = conflict.version
            except Conflict:
                break
        await handle.result(timeout=PATIENCE)
        history, state = await hold.state_history(handle), await hold.state(handle)
        assert [one.version for one in history if one.reason == GIVEN] == [1]
        assert state == replace(given, plan=("patched",) if done else ("given",))
        return next((one.version for one in history if one.author == "ann"), None)

    async with hold.worker(concurrency=5), hold.worker(concurrency=5):
        came = await asyncio.gather(*map(patched, range(20)))
    assert {version for version in came if version is not None} <= {2}


# With everything else


async def test_after_another_task_it_comes_on_top(hold: Holdfast) -> None:
    agent, _ = register(hold, ["one", "two", "three"])
    stored = await hold.artifacts.write(b"log")
    first = await finished(hold, agent, "first", plan=["a"], facts={"x": 1}, artifacts=[stored.id])
    second = await hold.submit(
        agent, "second", after=first, facts={"y": 2}, state=replace(GIVEN_STATE, goal="", plan=())
    )
    expected = await hold.state(second)
    assert (expected.goal, expected.plan) == ("second", ("a",))
    assert [one.key for one in expected.known_facts] == ["x", "service", "y"]
    assert [one.artifact_id for one in expected.artifacts] == [stored.id, "log_123"]
    await hold.patch_state(second, StatePatch(replace_plan=("patched",)), version=0, by="ann")
    async with hold.worker():
        await second.result(timeout=PATIENCE)
    assert (await hold.state(second)).plan == ("patched",)
    assert [one.author for one in await hold.state_history(second)] == ["submit", "ann"]
    links = {one.artifact_id for one in await hold.store.artifact_links(second.id)}
    assert links == {stored.id, "log_123"}
    third = await finished(hold, agent, "third", after=second)
    assert (await hold.state(third)).plan == ("patched",)


async def test_after_a_task_that_never_began(quick: Holdfast) -> None:
    agent, _ = register(quick, ["done"])
    never = await quick.submit(agent, "first", state=GIVEN_STATE)
    await quick.cancel(never)
    handle = await finished(quick, agent, "second", after=never)
    state = await quick.state(handle)
    assert (state.goal, state.plan, state.known_facts) == ("second", GIVEN_STATE.plan, (NOTED,))


async def test_a_fork_of_a_task_that_has_not_begun(hold: Holdfast) -> None:
    agent, _ = register(hold, ["done"])
    tight = replace(GIVEN_STATE, goal="", constraints=approving(RiskLevel.WRITE_LOCAL), budget=Budget(max_steps=3))
    handle = await hold.submit(agent, "go", state=tight)
    same, other = await hold.fork(handle), await hold.fork(handle, user_input=("other",))
    patched = await hold.fork(handle, patch=StatePatch(replace_plan=("fork",)), by="ann")
    await hold.cancel(handle)
    for fork, goal, plan in ((same, "go", tight.plan), (other, "other", tight.plan), (patched, "go", ("fork",))):
        async with hold.worker():
            await fork.result(timeout=PATIENCE)
        assert await hold.state(fork) == replace(tight, goal=goal, plan=plan)
        assert (await hold.budget(fork)).lines["steps"].limit == 3  # type: ignore[index]


async def test_a_new_round_goes_on_with_the_state(hold: Holdfast) -> None:
    """The state is not begun again: what became of it in the round before stays."""
    verdicts: list[bool | str] = ["not yet", True]

    async def verify(ctx: Context, result: str) -> bool | str:
        del ctx, result
        return verdicts.pop(0)

    def observe(*_: object) -> StatePatch:
        return StatePatch(replace_plan=("found",), set_flags=("seen",))

    @tool(risk="read_only")
    def look() -> str:
        """Look."""
        return "seen"

    agent, _ = register(hold, [call("look"), "one", "two"], tools=[look], observe=observe, verify=verify)
    handle = await finished(hold, agent, "go", state=GIVEN_STATE)
    task = await handle.task()
    state = await hold.state(handle)
    assert (task.round, task.state) == (2, TaskState.COMPLETED)
    assert (state.plan, state.risk_flags) == (("found",), ("friday", "seen"))
    assert [one.reason for one in await hold.state_history(handle)] == [GIVEN, ""]


async def test_checkpoints_hold_it(quick: Holdfast) -> None:
    agent, _ = register(quick, ["done"])
    handle = await finished(quick, agent, "Deploy X", state=GIVEN_STATE)
    saved = await quick.store.checkpoints(handle.id)
    assert saved
    assert all(damage_of(one) is None for one in saved)
    assert await quick.state(handle) == GIVEN_STATE
