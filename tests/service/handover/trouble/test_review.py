"""What an agent outside calls the result of a typed task has to be of that type, verifier or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Context, Handle, Holdfast, TaskState
from holdfast.model.errors import CodecError
from tests.service.handover.support import Outside, everything

both = pytest.mark.parametrize("is_verified", [False, True], ids=["without a verifier", "with a verifier"])


@dataclass
class Freed:
    """What the task below returns."""

    gigabytes: int


def define(hold: Holdfast, *, is_verified: bool) -> list[Freed]:
    """Define a task that returns a Freed; return what its verifier was asked."""
    asked: list[Freed] = []

    async def clean(ctx: Context) -> Freed:
        del ctx
        return Freed(1)

    definition = hold.task(clean)
    if is_verified:

        @definition.verify
        async def verify(ctx: Context, result: Freed) -> bool:
            del ctx
            asked.append(result)
            return True

    return asked


@both
@pytest.mark.parametrize("result", ["20 GB", None, 20, {"gigabytes": "many"}, {"megabytes": 1}, [20]], ids=repr)
async def test_a_result_of_another_type_ends_nothing(living: Holdfast, result: Any, *, is_verified: bool) -> None:  # noqa: ANN401
    asked = define(living, is_verified=is_verified)
    ada = Outside(living, "ada")
    handle: Handle[Any] = await living.submit("clean")
    holding = ada.holding((await ada.take(names=["clean"])).lease)
    before = await everything(living, handle.id)
    with pytest.raises(CodecError, match=r"^result.*: does not fit Freed"):
        await holding.finish(result)
    assert await everything(living, handle.id) == before
    assert (await holding.finish({"gigabytes": 20})).task.state is TaskState.REVIEW  # the lease is still good
    assert asked == []


@both
async def test_every_reader_gets_one_of_its_type(living: Holdfast, *, is_verified: bool) -> None:
    asked = define(living, is_verified=is_verified)
    ada = Outside(living, "ada")
    handle: Handle[Any] = await living.submit("clean")
    holding = ada.holding((await ada.take(names=["clean"])).lease)
    await holding.finish({"gigabytes": 20})
    async with living.worker():
        assert await handle.result(60) == Freed(20)
    assert asked == ([Freed(20)] if is_verified else [])
    assert (await holding.finish({"gigabytes": 20})).replayed
