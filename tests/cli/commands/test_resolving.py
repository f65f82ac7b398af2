"""``holdfast doubts`` and ``holdfast resolve``."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest
from rich.console import Console, RenderableType

from holdfast import Conflict, Context, Decision, Holdfast, TaskState
from holdfast.cli.commands.doubts import _check_possible
from holdfast.cli.render.decisions import doubt_page
from holdfast.model.effect import Evidence
from holdfast.service.decisions import MEANING
from tests.cli.commands.support import at_terminal, bring, holdfast, only, work_off
from tests.engine.support import crashing_worker


async def in_doubt(url: str) -> tuple[str, str]:
    """Bring a task to its doubt; return its id and that of the effect."""
    task_id = await bring(url, "pay", 5, to=TaskState.WAITING)
    async with Holdfast(url) as hold:
        [doubt] = await hold.doubts(task_id)
    return task_id, doubt.effect.effect_id


async def effect_state(url: str, effect_id: str) -> str:
    async with Holdfast(url) as hold:
        [effect] = await hold.store.effects(effect_id=effect_id)
    return str(effect.state)


async def test_doubts_are_listed_with_what_can_be_decided(url: str) -> None:
    task_id, effect_id = await in_doubt(url)
    listed = holdfast("doubts", url=url)
    head, line = listed.out.splitlines()
    assert head.split() == ["id", "task", "step", "state", "arguments", "since", "decisions", "then", "question"]
    assert line.startswith(f"{effect_id[-8:]}  {task_id[-8:]}  pay   needs_human  [5] ")
    assert "happened,absent,abandon" in line
    [one] = json.loads(holdfast("doubts", task_id[-8:], "--json", url=url).out)["doubts"]
    assert only(one, "effect_id", "task_id", "arguments", "decisions") == {
        "effect_id": effect_id,
        "task_id": task_id,
        "arguments": [5],
        "decisions": ["happened", "absent", "abandon"],
    }
    shown = at_terminal("doubts", url=url, types=None, columns=120, whole=True).said
    for words in (effect_id, task_id, "the connection was lost while paying 5", "[5]", MEANING[Decision.ABSENT]):
        assert words in shown
    assert MEANING[Decision.COMPENSATE] not in shown


async def test_nothing_is_in_doubt(url: str) -> None:
    task_id = await bring(url, "greet", "you", to=TaskState.COMPLETED)
    answer = holdfast("doubts", task_id, url=url)
    assert (answer.code, answer.out, answer.said) == (0, "", "holdfast: nothing is in doubt\n")
    assert json.loads(holdfast("doubts", "--json", url=url).out) == {"doubts": []}


async def test_a_script_resolves(url: str) -> None:
    task_id, effect_id = await in_doubt(url)
    answer = holdfast(
        "resolve",
        effect_id[-8:],
        "happened",
        "--result",
        '"paid"',
        "--by",
        "ann",
        "--note",
        "it is in the books",
        url=url,
    )
    assert (answer.code, answer.out) == (0, f"{effect_id} done\n")
    assert "resolved as happened: it did happen" in answer.said
    assert (await work_off(url, task_id)).result == "paid"
    again = holdfast("resolve", effect_id, "absent", url=url)
    assert (again.code, again.out) == (4, "")
    assert "is not in doubt: it is done (happened, by ann: it is in the books)" in again.said


async def test_a_person_is_shown_what_it_means_and_asked(url: str) -> None:
    _, effect_id = await in_doubt(url)
    no = at_terminal("resolve", effect_id[-8:], "absent", url=url, types="n\n", columns=120)
    assert (no.code, no.out) == (1, "")
    for words in ("Did step 'pay'", "[5]", MEANING[Decision.ABSENT], "This will be resolved as absent."):
        assert words in no.said
    assert MEANING[Decision.ABANDON] not in no.said
    assert await effect_state(url, effect_id) == "needs_human"
    yes = at_terminal("resolve", effect_id[-8:], "absent", "--json", url=url, types="y\n")
    assert only(json.loads(yes.out), "effect_id", "state") == {"effect_id": effect_id, "state": "intended"}


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (("hapened",), 2, "did you mean happened?"),
        (("dunno",), 2, "choose from happened, absent"),
        (("absent", "--result", "1"), 2, "--result goes with happened only"),
        (("happened", "--result", "paid"), 2, "write JSON"),
        (("compensate",), 4, "decide happened or absent or abandon"),
    ],
)
async def test_what_cannot_be_decided(url: str, given: tuple[str, ...], code: int, words: str) -> None:
    _, effect_id = await in_doubt(url)
    answer = holdfast("resolve", effect_id, *given, url=url)
    assert (answer.code, answer.out) == (code, "")
    assert answer.said.count("\n") == 1
    assert words in answer.said
    assert await effect_state(url, effect_id) == "needs_human"


async def test_no_such_effect(url: str) -> None:
    await bring(url, "greet", "you", to=TaskState.PENDING)
    for identifier in ("nowhere", "01a1e0cb-7558-7634-9d8d-51b7d89acf7f"):
        answer = holdfast("resolve", identifier, "absent", url=url)
        assert (answer.code, answer.out) == (3, "")
        assert answer.said.startswith(f"holdfast: no effect {identifier!r}")


async def test_evidence_and_undecidable_doubts_are_shown(url: str) -> None:
    _, effect_id = await in_doubt(url)
    async with Holdfast(url) as hold:
        [doubt] = await hold.doubts()
        now = await hold.store.now()
    late = Evidence(task_id=doubt.effect.task_id, effect_id=effect_id, fence=3, body=b'{"paid":"\\u001b[31m5"}', at=now)
    shown = text_of(doubt_page(replace(doubt, evidence=(late,)), now))
    assert 'under fence 3: {"paid": "\\u001b[31m5"}' in shown
    assert "\x1b" not in shown
    undecidable = replace(doubt, decisions=())
    assert "nothing to decide yet" in text_of(doubt_page(undecidable, now))
    with pytest.raises(Conflict, match="cannot be decided yet: a worker is finding out by itself"):
        _check_possible(undecidable, Decision.ABSENT, now)
    settling = replace(undecidable, effect=replace(doubt.effect, settle_at=now + timedelta(minutes=5)))
    assert "the call may still arrive; a person is asked in 5m" in text_of(doubt_page(settling, now))


async def test_who_knows_better_decides_before_the_call_has_settled(url: str) -> None:
    app, called = Holdfast(url), asyncio.Event()

    async def hang(amount: int) -> str:
        called.set()
        await asyncio.Event().wait()
        return f"paid {amount}"

    @app.task
    async def slow(ctx: Context, amount: int) -> str:
        return await ctx.step("pay", hang, amount, effect="once", timeout=600)

    effects = []
    async with app:
        for amount in (5, 6):
            handle = await app.submit(slow, amount)
            called.clear()
            async with crashing_worker(app):
                await asyncio.wait_for(called.wait(), 60)
            effects += await app.store.effects(task_id=handle.id)
    first, second = (effect.effect_id for effect in effects)
    for one in json.loads(holdfast("doubts", "--json", url=url).out)["doubts"]:
        assert only(one, "decisions", "early") == {"decisions": [], "early": ["happened", "absent", "abandon"]}
    assert "if you know better" in at_terminal("doubts", url=url, types=None, columns=120, whole=True).said
    happened = holdfast("resolve", first, "happened", "--result", '"paid"', url=url)
    assert (happened.code, happened.out) == (0, f"{first} done\n")
    assert "not before" not in happened.said
    absent = holdfast("resolve", second, "absent", url=url)
    assert (absent.code, absent.out) == (0, f"{second} intended\n")
    assert "not before" in absent.said
    assert "may still arrive" in absent.said


def text_of(page: RenderableType) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(page)
    return captured.get()


def test_every_decision_has_a_meaning() -> None:
    assert set(MEANING) == set(Decision)
