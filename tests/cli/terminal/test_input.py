"""What people type: an impossible value is refused in one line, before anything is stored or deleted."""

from __future__ import annotations

from datetime import datetime

import pytest

from holdfast import Holdfast
from tests.cli.project.support import refusal
from tests.cli.render.museum import Museum
from tests.cli.terminal.support import APPLICATION, holdfast, read, run, submit


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("[NaN]", "holds NaN, which is not JSON"),
        ("[-Infinity]", "holds -Infinity, which is not JSON"),
        ("[1e999]", "too large for a float"),
        ("[" * 5000 + "]" * 5000, "levels deep"),
        ('["x"', "write an array such as"),
    ],
)
def test_arguments_are_strict_json(url: str, args: str, words: str) -> None:
    answer = holdfast("run", APPLICATION, "echo", "--args", args, url=url)
    assert (answer.returncode, answer.stdout) == (2, "")
    [line] = [line for line in answer.stderr.splitlines() if line.startswith("holdfast: ")]
    assert words in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("list", "--since", "999999999999d"), "write 2h, 3d or a date"),
        (("list", "--since", "0001-01-01"), "choose a year from 1970 to 9000"),
        (("list", "--until", "9999-12-31"), "choose a year from 1970 to 9000"),
        (("list", "--since", "30"), "write 2h, 3d or a date"),
        (("list", "--since", "2026"), "write 2h, 3d or a date"),
        (("list", "--since", "-30"), "write 2h, 3d or a date"),
        (("prune", "--older-than", "9999999999d", "--yes"), "a thousand years are the most"),
        (("prune", "--older-than", f"{'9' * 400}d", "--yes"), "a thousand years are the most"),
        (("prune", "--older-than", "0", "--yes"), "write it with a unit, as 30d"),
        (("prune", "--older-than", "30", "--yes"), "write it with a unit, as 30d"),
    ],
)
def test_senseless_times_change_nothing(url: str, arguments: tuple[str, ...], words: str) -> None:
    run("echo", "--input", "x", url=url)
    assert words in refusal(holdfast(*arguments, url=url), 2)
    assert len(read("list", url=url)["tasks"]) == 1


@pytest.mark.parametrize(
    ("lease", "words"),
    [("0", "out of range"), ("nan", "write seconds"), ("-1", "write seconds"), ("1e9", "out of range")],
)
def test_a_senseless_lease_is_refused_before_anything_is_stored(url: str, lease: str, words: str) -> None:
    submit("echo", "--input", "x", url=url)
    answer = holdfast("run", APPLICATION, "echo", "--input", "y", "--lease", lease, url=url)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert [task["user_input"] for task in read("list", url=url)["tasks"]] == [["x"]]


@pytest.mark.parametrize("timeout", ["-1", "0", "nan", "soon"])
def test_a_senseless_timeout_is_refused_before_anything_is_stored(url: str, timeout: str) -> None:
    submit("echo", "--input", "x", url=url)
    answer = holdfast("submit", APPLICATION, "echo", "--input", "y", "--wait", "--timeout", timeout, url=url)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "holdfast: --timeout is " in answer.stderr
    assert [task["user_input"] for task in read("list", url=url)["tasks"]] == [["x"]]


@pytest.mark.parametrize(("span", "seconds"), [("7200", 7200), ("2h", 7200), ("1h30m", 5400), (".5", 0.5)])
def test_a_span_is_a_number_of_seconds_or_has_units(url: str, span: str, seconds: float) -> None:
    submit("echo", "--input", "x", "--delay", span, "--deadline", "3d", url=url)
    task = read("show", url=url)["task"]
    created, available = (datetime.fromisoformat(task[name]) for name in ("created_at", "available_at"))
    assert (available - created).total_seconds() == pytest.approx(seconds, abs=0.1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", APPLICATION, "echo", "--input", "x", "--delay"),
        ("submit", APPLICATION, "echo", "--input", "x", "--deadline"),
        ("run", APPLICATION, "echo", "--input", "x", "--deadline"),
        ("run", APPLICATION, "echo", "--input", "x", "--lease"),
        ("worker", APPLICATION, "--lease"),
        ("worker", APPLICATION, "--grace"),
        ("budget", "x", "--max-wall-time"),
        ("memory", "store", "e", "a", "v", "--half-life"),
    ],
)
def test_what_is_not_a_span_is_refused_in_the_same_words_everywhere(url: str, arguments: tuple[str, ...]) -> None:
    answer = holdfast(*arguments, "2 fortnights", url=url)
    assert (answer.returncode, answer.stdout) == (2, "")
    remedy = "write seconds, or a number with a unit, as 30d, 12h, 2h30m or 45s"
    assert answer.stderr.splitlines()[-1] == f"holdfast: {arguments[-1]} is '2 fortnights'; {remedy}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("worker", APPLICATION, "--queues", ""),
        ("worker", APPLICATION, "--label", " "),
        ("worker", APPLICATION, "--queues", "a", "--queues", ""),
        ("approve", "x", "--by", ""),
        ("cancel", "x", "--by", ""),
        ("memory", "store", "e", "a", "v", "--source", ""),
        ("list", "--database-url", ""),
        ("submit", APPLICATION, "echo", "--input", "x", "--database-url", ""),
        ("demo", "--database-url", ""),
    ],
)
def test_an_empty_value_is_not_taken_for_none(url: str, arguments: tuple[str, ...]) -> None:
    assert refusal(holdfast(*arguments, url=url), 2) == (
        f"holdfast: {arguments[-2]} is empty; give it a value, or leave it out"
    )


def test_queues_that_are_nothing_but_commas_name_none(url: str) -> None:
    answer = holdfast("worker", APPLICATION, "--queues", " , ", url=url)
    assert answer.returncode == 2
    assert "--queues is ' , ', which names none" in answer.stderr


def test_an_id_is_known_by_the_first_characters_of_those_that_tables_show(museum: Museum) -> None:
    for name in ("completed", "failed"):
        shown = museum.short(name)
        assert holdfast("list", url=museum.url).stdout.count(shown) == 1
        part = next(shown[:length] for length in range(3, 9) if _is_unique(museum, shown[:length]))
        assert read("show", part, url=museum.url)["task"]["id"] == museum.ids[name]


def _is_unique(museum: Museum, part: str) -> bool:
    """Say whether no other id begins or ends with it, or shows it first."""
    return (
        sum(one.startswith(part) or one.endswith(part) or one[-8:].startswith(part) for one in museum.ids.values()) == 1
    )


def test_show_without_an_id_shows_the_newest(url: str) -> None:
    submit("echo", "--input", "old", url=url)
    newest = submit("echo", "--input", "new", url=url)
    assert read("show", url=url)["task"]["id"] == newest


async def test_show_without_an_id_in_an_empty_store_finds_nothing(url: str) -> None:
    async with Holdfast(url):
        pass
    assert "no task" in refusal(holdfast("show", url=url), 3)


def test_a_worker_is_known_by_its_short_id(museum: Museum) -> None:
    [owner] = [task["owner"] for task in read("list", "--queue", "vulcan", url=museum.url)["tasks"]]
    assert owner[-8:] in holdfast("workers", url=museum.url).stdout
    found = read("list", "--worker", owner[-8:], url=museum.url)["tasks"]
    assert [task["id"] for task in found] == [museum.ids["running"]]
    assert "worker" in refusal(holdfast("list", "--worker", "unknown", url=museum.url), 3)
