"""What people type: refused in one line where it cannot be meant, before anything is stored or deleted."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from tests.cli_edges.support import APPLICATION, holdfast, read, run, submit
from tests.cli_look.museum import Museum
from tests.cli_project.support import refusal


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("[NaN]", "holds NaN, which is not JSON"),
        ("[-Infinity]", "holds -Infinity, which is not JSON"),
        ("[1e999]", "too large for a float"),
        ("[" * 5000 + "]" * 5000, "nested deeper"),
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


@pytest.mark.parametrize("lease", ["0", "nan", "-1", "1e9"])
def test_a_senseless_lease_is_refused_before_anything_is_stored(url: str, lease: str) -> None:
    submit("echo", "--input", "x", url=url)
    answer = holdfast("run", APPLICATION, "echo", "--input", "y", "--lease", lease, url=url)
    assert answer.returncode == 2
    assert "makes no sense" in answer.stderr
    assert [task["user_input"] for task in read("list", url=url)["tasks"]] == [["x"]]


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
    assert "worker" in refusal(holdfast("list", "--worker", "nobody", url=museum.url), 3)
