"""What an agent outside calls the result of a typed task has to be of that type, verifier or not."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, TaskFailed
from tests.handover.support import Outside


def define(hold: Holdfast, *, is_verified: bool) -> list[object]:
    """Define a task that returns a number; return what its verifier was asked."""
    asked: list[object] = []

    async def clean(ctx: Context) -> int:
        del ctx
        return 1

    definition = hold.task(clean)
    if is_verified:

        @definition.verify
        async def verify(ctx: Context, result: int) -> bool:
            del ctx
            asked.append(result)
            return True

    return asked


async def finished(hold: Holdfast, result: Any) -> Handle[Any]:  # noqa: ANN401 - any JSON
    ada = Outside(hold, "ada")
    handle: Handle[Any] = await hold.submit("clean")
    await ada.holding((await ada.take(names=["clean"])).lease).finish(result)
    return handle


@pytest.mark.parametrize("is_verified", [False, True])
@pytest.mark.parametrize("result", ["20 GB", None, {"gigabytes": 20}, [20]], ids=repr)
async def test_a_result_of_another_type_is_none(living: Holdfast, result: object, *, is_verified: bool) -> None:
    asked = define(living, is_verified=is_verified)
    handle = await finished(living, result)
    async with living.worker():
        with pytest.raises(TaskFailed, match="result"):
            await handle.result(60)
    assert asked == []


@pytest.mark.parametrize("is_verified", [False, True])
async def test_one_of_its_type_is_what_the_caller_gets(living: Holdfast, *, is_verified: bool) -> None:
    asked = define(living, is_verified=is_verified)
    handle = await finished(living, 20)
    async with living.worker():
        assert await handle.result(60) == 20
    assert asked == ([20] if is_verified else [])
