"""``holdfast show``: one task on one screen, in every situation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli.render.overview import event_in_words
from holdfast.model.task import JsonValue
from tests.cli.render.application import ESCAPE
from tests.cli.render.museum import Museum
from tests.cli.render.support import APPLICATION, Terminal, holdfast, in_terminal, printed, worker


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pending", ["pending in queue 'remote'", "no live worker takes 'greet'", "holdfast worker MODULE:HOLDFAST"]),
        ("pending", ["remote, priority 3"]),
        ("delayed", ["pending until ", "it was asked not to begin before"]),
        ("running", ["running, on vulcan (host, pid 4711)", "fence 1; 13h "]),
        ("silent", ["on a worker that is silent", "ghost (host, pid 4711) was last heard of", "; over for "]),
        ("approval", ["a person has to decide: Deploy to production?", "holdfast approve ", "holdfast reject "]),
        ("approval", ['{"service": "billing"}', "[external_action]"]),
        ("question", ["a person has to decide: Which region?", "holdfast answer "]),
        ("doubt", ["whether 'charge' happened is not known", "holdfast resolve ", "decide: happened, absent"]),
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
    assert terminal.code == 0
    lines = terminal.text.split("\n")
    assert max(map(len, lines)) == columns
    assert "What next" in lines
    assert "\x1b[" in terminal.said


def test_json_is_the_whole_overview(museum: Museum) -> None:
    answer = holdfast("show", museum.short("agent"), "--json", url=museum.url)
    parsed = json.loads(answer.stdout)
    assert answer.stderr == ""
    assert (parsed["task"]["id"], parsed["now"]) == (museum.ids["agent"], "waiting, and holds no worker")
    assert [step["is_done"] for step in parsed["plan"]] == [True, False, False]
    assert [advice["verb"] for advice in parsed["next"]] == ["approve", "reject"]
    assert parsed["approvals"][0]["arguments"] == [{"size": 3}]


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


def test_streamed_text_is_not_what_happened_and_the_count_is_right(tmp_path: Path) -> None:
    """One answer is streamed in dozens of pieces; the journal has it as a whole."""
    url = f"sqlite:///{tmp_path}/hold.db"

    def piece(index: int) -> JsonValue:
        return {"kind": "text", "step": "llm:1", "attempt": 1, "try": 1, "index": index, "text": f"word {index}"}

    async def tell() -> str:
        async with Holdfast(url) as hold:
            task_id = (await hold.submit("chat", queue="default")).id
            for number in range(1, 31):
                parsed: JsonValue = {"kind": "progress", "step": number, "total": 30, "message": "reading"}
                await hold.emit(f"task:{task_id}", parsed)
            for index in range(40):
                await hold.emit(f"task:{task_id}", piece(index))
            for number in range(25):
                await hold.send(task_id, f"hint {number}", by="ann")
        return task_id

    task_id = asyncio.run(tell())
    shown = printed("show", task_id, url=url)
    assert "word " not in shown
    assert "ann said: hint 24" in shown
    assert "50 more; every move: holdfast history" in shown  # 1 move, 30 reports and 25 messages, of which 6 are shown
    document = json.loads(printed("show", task_id, "--json", url=url))
    assert [event["payload"]["step"] for event in document["events"]] == list(range(11, 31))


def test_reports_are_in_words() -> None:
    moved = {"kind": "transition", "machine": "order", "number": 2, "from": "new", "to": "paid", "reason": "money"}
    reports: dict[str, JsonValue] = {
        "2 of 9: reading": {"kind": "progress", "step": 2, "total": 9, "message": "reading"},
        "2": {"kind": "progress", "step": 2, "total": None, "message": ""},
        "50 %: half": {"message": "half", "by": "claude", "percent": 50},
        "order goes from new to paid: money": moved,
        '{"own": 1}': {"own": 1},
    }
    assert [event_in_words(payload) for payload in reports.values()] == list(reports)


def test_a_task_that_returns_nothing_shows_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/hold.db"
    ran = holdfast("run", APPLICATION, "nothing", url=url)
    assert (ran.returncode, ran.stdout) == (0, "")
    for looking in (("list",), ("show",), ("steps", "--output"), ("steps", "--json")):
        shown = printed(*(looking[:1]), *looking[1:], url=url)
        assert ("null" in shown) == ("--json" in looking), looking


def test_show_steps_history_and_state_mean_the_newest_task_by_default(museum: Museum) -> None:
    newest = json.loads(printed("show", "--json", url=museum.url))["task"]["id"]
    assert newest == json.loads(printed("list", "--limit", "1", "--json", url=museum.url))["tasks"][0]["id"]
    for looking in ("steps", "history"):
        assert printed(looking, "--json", url=museum.url) == printed(looking, newest, "--json", url=museum.url)
    answer = holdfast("state", url=museum.url)
    assert f"task {newest} has no AgentState" in answer.stderr
