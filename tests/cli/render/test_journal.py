"""``holdfast steps``, ``history``, ``state`` and ``diff``: what happened inside a task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.cli.render.museum import Museum
from tests.cli.render.support import Terminal, holdfast, in_terminal, printed, worker


def lines(museum: Museum, *arguments: str) -> list[str]:
    return printed(*arguments, url=museum.url).splitlines()


def words(museum: Museum, *arguments: str) -> list[list[str]]:
    return [line.split() for line in lines(museum, *arguments)]


# Steps


def test_steps_are_work_and_waits(museum: Museum) -> None:
    head, *rows = words(museum, "steps", museum.ids["failed"])
    assert head == ["#", "step", "kind", "state", "tries", "effect", "took", "ended"]
    assert [row[:6] for row in rows] == [
        ["1", "✓", "prepare", "step", "completed", "1"],
        ["2", "✗", "strike", "step", "failed", "2"],
    ]
    [charged] = words(museum, "steps", museum.ids["doubt"])[1:2]
    parsed = json.loads(holdfast("steps", museum.ids["doubt"], "--json", url=museum.url).stdout)["steps"]
    assert parsed[0]["effect_id"][-8:] in charged


def test_all_shows_the_lines_of_the_engine_under_their_keys(museum: Museum) -> None:
    shown = words(museum, "steps", museum.ids["agent"])
    everything = words(museum, "steps", museum.ids["agent"], "--all")
    assert ["…", "approval", "approval", "pending", "1"] in [row[1:6] for row in shown]
    assert any(word.startswith("holdfast:approval:") for row in everything for word in row)
    assert len(everything) >= len(shown)


def test_output_shows_what_they_returned_or_how_they_failed(museum: Museum) -> None:
    first, second = words(museum, "steps", museum.ids["failed"], "--output")[1:]
    assert first[-1] == "ready"
    assert " ".join(second).endswith("failed ValueError: no luck �[31mred�[0m �]0;title�")
    cut = in_terminal("steps", museum.ids["failed"], "--output", url=museum.url, columns=50)
    assert max(map(len, cut.text.split("\n"))) <= 50
    assert "…" in cut.text


async def test_earlier_rounds_are_shown_if_asked_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    assert holdfast("run", "application:hold", "fail", "--key", "k", "-q", url=url).returncode == 5
    async with Holdfast(url) as hold:
        [task] = (await hold.store.find()).items
        await hold.retry(task.id, by="ann")
    assert holdfast("run", "application:hold", "--id", task.id, "-q", url=url).returncode == 5
    newest = [line.split()[0] for line in holdfast("steps", task.id, url=url).stdout.splitlines()]
    everything = [line.split()[0] for line in holdfast("steps", task.id, "--all", url=url).stdout.splitlines()]
    assert newest == ["#", "2.1", "2.2"]
    assert everything[:3] == ["#", "1", "2"]
    assert set(newest) < set(everything)


async def test_follow_sees_steps_come_and_end(tmp_path: Path) -> None:
    url, gate = f"sqlite:///{tmp_path}/hold.db", tmp_path / "gate"
    async with Holdfast(url) as hold:
        task_id = (await hold.submit("gated", str(gate), queue="default")).id
    with Terminal("steps", task_id, "--follow", url=url) as terminal, worker(url):
        terminal.until("▶  wait")
        gate.touch()
        assert terminal.leave() == 0
    assert "✓  wait" in terminal.text


def test_without_steps(museum: Museum) -> None:
    answer = holdfast("steps", museum.ids["pending"], url=museum.url)
    assert (answer.returncode, answer.stdout) == (0, "")
    assert answer.stderr == "holdfast: it has no steps yet; --all shows the engine's own lines\n"


# History


def test_history_tells_every_move(museum: Museum) -> None:
    head, *rows = words(museum, "history", museum.ids["failed"])
    assert head == ["when", "from", "to", "fence", "by", "why"]
    assert rows[0][1:] == ["pending", "0", "submit", "submitted"]
    assert rows[1][1:4] == ["pending", "running", "1"]
    assert rows[1][4] == "worker"
    assert " ".join(rows[2]).endswith("attempt 1 of 1 failed: ValueError: no luck �[31mred�[0m �]0;title�")
    parsed = json.loads(holdfast("history", museum.ids["failed"], "--json", url=museum.url).stdout)["history"]
    assert [(move["from"], move["to"]) for move in parsed] == [
        (None, "pending"),
        ("pending", "running"),
        ("running", "failed"),
    ]
    assert lines(museum, "history", museum.ids["cancelled"])[-1].split()[-5:] == ["0", "ann", "changed", "my", "mind"]


# State


def test_the_state_for_people(museum: Museum) -> None:
    shown = lines(museum, "state", museum.ids["agent"])
    assert shown[0] == "goal  The disk is full. Fix it."
    for line in ("Plan", "  ✓ look", "  ▶ order", "  · check", "  a person decides about external_action"):
        assert line in shown
    assert "  max_steps 20, max_llm_tokens 10000" in shown
    [fact] = [line for line in shown if line.startswith("  disk")]
    assert fact.split()[:7] == ["disk", "97", "%", "from", "check_disk,", "90%", "sure"]
    assert fact.endswith(" ago")


def test_the_state_as_it_was(museum: Museum) -> None:
    assert "  ▶ look" in lines(museum, "state", museum.ids["agent"], "--at", "2")
    assert "  ✓ look" in lines(museum, "state", museum.ids["agent"], "--at", "check_disk:2.0")
    first = json.loads(holdfast("state", museum.ids["agent"], "--at", "1", "--json", url=museum.url).stdout)
    assert (first["goal"], first["plan"]) == ("The disk is full. Fix it.", [])


def test_the_history_of_a_state(museum: Museum) -> None:
    head, *rows = words(museum, "state", museum.ids["agent"], "--history")
    assert head == ["version", "when", "by", "step", "what", "why"]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert "plan of 3 steps, now: look" in " ".join(rows[1])
    assert "done: look, now: order, disk = 97 %" in " ".join(rows[2])
    parsed = json.loads(holdfast("state", museum.ids["agent"], "--history", "--json", url=museum.url).stdout)["patches"]
    assert [(one["version"], one["author"]) for one in parsed][2] == (3, "observe")


def test_what_changed(museum: Museum) -> None:
    changed = lines(museum, "diff", museum.ids["agent"], "update_plan:1.0")
    assert changed[0].startswith('+ known_facts: {"at": ')
    assert changed[1:] == ['~ current_step: "look" -> "order"', '+ completed_steps: "look"']
    assert lines(museum, "diff", museum.ids["agent"], "2", "check_disk:2.0") == changed
    assert [line[0] for line in lines(museum, "diff", museum.ids["agent"], "3", "2")] == ["-", "~", "-"]
    parsed = json.loads(holdfast("diff", museum.ids["agent"], "1", "2", "--json", url=museum.url).stdout)["changes"]
    assert [(one["path"], one["kind"]) for one in parsed] == [("plan", "changed"), ("current_step", "added")]
    coloured = in_terminal("diff", museum.ids["agent"], "2", url=museum.url)
    assert "\x1b[32m+ known_facts: " in coloured.said
    assert "\x1b[33m~ current_step: " in coloured.said


def test_nothing_changed(museum: Museum) -> None:
    answer = holdfast("diff", museum.ids["agent"], "3", url=museum.url)
    assert (answer.returncode, answer.stdout) == (0, "")
    assert answer.stderr == "holdfast: nothing changed between them\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["state", "completed"], 4),  # the state of no agent
        (["state", "agent", "--at", "99"], 3),
        (["state", "agent", "--at", "nowhere"], 3),
        (["diff", "agent", "0"], 3),
        (["diff", "completed", "1"], 4),
    ],
)
def test_a_state_that_is_not_there(museum: Museum, arguments: list[str], code: int) -> None:
    name, which, *more = arguments
    answer = holdfast(name, museum.ids[which], *more, url=museum.url)
    assert (answer.returncode, answer.stdout) == (code, "")
    assert answer.stderr.count("\n") == 1
