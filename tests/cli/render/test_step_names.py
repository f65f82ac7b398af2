"""Whatever ``holdfast steps`` shows of a step can be typed where a step is wanted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Handle, Holdfast, InvalidValue, NotFound
from holdfast.engine.attempt.journal import ROUND_SIZE
from holdfast.model.step import Step, StepState
from holdfast.service.service import Service
from holdfast.service.step_names import find_step
from tests.cli.render import application
from tests.cli.render.museum import Museum
from tests.cli.render.support import holdfast


def step(key: str, position: int, *, round_: int = 1, kind: str = "step") -> Step:
    return Step(
        key=key,
        position=(round_ - 1) * ROUND_SIZE + position,
        round=round_,
        kind=kind,
        state=StepState.COMPLETED,
    )


OPENING = step("holdfast:approval:a", 1, kind="approval")
NUMBER = step("1", 2)
CHARGE = step("charge", 3)
AGAIN = step("charge", 1, round_=2)
ASKED = step("holdfast:question:b", 2, round_=2, kind="question")
ASKED_TOO = step("holdfast:question:c", 3, round_=2, kind="question")
LAST = step("holdfast:approval:d", 4, round_=2, kind="approval")
JOURNAL = [OPENING, NUMBER, CHARGE, AGAIN, ASKED, ASKED_TOO, LAST]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("charge", AGAIN),
        ("1", NUMBER),  # a key goes before a number
        ("3", CHARGE),
        ("2.1", AGAIN),
        ("approval", LAST),  # of two rounds the newest
        ("holdfast:approval:a", OPENING),
        ("2.2", ASKED),
        ("nothing", None),
        ("9", None),
    ],
)
def test_what_a_step_is_called(wanted: str, found: Step | None) -> None:
    assert find_step(JOURNAL, wanted) == found


def test_a_name_of_several_lists_them() -> None:
    with pytest.raises(
        InvalidValue, match=r"several steps: 2\.2 \(holdfast:question:b\), 2\.3 \(holdfast:question:c\)"
    ):
        find_step(JOURNAL, "question")


def test_a_step_by_the_name_and_the_number_that_are_shown(museum: Museum) -> None:
    shown = holdfast("steps", museum.ids["agent"], url=museum.url).stdout.splitlines()[-1].split()
    assert shown[:3] == ["7", "…", "approval"]
    by_name = holdfast("steps", museum.ids["agent"], "approval", url=museum.url)
    by_number = holdfast("steps", museum.ids["agent"], "7", url=museum.url)
    assert by_name.returncode == by_number.returncode == 0
    assert "holdfast:approval:" in by_name.stdout
    assert by_name.stdout.splitlines()[0] == by_number.stdout.splitlines()[0]
    unknown = holdfast("steps", museum.ids["agent"], "99", url=museum.url)
    assert (unknown.returncode, unknown.stdout) == (3, "")
    assert f"`holdfast steps {museum.ids['agent']}` lists them" in unknown.stderr


async def test_fork_and_state_take_the_name_that_is_shown(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        hold.register(application.devops)
        service = Service(hold)
        async with hold.worker():
            handle: Handle[Any] = await hold.submit("devops", "Fix it.")
            while not (asked := await hold.approvals(handle.id)):  # noqa: ASYNC110 - the store knows
                await asyncio.sleep(0.02)
            await hold.approve(asked[0].id, by="ann")
            await handle.result()
        [key] = [one.key for one in await service.steps(handle.id) if one.kind == "approval"]
        _, origin = await service.fork(handle.id, at="approval", user_input=None, key=None, by="ann")
        _, by_key = await service.fork(handle.id, at=key, user_input=None, key=None, by="ann")
        assert key.startswith("holdfast:approval:")
        assert (origin.step, origin.position) == (by_key.step, by_key.position)
        assert await service.state(handle.id, at="approval") == await service.state(handle.id, at=key)
        assert await service.state_diff(handle.id, "approval", "approval") == ()
        with pytest.raises(NotFound, match="no step 'refusal'"):
            await service.fork(handle.id, at="refusal", user_input=None, key=None, by="ann")


def test_a_state_after_the_step_that_is_shown(museum: Museum) -> None:
    waits = holdfast("state", museum.ids["agent"], "--at", "approval", url=museum.url)
    assert waits.returncode == 4  # it is found, and is not over
    assert "is pending: there is no state after it yet" in waits.stderr
