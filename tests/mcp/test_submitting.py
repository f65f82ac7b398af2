"""submit_task and cancel_task."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from mcp import Client

from holdfast import Agent, Context, Holdfast, ScriptedModel
from holdfast.agent.scripted import call
from tests.mcp.support import ask, connected, refused, submitted, taken


@dataclass
class Reminder:
    """What a task of the application takes."""

    text: str
    at: datetime


@pytest.fixture
async def application(tmp_path: Path) -> AsyncIterator[Holdfast]:
    """A Holdfast that knows a task."""
    hold = Holdfast(f"sqlite:///{tmp_path}/application.db")

    @hold.task(queue="greetings", priority=3)
    async def greet(ctx: Context, name: str, times: int = 1) -> str:
        del ctx
        return f"hello {name}" * times

    @hold.task(queue="greetings")
    async def remind(ctx: Context, reminder: Reminder) -> str:
        del ctx
        return f"{reminder.text} in {reminder.at.year}"

    async with hold:
        yield hold


async def test_work_without_a_name_waits_for_any_agent(client: Client) -> None:
    answer = await ask(
        client,
        "submit_task",
        goal="Free the disk",
        plan=["look"],
        details={"host": "db1"},
        queue="disks",
        priority=5,
        agent_id="ops",
        deadline_seconds=60,
    )
    assert answer["created"] is True
    assert (answer["name"], answer["state"], answer["queue"], answer["priority"]) == ("handover", "pending", "disks", 5)
    assert answer["uri"] == f"state://agents/ops/tasks/{answer['task_id']}"
    assert (await ask(client, "get_task", task_id=answer["task_id"]))["deadline"]
    claimed = await ask(client, "claim_task", queues=["disks"])
    assert claimed["task"]["details"] == {"host": "db1"}


async def test_one_with_a_delay_is_not_there_yet(client: Client) -> None:
    task_id = await submitted(client, delay_seconds=3600)
    assert (await ask(client, "claim_task"))["task"] is None
    assert "not due before" in (await refused(client, "claim_task", task_id=task_id))["error"]


async def test_a_key_makes_it_safe_to_call_twice(client: Client) -> None:
    task_id = await submitted(client, key="k")
    again = await ask(client, "submit_task", goal="Free the disk", key="k")
    assert (again["task_id"], again["created"]) == (task_id, False)
    answer = await refused(client, "submit_task", goal="Something else", key="k")
    assert answer["kind"] == "KeyConflict"
    assert task_id in answer["error"]


async def test_taking_it_at_once(client: Client) -> None:
    answer = await ask(client, "submit_task", goal="Free the disk", plan=["look"], take=True, lease_seconds=90)
    assert answer["created"] is True
    assert (answer["task"]["state"], answer["lease_seconds"]) == ("running", 90)
    assert answer["agent_state"]["plan"] == ["look"]
    await ask(client, "finish_task", lease=answer["lease"], result=1)


async def test_taking_again_under_the_same_key(client: Client) -> None:
    task_id, lease = await taken(client, key="k")
    again = await refused(client, "submit_task", goal="Free the disk", key="k", take=True)
    assert again["kind"] == "LeaseHeld"
    await ask(client, "release_task", lease=lease)
    assert (await taken(client, key="k"))[0] == task_id


async def test_by_name_with_an_application(application: Holdfast) -> None:
    async with connected(application) as client:
        answer = await ask(client, "submit_task", goal="Ann", name="greet")
        assert (answer["name"], answer["queue"], answer["priority"]) == ("greet", "greetings", 3)
        more = await ask(client, "submit_task", name="greet", arguments=["Bob", 2])
        async with application.worker(queues=["greetings"]):
            assert (await ask(client, "wait_for_task", task_id=answer["task_id"]))["result"] == "hello Ann"
            assert (await ask(client, "wait_for_task", task_id=more["task_id"]))["result"] == "hello Bobhello Bob"


async def test_a_name_that_is_misspelt_is_corrected(application: Holdfast) -> None:
    async with connected(application) as client:
        answer = await refused(client, "submit_task", goal="Ann", name="great")
        assert "greet" in answer["error"]
        assert answer["kind"] == "InvalidValue"
    assert not (await application.store.find()).items


@pytest.mark.parametrize("arguments", [[], ["Ann", "twice"], ["Ann", 1, 2], [{"a": 1}]], ids=repr)
async def test_arguments_that_do_not_fit_are_refused(application: Holdfast, arguments: list[object]) -> None:
    async with connected(application) as client:
        await refused(client, "submit_task", name="greet", arguments=arguments)
    assert not (await application.store.find()).items


async def test_arguments_are_read_as_the_task_takes_them(application: Holdfast) -> None:
    reminder = {"text": "Bread", "at": "2030-01-01T00:00:00+00:00"}
    async with connected(application) as client:
        answer = await ask(client, "submit_task", name="remind", arguments=[reminder])
        async with application.worker(queues=["greetings"]):
            assert (await ask(client, "wait_for_task", task_id=answer["task_id"]))["result"] == "Bread in 2030"


async def test_by_name_without_an_application_it_is_left_to_the_workers(client: Client) -> None:
    answer = await ask(
        client, "submit_task", goal="Ann", name="greet", delay_seconds=5, deadline_seconds=60, priority=2
    )
    assert (answer["name"], answer["queue"], answer["priority"]) == ("greet", "default", 2)
    shown = await ask(client, "get_task", task_id=answer["task_id"])
    assert shown["user_input"] == ["Ann"]
    assert shown["deadline"]
    assert (await ask(client, "claim_task"))["task"] is None


@pytest.mark.parametrize("more", [{"take": True}, {"details": 1}], ids=repr)
async def test_what_is_only_for_work_without_a_name(hold: Holdfast, client: Client, more: dict[str, object]) -> None:
    answer = await refused(client, "submit_task", goal="x", name="greet", **more)
    assert "or the name, out" in answer["error"]
    assert not (await hold.store.find()).items


async def test_an_agent_begins_with_what_its_caller_knows(tmp_path: Path) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path}/agents.db")
    hold.register(Agent("clerk", model=ScriptedModel(["done"])))
    async with hold, connected(hold) as client:
        stored = await hold.artifacts.write(b"log")
        knows = {
            "known_facts": [{"key": "disk", "value": "full", "source": "df"}, {"key": "host", "value": "db1"}],
            "open_questions": ["why?"],
            "risk_flags": ["friday"],
            "completed_steps": ["look"],
            "current_step": "clean",
            "artifacts": [stored.id],
        }
        answer = await ask(client, "submit_task", name="clerk", goal="Free it", plan=["look", "clean"], state=knows)
        state = await hold.state(answer["task_id"])
        assert (state.goal, state.plan, state.current_step) == ("Free it", ("look", "clean"), "clean")
        assert [(fact.key, fact.source) for fact in state.known_facts] == [("disk", "mcp:ada/df"), ("host", "mcp:ada")]
        assert (state.open_questions, state.risk_flags) == (("why?",), ("friday",))
        assert [one.artifact_id for one in state.artifacts] == [stored.id]
        assert [one.artifact_id for one in await hold.store.artifact_links(answer["task_id"])] == [stored.id]
        patched = await ask(client, "patch_state", task_id=answer["task_id"], version=0, patch={"set_flags": ["x"]})
        assert (patched["version"], patched["agent_state"]["risk_flags"]) == (2, ["friday", "x"])
        async with hold.worker():
            await hold.handle(answer["task_id"]).result(timeout=60)
        assert [one.author for one in await hold.state_history(answer["task_id"])] == ["mcp:ada", "mcp:ada"]


async def test_work_for_any_agent_begins_with_it_too(hold: Holdfast, client: Client) -> None:
    stored = await hold.artifacts.write(b"log")
    knows = {"known_facts": [{"key": "disk", "value": "full"}], "artifacts": [stored.id], "current_step": "clean"}
    answer = await ask(client, "submit_task", goal="Free it", plan=["look", "clean"], state=knows, take=True, key="k")
    state = answer["agent_state"]
    assert (state["plan"], state["current_step"]) == (["look", "clean"], "clean")
    assert [(fact["key"], fact["source"]) for fact in state["known_facts"]] == [("disk", "mcp:ada")]
    assert all(fact["at"] for fact in state["known_facts"])
    assert [one.artifact_id for one in await hold.store.artifact_links(answer["task_id"])] == [stored.id]
    again = await ask(client, "submit_task", goal="Free it", plan=["look", "clean"], state=knows, key="k")
    assert (again["task_id"], again["created"]) == (answer["task_id"], False)
    other = await refused(client, "submit_task", goal="Free it", plan=["look", "clean"], key="k")
    assert "k" in other["error"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"budget": {"max_steps": 1}}, "cannot hold budget"),
        ({"constraints": {}}, "cannot hold constraints"),
        ({"goal": "x"}, "goal is passed beside the state"),
        ({"known_facts": "x"}, "known_facts"),
        ({"known_facts": [1]}, "known_facts"),
        ({"artifacts": ["0" * 64]}, "not in this store"),
        ({"artifacts": [1]}, "list of artifact ids"),
        ({"artifacts": {"a": 1}}, "list of artifact ids"),
        ({"risk_flags": ["x" * 9000]}, "8,000"),
    ],
    ids=repr,
)
async def test_a_state_that_no_caller_may_give(tmp_path: Path, state: dict[str, object], words: str) -> None:
    hold = Holdfast(f"sqlite:///{tmp_path}/agents.db")
    hold.register(Agent("clerk", model=ScriptedModel(["done"])))
    async with hold, connected(hold) as client:
        for named in ({}, {"name": "clerk"}):
            assert words in (await refused(client, "submit_task", goal="x", state=state, **named))["error"]
        assert not (await hold.store.find()).items


async def test_only_agents_that_are_known_here_begin_with_a_state(application: Holdfast, client: Client) -> None:
    async with connected(application) as other:
        for one, name in ((other, "greet"), (client, "clerk")):
            answer = await refused(one, "submit_task", goal="x", name=name, plan=["a"])
            assert "only agents registered here can" in answer["error"]


async def test_arguments_are_for_a_name(client: Client) -> None:
    assert (
        "what belongs to it goes into details"
        in (await refused(client, "submit_task", goal="x", arguments=[1]))["error"]
    )


async def test_cancelling_a_task_without_a_worker(hold: Holdfast, client: Client) -> None:
    task_id = await submitted(client)
    answer = await ask(client, "cancel_task", task_id=task_id, reason="not wanted")
    assert (answer["state"], answer["cancel_requested"]) == ("cancelled", "not wanted")
    assert [move.actor for move in await hold.store.history(task_id)][-1] == "mcp:ada"


async def test_cancelling_a_task_that_a_worker_runs(client: Client) -> None:
    task_id, lease = await taken(client)
    assert (await ask(client, "cancel_task", task_id=task_id, reason="not wanted"))["state"] == "running"
    progress = await ask(client, "report_progress", lease=lease, message="here")
    assert progress["cancel_requested"] == "not wanted"
    assert (await ask(client, "release_task", lease=lease))["state"] == "cancelled"


async def test_what_has_ended_stays_as_it_is(client: Client) -> None:
    task_id, lease = await taken(client)
    await ask(client, "finish_task", lease=lease, result=1)
    result = await client.call_tool("cancel_task", {"task_id": task_id, "reason": "late"})
    assert result.is_error or result.structured_content["state"] == "completed"
    assert (await ask(client, "get_task", task_id=task_id))["result"] == 1


async def test_a_caller_cannot_have_an_agent_speak_for_another(tmp_path: Path) -> None:
    """What an agent remembers stands under its id, and what is said under the same id supersedes it."""
    hold = Holdfast(f"sqlite:///{tmp_path}/agents.db")
    for name, value in (("clerk", "1"), ("teller", "3")):
        says = call("remember", entity="ann", attribute="salary", value=value)
        hold.register(Agent(name, model=ScriptedModel([says, "done"])))
    async with hold, hold.worker():
        await hold.memory.store("ann", "salary", "2", source="agent:payroll")
        async with connected(hold) as client:
            answer = await refused(client, "submit_task", name="clerk", goal="Say it.", agent_id="payroll")
            assert "agent_id is for tasks without a name; 'clerk' has an id of its own" in answer["error"]
            named = await ask(client, "submit_task", name="clerk", goal="Say it.")
        await hold.handle(named["task_id"]).result(timeout=60)
        said = {(fact.source, fact.value) for fact in await hold.memory.recall("ann", "salary")}
        assert said == {("agent:payroll", "2"), ("agent:clerk", "1")}

        # A server that does not know the agents submits for them, too: they do not share an id by that.
        async with Holdfast(hold.url) as elsewhere, connected(elsewhere) as client:
            for name in ("clerk", "teller"):
                unknown = await ask(client, "submit_task", name=name, goal="Say it.")
                await hold.handle(unknown["task_id"]).result(timeout=60)
        said |= {(fact.source, fact.value) for fact in await hold.memory.recall("ann", "salary")}
    assert said == {("agent:payroll", "2"), ("agent:clerk", "1"), ("agent:teller", "3")}
