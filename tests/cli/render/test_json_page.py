"""docs/json.md and the documents that commands print name the same fields: neither can drift from the other."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer.main

from holdfast import Agent, Context, Failure, Holdfast, ScriptedModel, tool
from holdfast.agent.scripted import call
from holdfast.cli.application import app
from holdfast.cli.demo.outcome import Outcome
from holdfast.cli.logs import FIELDS
from holdfast.model.agent_state import AgentState
from holdfast.model.failure import Try
from holdfast.service import forms
from holdfast.service.benchmark import Figures
from holdfast.service.board import read_board
from holdfast.service.overview import read_overview
from tests.cli.demo.support import good_run
from tests.cli.render.museum import Museum
from tests.commands import invoke

PAGE = (Path(__file__).parents[3] / "docs/json.md").read_text(encoding="utf-8")


def tables() -> dict[str, list[str]]:
    """Return the fields that the page names, by the heading that they stand under."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in PAGE.splitlines():
        if line.startswith("### "):
            heading = line.removeprefix("### ")
            found[heading] = []
        elif heading and (row := re.match(r"\| `(\w+)` \|", line)):
            found[heading].append(row[1])
        elif line.startswith("## "):
            heading = ""
    return found


TABLES = tables()


def same(heading: str, form: Mapping[str, Any]) -> None:
    assert TABLES[heading] == list(form), heading


# Records, from a real run


async def test_records(museum: Museum) -> None:
    hold = Holdfast(museum.url)
    async with hold:
        seen = await read_overview(hold, museum.ids["agent"])
        doubtful = await read_overview(hold, museum.ids["doubt"])
        failed = await read_overview(hold, museum.ids["failed"])
        running = await read_overview(hold, museum.ids["running"])
        board = await read_board(hold)
        patches = await hold.state_history(museum.ids["agent"])
        [change, *_] = await hold.state_diff(museum.ids["agent"], 1)
        [effect] = await hold.store.effects(task_id=museum.ids["doubt"])
    same("Overview", seen.to_json())
    same("Task", forms.task_form(seen.task))
    same("Step", forms.step_form(seen.steps[0]))
    same("Transition", forms.transition_form(seen.history[0]))
    same("Advice", seen.situation.next[0].to_json())
    same("Plan step", seen.to_json()["plan"][0])
    same("Approval", forms.approval_form(seen.approvals[0]))
    same("Patch", forms.patch_form(patches[0]))
    same("Change", change.to_json())
    same("Effect", forms.effect_form(effect))
    assert [*TABLES["Effect"], *TABLES["Doubt"]] == list(forms.doubt_form(doubtful.doubts[0]))
    same("Board", board.to_json())
    same("Queue", forms.queue_form(board.queues[0]))
    same("Worker", board.workers.members[0].to_json())
    assert TABLES["Worker"][:-5] == list(running.to_json()["worker"])
    budget = forms.budget_form(seen.budget)
    for meter in budget:
        assert f"`{meter}`" in PAGE
    same("Budget", budget["steps"])
    assert failed.task.error.keys() <= set(TABLES["Failure"])


def test_forms_that_leave_out_what_is_not_set() -> None:
    failure = Failure(
        type_name="E",
        message="m",
        type_names=("E",),
        retry_after=1.0,
        tries=(Try(number=1, type_name="E", message="m", at=datetime.now(UTC)),),
        reason="r",
        steps=("s",),
        where="w",
        traceback="t",
    )
    same("Failure", failure.to_json())
    assert all(f"`{name}`" in _row("Failure", "tries") for name in failure.tries[0].to_json())
    assert TABLES["Agent state"] == list(AgentState.__slots__)
    assert TABLES["Log line"] == ["time", "level", "logger", "message", *FIELDS, "traceback"]


def test_what_is_beside_the_work(tmp_path: Path) -> None:
    assert TABLES["Figures"] == [spec.name for spec in fields(Figures)]
    same("Facts of the demo", Outcome(last=good_run(), seconds=12.0).facts())
    same("Project", printed(f"sqlite:///{tmp_path}/hold.db", "init", str(tmp_path / "project")))


async def test_events_and_artifacts() -> None:
    hold = Holdfast("memory://")

    @tool(risk="read_only")
    def read_log() -> str:
        "Read the log."
        return "line\n" * 100_000

    agent = hold.register(Agent("reader", tools=[read_log], model=ScriptedModel([call("read_log"), "done"])))

    @hold.task
    async def talk(ctx: Context) -> None:
        await ctx.progress(1, 2, "half")

    async with hold, hold.worker():
        reader, talker = await hold.submit(agent, "Read it."), await hold.submit(talk)
        await reader.result(timeout=60)
        await talker.result(timeout=60)
        same("Schedule", forms.schedule_form(await hold.schedule("nightly", talk, cron="0 3 * * *")))
        read, talkative = await read_overview(hold, reader.id), await read_overview(hold, talker.id)
        listed = [event async for event in hold.feed(after="oldest", follow=False)]
    same("Artifact", forms.artifact_form(read.artifacts[0]))
    same("Event", forms.event_form(talkative.events[0]))
    same("Feed event", listed[0].to_json())


# Documents, as commands print them


def printed(url: str, *arguments: str, code: int = 0) -> Any:  # noqa: ANN401 - JSON
    answer = invoke([*arguments, "--json"], env={"HOLDFAST_DATABASE_URL": url, "HOLDFAST_USER": "ann"})
    assert answer.exit_code == code, answer.output
    return json.loads(answer.stdout)


@pytest.mark.parametrize(
    ("arguments", "heading"),
    [
        (["list", "--limit", "1"], "Page of tasks"),
        (["show", "agent"], "Overview"),
        (["doctor"], "Diagnosis"),
        (["config"], "Settings"),
        (["migrate"], "Migration"),
    ],
)
def test_documents_that_are_objects(museum: Museum, arguments: list[str], heading: str) -> None:
    found = [museum.ids.get(argument, argument) for argument in arguments]
    answer = invoke([*found, "--json"], env={"HOLDFAST_DATABASE_URL": museum.url})
    same(heading, json.loads(answer.stdout))
    for nested in ("findings", "settings"):
        for one in json.loads(answer.stdout).get(nested, []):
            assert all(f"`{name}`" in _row(heading, nested) for name in one)


BESIDE = {"queues": ("pauses", "settings")}
"""What else stands in a document that is a list."""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["steps", "agent"], "steps"),
        (["history", "agent"], "history"),
        (["state", "agent", "--history"], "patches"),
        (["diff", "agent", "1"], "changes"),
        (["queues"], "queues"),
        (["schedules", "list"], "schedules"),
        (["workers"], "workers"),
        (["approvals"], "approvals"),
        (["doubts"], "doubts"),
        (["memory", "recall", "unknown"], "facts"),
        (["memory", "conflicts"], "conflicts"),
    ],
)
def test_documents_that_are_lists(museum: Museum, arguments: list[str], name: str) -> None:
    found = [museum.ids.get(argument, argument) for argument in arguments]
    assert list(printed(museum.url, *found)) == [name, *BESIDE.get(name, ())]
    assert f'{{"{name}": [' in PAGE


def test_what_is_done_to_tasks_and_facts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    task_id = asyncio.run(_submit(url))
    same("Message", printed(url, "send", task_id, "hello"))
    [done] = printed(url, "cancel", task_id, "--yes")["tasks"]
    same("Done", done)
    same("Fork", printed(url, "fork", task_id))
    same("Pruned", printed(url, "prune", "--older-than", "30d", "--yes"))
    same("Fact", printed(url, "memory", "store", "db1", "role", "primary", "--source", "ann"))
    printed(url, "memory", "store", "db1", "role", "replica", "--source", "bob")
    [conflict] = printed(url, "memory", "conflicts")["conflicts"]
    same("Conflict", conflict)
    same("Memory", printed(url, "memory", "export"))


async def _submit(url: str) -> str:
    async with Holdfast(url) as hold:
        return (await hold.submit("greet", "you", queue="default")).id


# The page is whole


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[str, Any]]:  # noqa: ANN401 - typer's own
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


def test_every_command_with_json_is_on_the_page() -> None:
    listed = PAGE[PAGE.index("## Which command prints what") : PAGE.index("## Tasks")]
    with_json = {
        name
        for name, command in commands(typer.main.get_command(app))
        if any("--json" in option.opts for option in command.params)
    }
    named = {
        name for row in re.findall(r"^\| (`[^|]+) \|", listed, re.MULTILINE) for name in re.findall("`([^`]+)`", row)
    }
    assert named == with_json


def test_every_form_is_on_the_page() -> None:
    made = {name.removesuffix("_form") for name in vars(forms) if name.endswith("_form")}
    assert made <= {heading.lower() for heading in TABLES}


def _row(heading: str, field: str) -> str:
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n### ")[0]
    return next(line for line in section.splitlines() if line.startswith(f"| `{field}` |"))
