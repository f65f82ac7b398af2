"""What is shown where there is little room: whole columns go, and what matters stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from holdfast import Holdfast
from holdfast.cli.render.overview import page
from holdfast.cli.render.table_fit import ORDER, WantedWidth, fit
from holdfast.cli.terminal import table
from holdfast.service.overview import read_overview
from tests.cli.render.museum import Museum
from tests.cli.render.support import Terminal, holdfast, in_terminal

STEPS = ("#", "", "step", "kind", "state", "tries", "effect", "took", "ended")
LONG = "charge the customer's credit card once"


def drawn(shown: RenderableType, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]


def journal(effect: str = "") -> RenderableType:
    row = ["11", "✓", LONG, "approval", "completed", "1", effect, "0.0s", "12:34:56"]
    return table(STEPS, [row], flexible={"step", "output"})


@pytest.mark.parametrize(
    ("width", "head"),
    [
        (200, "#      step                                    kind      state      tries  effect  took  ended"),
        (80, "#      step                                 kind      state      took  ended"),
        (60, "#      step                       state      took  ended"),
        (40, "#      step                   state"),
    ],
)
def test_a_table_keeps_what_it_is_about(width: int, head: str) -> None:
    shown = drawn(journal(), width)
    assert shown[0] == head
    assert shown[2].startswith("11  ✓  charge the customer")
    assert max(map(len, shown)) <= width


def test_what_is_empty_goes_first_and_only_where_there_is_too_little_room() -> None:
    wishes = [
        WantedWidth("step", 10, gives_way=True),
        WantedWidth("state", 9),
        WantedWidth("tries", 5),
        WantedWidth("ended", 8, is_empty=True),
    ]
    assert list(fit(wishes, 40)) == ["step", "state", "tries", "ended"]
    assert list(fit(wishes, 39)) == ["step", "state", "tries"]
    assert list(fit(wishes, 29)) == ["step", "state"]


def test_ids_are_whole_or_the_screen_is_too_small_for_anything() -> None:
    wishes = [
        WantedWidth("id", 8),
        WantedWidth("worker", 60, gives_way=True),
        WantedWidth("state", 8),
        WantedWidth("queues", 30, gives_way=True),
    ]
    for width in range(32, 120):
        given = fit(wishes, width)
        assert (given["id"], given["state"]) == (8, 8)
        assert given["worker"] >= 10
        assert sum(given.values()) + 2 * len(given) <= width


def test_a_command_is_broken_and_never_cut() -> None:
    command = "holdfast resolve 3c26012a DECISION"
    made = table(("asks", "type"), [["May I call it? " * 5, command]], flexible={"asks", "type"})
    made.columns[1].overflow = "fold"
    assert command in drawn(made, 80)[2]
    first, second = drawn(made, 40)[2:]
    assert (first.split()[-2:], second.split()) == (["holdfast", "resolve"], ["3c26012a", "DECISION"])


def test_no_column_is_named_twice_in_the_order() -> None:
    assert len(ORDER) == len(set(ORDER))


# One task


@pytest.mark.parametrize("width", [40, 80])
async def test_what_a_page_leaves_out_is_counted_below_in_one_line(museum: Museum, width: int) -> None:
    async with Holdfast(museum.url) as hold:
        seen = await read_overview(hold, museum.ids["failed"])
    prepared = [step for step in seen.steps if step.key == "prepare"]
    many = replace(seen, steps=prepared * 10, history=list(seen.history) * 3, events=[], messages=[])
    shown = drawn(page(many), width)
    assert f"  2 more: holdfast steps {museum.short('failed')}" in shown
    steps = shown[shown.index("Steps") + 1 :]
    assert steps[0].split()[:3] == ["✓", "prepare", "step"]
    assert f"3 more; every move: holdfast history {museum.short('failed')}" in " ".join(" ".join(shown).split())
    few = "\n".join(drawn(page(replace(many, steps=prepared, history=seen.history)), width))
    assert "more" not in few


# In real terminals

WIDTHS = (40, 60, 80, 120)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["steps", "agent"], ["#", "step", "✓  update_plan:1.0", "7  …  approval", "pending"]),
        (["approvals"], ["asks", "Deploy to", "production?"]),
        (["list"], ["task", "delegate_elsewhere", "review"]),
        (["workers"], ["worker", "vulcan", "silent"]),
    ],
)
def test_the_column_that_matters_is_there(
    museum: Museum, arguments: Sequence[str], words: Sequence[str], columns: int
) -> None:
    text = in_terminal(*(museum.ids.get(one, one) for one in arguments), url=museum.url, columns=columns).text
    assert max(map(len, text.split("\n"))) <= columns
    assert [word for word in words if word not in text] == []
    if arguments == ["list"]:
        assert [name for name in museum.ids if museum.short(name) not in text] == []


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_board_says_what_to_type(museum: Museum, columns: int) -> None:
    with Terminal("watch", url=museum.url, columns=columns, lines=50) as terminal:
        terminal.until(lambda: any(any("ValueError" in line for line in frame) for frame in terminal.frames))
        terminal.interrupt()
        terminal.leave()
    shown = next(frame for frame in terminal.frames if any("ValueError" in line for line in frame))
    assert max(map(len, shown)) <= columns
    for word in ("queue", "remote", "worker", "vulcan", "greet", "waits for you", "? Deploy to", "holdfast approve"):
        assert any(word in line for line in shown), word
    assert not any("holdfast" in line and line.endswith("…") for line in shown[1:])
    assert any("DECISION" in line for line in shown)


async def test_a_cursor_is_never_broken(museum: Museum) -> None:
    """A cursor with a line end in it would be cut into two useless halves."""
    whole = holdfast("list", "--limit", "1", url=museum.url).stderr
    cursor = whole.partition("--after ")[2].partition(",")[0]
    narrow = in_terminal("list", "--limit", "1", url=museum.url, columns=20)
    assert len(cursor) > 20
    assert cursor in narrow.text
    after = holdfast("list", "--limit", "1", "--after", cursor, url=museum.url)
    assert after.returncode == 0


async def test_a_list_that_may_not_be_whole_is_marked(museum: Museum) -> None:
    for listing in ("approvals", "doubts"):
        assert "there may be more" in holdfast(listing, "--limit", "1", url=museum.url).stderr
        assert "there may be more" not in holdfast(listing, url=museum.url).stderr


def test_what_is_too_long_for_a_line_goes_on_below_its_beginning(museum: Museum) -> None:
    shown = in_terminal("show", museum.short("agent"), url=museum.url, columns=40).text.split("\n")
    head = [line for line in shown if line.startswith("│")]
    why = next(number for number, line in enumerate(head) if line.startswith("│ why"))
    assert head[why + 1].startswith("│          ")
    asked = next(number for number, line in enumerate(shown) if line.startswith("  ? "))
    assert shown[asked + 1].startswith("    ")
