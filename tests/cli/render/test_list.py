"""``holdfast list``: filters that combine, pages, and a listing that stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.cli.render.museum import Museum
from tests.cli.render.support import Terminal, holdfast, in_terminal, printed, worker


def names(museum: Museum, *options: str) -> list[str]:
    """Return which tasks are listed, by the situations they are in."""
    parsed = json.loads(printed("list", *options, "--json", url=museum.url))
    called = {identifier: name for name, identifier in museum.ids.items()}
    return [called.get(task["id"], "a child") for task in parsed["tasks"]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--state", "failed"], {"failed"}),
        (["--state", "failed,running", "-s", "review"], {"failed", "running", "silent", "review"}),
        (["--state", "ended"], {"completed", "escape", "keyed", "failed", "cancelled", "fork"}),
        (["--state", "open", "--queue", "remote"], {"pending", "delayed", "a child"}),
        (["--name", "devops"], {"agent", "fork"}),
        (["--name", "devops", "--state", "waiting"], {"agent"}),
        (["--agent", "by-hand"], {"review"}),
        (["--key", "greet-ann"], {"keyed"}),
        (["--key", "greet-ann", "--state", "failed"], set()),
        (["--label", "tenant=acme"], {"keyed"}),
        (["-l", "kind=x=y", "-l", "tenant=acme", "--state", "ended"], {"keyed"}),
        (["--label", "tenant=acme", "--label", "kind=x"], set()),
        (["--text", "FULL"], {"agent", "fork"}),
        (["--text", "ann"], {"keyed"}),
        (["--queue", "mines"], {"completed", "failed"}),
        (["--since", "1h", "--queue", "mines"], {"completed", "failed"}),
        (["--until", "1h"], set()),
        (["--since", "2099-01-01"], set()),
        (["--since", "2020-01-01T00:00", "--until", "2099-01-01", "--queue", "mines", "-n", "fail"], {"failed"}),
    ],
)
def test_every_filter_that_is_given_must_fit(museum: Museum, options: list[str], expected: set[str]) -> None:
    assert set(names(museum, *options)) == expected


def test_by_parent_and_by_worker(museum: Museum) -> None:
    assert names(museum, "--parent", museum.short("child")) == ["a child"]
    shown = json.loads(holdfast("show", museum.ids["running"], "--json", url=museum.url).stdout)
    assert names(museum, "--worker", shown["worker"]["id"]) == ["running"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--state", "faild"], "--state 'faild' is not a state; did you mean failed?"),
        (["--state", "xyz"], "choose from pending, "),
        (["--since", "yesterday"], "--since is 'yesterday'; write 2h, 3d or a date such as "),
        (["--label", "tenant"], "--label 'tenant' has no value; write NAME=VALUE"),
        (["-l", "tenant=a", "-l", "tenant=b"], "--label tenant is given twice"),
        (["--label", "tenant="], "the label 'tenant' is empty"),
        (["--after", "nonsense"], "nonsense"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_a_mistake_is_exit_code_2(museum: Museum, options: list[str], words: str) -> None:
    answer = holdfast("list", *options, url=museum.url)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert words in answer.stderr


def test_labels_are_shown(museum: Museum) -> None:
    shown = json.loads(printed("show", museum.ids["keyed"], "--json", url=museum.url))
    assert shown["task"]["labels"] == {"tenant": "acme", "kind": "x=y"}
    assert "kind=x=y, tenant=acme" in printed("show", museum.ids["keyed"], url=museum.url)


def test_pages_hold_every_task_once(museum: Museum) -> None:
    whole = names(museum)
    assert names(museum, "--oldest-first") == whole[::-1]
    seen: list[str] = []
    after: list[str] = []
    for _ in range(3):
        parsed = json.loads(holdfast("list", "--limit", "8", *after, "--json", url=museum.url).stdout)
        seen += [task["id"] for task in parsed["tasks"]]
        after = ["--after", parsed["next"]]
        if parsed["next"] is None:
            break
    assert len(seen) == len(set(seen)) == len(whole)


def test_people_learn_how_to_continue(museum: Museum) -> None:
    answer = holdfast("list", "--limit", "1", url=museum.url)
    assert answer.returncode == 0
    assert answer.stderr.startswith("holdfast: there are more: --after ")
    cursor = answer.stderr.split()[5].rstrip(",")
    assert holdfast("list", "--limit", "1", "--after", cursor, url=museum.url).stdout != answer.stdout


def test_nothing_fits(museum: Museum) -> None:
    answer = holdfast("list", "--queue", "empty", url=museum.url)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "holdfast: no task fits\n")


def test_a_pipe_gets_whole_lines_without_colours(museum: Museum) -> None:
    answer = holdfast("list", "--oldest-first", url=museum.url)
    head, *rows = answer.stdout.splitlines()
    assert head.split() == ["id", "task", "state", "queue", "submitted", "input", "outcome"]
    assert rows[0].split()[:4] == [museum.short("approval"), "ask", "waiting", "default"]
    assert "\x1b" not in answer.stdout
    assert "…" not in answer.stdout


def test_eighty_columns_cut_only_what_can_be_spared(museum: Museum) -> None:
    terminal = in_terminal("list", url=museum.url)
    lines = [line for line in terminal.text.split("\n") if line.strip()]
    assert max(map(len, lines)) <= 80
    assert len(lines) == 2 + len(museum.ids) + 1  # a head, a rule, and one line for each task; one is a child
    assert all(
        line.split()[2] in {"running", "review", "pending", "cancelled", "completed", "failed", "waiting"}
        for line in lines[2:]
    )
    assert "\x1b[1;31mfailed" in terminal.said


async def test_watch_sees_a_task_change(tmp_path: Path) -> None:
    url, gate = f"sqlite:///{tmp_path}/hold.db", tmp_path / "gate"
    async with Holdfast(url) as hold:
        await hold.submit("gated", str(gate), queue="default")
    with Terminal("list", "--watch", url=url, columns=120) as terminal:
        terminal.until("pending")
        with worker(url):
            terminal.until("running")
            gate.touch()
            terminal.until("through")
        terminal.interrupt()
        assert terminal.leave() == 130
    assert "Traceback" not in terminal.text
    assert terminal.said.rindex("\x1b[?25h") > terminal.said.rindex("\x1b[?25l")
