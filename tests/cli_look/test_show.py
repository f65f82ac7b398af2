"""``holdfast show``: one task on one screen, in every situation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.cli_look.application import ESCAPE
from tests.cli_look.museum import Museum
from tests.cli_look.support import Terminal, holdfast, in_terminal, printed, worker


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pending", ["pending in queue 'nobody'", "no live worker takes 'greet'", "holdfast worker MODULE:HOLDFAST"]),
        ("pending", ["nobody, priority 3"]),
        ("delayed", ["pending until ", "it was asked not to begin before"]),
        ("running", ["running, on vulcan (host, pid 4711)", "fence 1; 13h "]),
        ("silent", ["on a worker that is silent", "ghost (host, pid 4711) was last heard of", "; over for "]),
        ("approval", ["a person has to decide: Deploy to production?", "holdfast approve ", "holdfast reject "]),
        ("approval", ['{"service": "billing"}', "[external_action]"]),
        ("question", ["a person has to decide: Which region?", "holdfast answer "]),
        ("doubt", ["nobody knows whether 'charge' happened", "holdfast resolve ", "decide: happened, absent"]),
        ("sleep", ["it sleeps until "]),
        ("event", ["it waits for the event 'release'"]),
        ("child", ["1 child has not ended", " greet pending"]),
        ("budget", ["The budget is spent", "holdfast approve ", "grant as much again", "1 of 1"]),
        ("review", ["being verified, without a worker", "look at it"]),
        ("completed", ["outcome  hello you", "✓  greet"]),
        ("failed", ["failed in step 'strike'", "ValueError: no luck", "holdfast resume ", "holdfast retry "]),
        ("failed", ["✓  prepare", "✗  strike (try 2)", "in _strike"]),
        ("cancelled", ["why      changed my mind", "by ann"]),
        ("fork", ["after check_disk:2.0"]),
        ("agent", ["✓ look", "▶ order", "· check", " of 20", "of 10,000", "May the agent call order_disk(size=3)?"]),
        ("keyed", ["key        greet-ann"]),
    ],
)
def test_the_page_says_where_it_stands_and_what_to_do(museum: Museum, name: str, words: list[str]) -> None:
    shown = printed("show", museum.ids[name], url=museum.url)
    missing = [word for word in words if word not in shown]
    assert not missing, shown


@pytest.mark.parametrize("columns", [80, 120])
def test_the_page_fits_the_terminal(museum: Museum, columns: int) -> None:
    terminal = in_terminal("show", museum.short("agent"), url=museum.url, columns=columns)
    assert terminal.process.returncode == 0
    lines = terminal.text.split("\n")
    assert max(map(len, lines)) == columns
    assert "What next" in lines
    assert "\x1b[" in terminal.said


def test_json_is_the_whole_overview(museum: Museum) -> None:
    answer = holdfast("show", museum.short("agent"), "--json", url=museum.url)
    told = json.loads(answer.stdout)
    assert answer.stderr == ""
    assert (told["task"]["id"], told["now"]) == (museum.ids["agent"], "waiting, and holds no worker")
    assert [step["is_done"] for step in told["plan"]] == [True, False, False]
    assert [advice["verb"] for advice in told["next"]] == ["approve", "reject"]
    assert told["approvals"][0]["arguments"] == [{"size": 3}]


def test_nothing_that_a_task_stored_moves_the_cursor(museum: Museum) -> None:
    for name in ("escape", "failed"):
        terminal = in_terminal("show", museum.ids[name], url=museum.url, columns=120)
        assert "\x1b]0" not in terminal.said
        assert "\x1b[31mred\x1b[0m" not in terminal.said
        assert "\x07" not in terminal.said
        assert "�[31mred�[0m" in terminal.text  # shown, and harmless
    assert json.loads(holdfast("show", museum.ids["escape"], "--json", url=museum.url).stdout)["task"][
        "user_input"
    ] == [ESCAPE]


# Ids


def test_an_id_by_its_end_or_its_beginning(museum: Museum) -> None:
    by_end = holdfast("show", museum.short("sleep"), "--json", url=museum.url)
    by_beginning = holdfast("show", museum.ids["sleep"][:20], "--json", url=museum.url)
    for answer in (by_end, by_beginning):
        assert json.loads(answer.stdout)["task"]["id"] == museum.ids["sleep"], answer.stderr


def test_an_ambiguous_id_names_candidates(museum: Museum) -> None:
    shared = museum.ids["sleep"][:4]
    answer = holdfast("show", shared, url=museum.url)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert f"'{shared}' could be any of several tasks: " in answer.stderr
    assert sum(one in answer.stderr for one in museum.ids.values()) == 5
    assert answer.stderr.endswith("and more; type more of the id\n")


@pytest.mark.parametrize("part", ["zzzz", "00000000-0000-7000-8000-000000000000"])
def test_an_unknown_id_is_exit_code_3(museum: Museum, part: str) -> None:
    answer = holdfast("show", part, url=museum.url)
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr.startswith("holdfast: ")
    assert part in answer.stderr
    assert answer.stderr.count("\n") == 1


# Following


def test_follow_ends_with_the_task(museum: Museum) -> None:
    assert holdfast("show", museum.ids["completed"], "--follow", url=museum.url).returncode == 0
    for name in ("failed", "cancelled"):
        answer = holdfast("show", museum.ids[name], "--follow", "--json", url=museum.url)
        assert answer.returncode == 5
        assert len(answer.stdout.splitlines()) == 1


async def test_follow_sees_it_to_its_end(tmp_path: Path) -> None:
    url, gate = f"sqlite:///{tmp_path}/hold.db", tmp_path / "gate"
    async with Holdfast(url) as hold:
        task_id = (await hold.submit("gated", str(gate), queue="default")).id
    with Terminal("show", task_id, "--follow", url=url) as terminal, worker(url):
        terminal.until("running in 'wait'")
        gate.touch()
        assert terminal.leave() == 0
    assert "outcome  through" in terminal.text
    assert terminal.said.rstrip().endswith("\x1b[?25h")  # the cursor is back


def test_ctrl_c_leaves_a_view_quietly(museum: Museum) -> None:
    with Terminal("show", museum.ids["sleep"], "--follow", url=museum.url) as terminal:
        terminal.until("it sleeps until")
        terminal.interrupt()
        assert terminal.leave() == 130
    assert "Traceback" not in terminal.text
    assert "\x1b[?25h" in terminal.said.rpartition("\x1b[?25l")[2]
