"""Code as users write it, for type checkers: never run.

Each line that has to be refused carries the ignore of its error; one that is not needed is an error in itself.
"""

from typing import Any, assert_type

from holdfast import AgentState, Context, Handle, Holdfast, SyncContext, SyncTransaction, Transaction
from holdfast.engine.api.definition import Bound, TaskDefinition
from holdfast.engine.api.sync.handle import SyncHandle
from holdfast.engine.attempt.context import Child

hold = Holdfast("memory://")


def measure(amount: int) -> str:
    return str(amount)


async def fetch(url: str, retries: int = 3) -> bytes:
    return url.encode() * retries


def charge(amount: int, effect_id: str) -> float:
    return amount / len(effect_id)


async def send(*, effect_id: str) -> int:
    return len(effect_id)


def total(a: int, b: float, c: str, d: bytes, e: bool, f: None) -> list[int]:  # noqa: PLR0917
    return [a, int(b), len(c), len(d), e, 0 if f is None else 1]


@hold.task
async def deploy(ctx: Context, service: str, replicas: int = 1) -> bool:
    assert_type(await ctx.step("measure", measure, 3), str)
    assert_type(await ctx.step("fetch", fetch, "x"), bytes)
    assert_type(await ctx.step("fetch", fetch, "x", 2, key="again", retry=None), bytes)
    assert_type(await ctx.step("charge", charge, 3, effect="once"), float)
    assert_type(await ctx.step("send", send), int)
    assert_type(await ctx.step("lambda", lambda: 3, timeout=1), int)
    assert_type(await ctx.step("total", total, 1, 1.0, "", b"", True, None), list[int])  # noqa: FBT003
    await ctx.step("measure", measure, "wrong")  # type: ignore[arg-type]
    await ctx.step("measure", measure)  # type: ignore[arg-type]
    await ctx.step("measure", measure, 1, 2)  # type: ignore[arg-type]
    await ctx.step("fetch", fetch, "x", "wrong")  # type: ignore[arg-type]
    await ctx.step("charge", charge, "wrong")  # type: ignore[arg-type]
    await ctx.step("measure", measure, amount=3)  # type: ignore[call-overload]
    await ctx.step("measure", measure, 3, kee="x")  # type: ignore[call-overload]
    await ctx.step("measure", measure(3))  # type: ignore[arg-type]
    assert_type(await ctx.submit(count, 1), Child[int])
    await ctx.submit(count, "wrong")  # type: ignore[misc]
    await ctx.submit(count, number=1)  # type: ignore[call-overload]
    return bool(service and replicas)


@hold.task
def count(ctx: SyncContext, number: int) -> int:
    assert_type(ctx.step("measure", measure, 3), str)
    assert_type(ctx.step("fetch", fetch, "x"), bytes)
    ctx.step("measure", measure, "wrong")  # type: ignore[arg-type]
    ctx.submit(deploy, 3)  # type: ignore[misc]
    return number


async def main(unknown: TaskDefinition[..., str], anything: Any) -> None:  # noqa: ANN401
    assert_type(await hold.submit(deploy, "billing"), Handle[bool])
    assert_type(await hold.submit(deploy, "billing", 2, priority=3, key="k"), Handle[bool])
    assert_type(await hold.submit(deploy.bind(service="billing")), Handle[bool])
    assert_type(deploy.bind("billing"), Bound[bool])
    assert_type(await hold.submit(unknown, 1, "x"), Handle[str])
    assert_type(await hold.submit("deploy", 1, 2, 3), Handle[Any])
    given = AgentState(goal="go")
    assert_type(await hold.submit(unknown, "x", state=given, plan=["a"], facts={"b": 1}, artifacts=["c"]), Handle[str])
    assert_type(await hold.submit(unknown, state=given), Handle[str])
    await hold.submit(unknown, "x", state={"goal": "go"})  # type: ignore[call-overload]
    assert_type(await (await hold.submit(count, 3)).result(), int)
    await hold.submit(anything, 1)
    await hold.submit(deploy, 3)  # type: ignore[misc]
    await hold.submit(deploy)  # type: ignore[arg-type]
    await hold.submit(deploy, "billing", "two")  # type: ignore[misc]
    await hold.submit(deploy, service="billing")  # type: ignore[call-overload]
    await hold.submit(deploy, "billing", prioritty=3)  # type: ignore[call-overload]
    await hold.submit(deploy.bind(3))  # type: ignore[arg-type]
    with hold.sync as blocking:
        assert_type(blocking.submit(deploy, "billing").result(), bool)
        blocking.submit(deploy, 3)  # type: ignore[misc]


async def within(tx: Transaction, connection: object) -> None:
    assert_type(await tx.submit(count, 1), Handle[int])
    assert_type(await tx.submit(deploy, "web", 2, key="k", if_exists="replace", labels={"a": "b"}), Handle[bool])
    assert_type(await tx.submit(deploy.bind("web", replicas=2), delay=3, debounce=None), Handle[bool])
    assert_type(await tx.submit("by-name", 1, 2, queue="q"), Handle[Any])
    await tx.submit(count, "wrong")  # type: ignore[misc]
    await tx.submit(count)  # type: ignore[arg-type]
    await tx.submit(count, 1, after="x")  # type: ignore[call-overload]
    await tx.submit(count, 1, connection=connection)  # type: ignore[call-overload]
    assert_type(await hold.submit(count, 1, connection=connection), Handle[int])
    assert_type(await hold.transaction(placed), str)


async def placed(tx: Transaction) -> str:
    handle = await tx.submit(count, 1)
    return handle.id


def within_blocking(tx: SyncTransaction, connection: object) -> None:
    assert_type(tx.submit(count, 1, at=None), SyncHandle[int])
    assert_type(tx.submit(deploy.bind("web")), SyncHandle[bool])
    tx.submit(count, "wrong")  # type: ignore[misc]
    tx.submit(count, 1, plan=[])  # type: ignore[call-overload]
    with hold.sync as h:
        assert_type(h.submit(count, 1, connection=connection), SyncHandle[int])
