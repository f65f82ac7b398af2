"""``--state``, ``--plan``, ``--fact`` and ``--artifact``: what an agent knows from the beginning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import AgentState, Holdfast
from tests.cli.terminal.support import APPLICATION, holdfast, read, run, submit


async def stored_state(url: str, task_id: str) -> AgentState:
    from tests.cli.terminal.application import hold  # noqa: PLC0415 - it names its store by the environment

    reading = Holdfast(url)
    reading.definitions = hold.definitions
    async with reading:
        return await reading.state(task_id)


async def test_a_submitted_agent_begins_with_it(url: str, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(
        json.dumps({"goal": "Mend it", "plan": ["never"], "risk_flags": ["friday"], "budget": {"max_steps": 5}})
    )
    async with Holdfast(url) as hold:
        artifact = await hold.artifacts.write(b"log")
    options = (
        "--plan",
        "look",
        "--plan",
        "mend",
        "--fact",
        "disk=97 %",
        "--fact",
        "hosts=[1]",
        "--artifact",
        artifact.id,
    )
    task_id = submit("parrot", "--state", str(file), *options, url=url)
    state = await stored_state(url, task_id)
    assert (state.goal, state.plan, state.risk_flags) == ("Mend it", ("look", "mend"), ("friday",))
    assert [(fact.key, fact.value, fact.source) for fact in state.known_facts] == [
        ("disk", "97 %", "submit"),
        ("hosts", [1], "submit"),
    ]
    assert [one.artifact_id for one in state.artifacts] == [artifact.id]
    assert state.budget.max_steps == 5


def test_run_does_too_and_a_state_that_was_printed_is_read_again(url: str, tmp_path: Path) -> None:
    first = run("parrot", "--input", "hello", "--state", '{"plan": ["look"]}', "--fact", "a=1", url=url)
    printed = read("state", first, url=url)
    assert (printed["goal"], printed["plan"]) == ("hello", ["look"])
    file = tmp_path / "state.json"
    file.write_text(json.dumps(printed))
    second = run("parrot", "--state", str(file), url=url)
    assert read("state", second, url=url) == printed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--state", "nowhere.json"), "neither a JSON object nor a file"),
        (("--state", "{"), "--state"),
        (("--state", '{"plan": 1}'), "--state.plan"),
        (("--state", '{"nothing": 1}'), "nothing"),
        (("--fact", "disk"), "KEY=VALUE"),
        (("--artifact", "0" * 64), "not in this store"),
    ],
)
def test_what_cannot_be_meant(url: str, options: tuple[str, ...], words: str) -> None:
    answer = holdfast("submit", APPLICATION, "parrot", "--input", "x", *options, url=url)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert words in answer.stderr


def test_not_with_a_task_that_exists(url: str) -> None:
    answer = holdfast("run", APPLICATION, "--id", "x", "--plan", "look", url=url)
    assert answer.returncode == 2
    assert "leave those out" in answer.stderr
