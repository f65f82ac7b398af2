"""What is known about a function before it is called."""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from holdfast import Context, Holdfast
from holdfast.engine.steps import call
from holdfast.engine.steps.call import describe
from tests.engine.support import ended


@dataclass
class Invoice:
    number: int


@dataclass
class Receipt:
    number: int


def fetcher(kind: type) -> Callable[[str], Coroutine[Any, Any, Any]]:
    async def fetch(name: str):  # type: ignore[no-untyped-def] # noqa: ANN202
        return {"Invoice": Invoice, "Receipt": Receipt}[name](7)

    fetch.__annotations__["return"] = kind  # as without "from __future__ import annotations"
    return fetch


async def test_functions_of_one_factory_return_what_each_of_them_says() -> None:
    hold = Holdfast("memory://")

    @hold.task
    async def work(ctx: Context) -> list[str]:
        return [
            repr(await ctx.step("invoice", fetcher(Invoice), "Invoice")),
            repr(await ctx.step("receipt", fetcher(Receipt), "Receipt")),
        ]

    async with hold, hold.worker():
        assert await ended(await hold.submit(work)) == ["Invoice(number=7)", "Receipt(number=7)"]


def test_a_function_is_looked_at_once() -> None:
    """Also one that is named as a method, which is a new object each time."""

    class Desk:
        async def pay(self, amount: int, effect_id: str) -> Receipt:  # noqa: ARG002 - only looked at
            return Receipt(amount)

    desk, other = Desk(), Desk()
    assert describe(fetcher(Invoice)) is not describe(fetcher(Invoice))
    assert describe(ended) is describe(ended)
    assert describe(desk.pay) is describe(other.pay)
    assert describe(desk.pay).takes_effect_id


def test_what_is_gone_is_forgotten() -> None:
    gc.collect()
    before = len(call._KNOWN)
    for _ in range(10):
        describe(fetcher(Invoice))
    gc.collect()
    assert len(call._KNOWN) <= before
