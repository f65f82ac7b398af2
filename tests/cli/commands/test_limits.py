"""``holdfast limits``, and where it is seen that something waits for one."""

from __future__ import annotations

import asyncio
import json

from holdfast import Context, Holdfast, TaskState
from tests.cli.commands.support import bring, holdfast
from tests.engine.support import until


def test_limits_are_set_listed_and_paused(url: str) -> None:
    assert holdfast("migrate", url=url).code == 0
    assert "holdfast limits set" in holdfast("limits", url=url).said
    answer = holdfast("limits", "set", "tenant", "--concurrency", "2", "--each", url=url)
    assert (answer.code, answer.out) == (0, "")
    assert answer.said == "holdfast: limit tenant: 2 at once, for each tenant:KEY apart\n"
    options = ("--rate", "500", "--tokens", "200000", "--per", "1m", "--burst", "20", "--json")
    shown = json.loads(holdfast("limits", "set", "openai", *options, url=url).out)
    assert shown == {
        "name": "openai",
        "concurrency": None,
        "rate": 500,
        "tokens": 200000,
        "per": 60.0,
        "burst": 20,
        "each": False,
    }
    listed = json.loads(holdfast("limits", "list", "openai", "--json", url=url).out)["limits"]
    assert [(one["key"], one["limit"], one["waiting"], one["paused"]) for one in listed] == [("openai", shown, 0, None)]
    assert "0 of 520" in holdfast("limits", url=url).out
    assert "tenant:*" in holdfast("limits", "list", url=url).out
    paused = holdfast("pause", "limit:openai", "--by", "ann", url=url)
    assert "no task and no step that needs it begins" in paused.said
    assert "by ann" in holdfast("limits", url=url).out
    assert holdfast("unpause", "limit:openai", url=url).code == 0
    assert "open" in holdfast("limits", url=url).out
    assert holdfast("limits", "set", "a:b", "--concurrency", "1", url=url).code == 2
    assert holdfast("limits", "set", "calls", "--rate", "1", url=url).code == 2
    assert holdfast("limits", "set", "tenant", "--concurrency", "2", url=url).code == 4


async def test_it_is_seen_for_which_limit_a_task_waits(url: str) -> None:
    assert holdfast("submit", "workshop:hold", "greet", "--input", "you", "--limit", "tenant:acme", url=url).code == 3
    assert holdfast("limits", "set", "tenant", "--concurrency", "1", "--each", url=url).code == 0
    gate, hold = asyncio.Event(), Holdfast(url)

    @hold.task(limits=["tenant:acme"])
    async def keep(ctx: Context) -> None:
        await ctx.step("keep", gate.wait)

    async with hold, hold.worker():
        keeping = await hold.submit(keep)

        async def has_place() -> bool:
            return (await keeping.task()).state is TaskState.RUNNING

        await until(has_place)
        waiting = await hold.submit(keep)

        async def waits() -> bool:
            return (await waiting.task()).waits_for == "tenant:acme"

        await until(waits)
        words = "waits for limit tenant:acme"
        shown = json.loads(holdfast("show", waiting.id, "--json", url=url).out)
        assert shown["why"] == f"it {words}: 1 of 1 taken"
        assert (shown["task"]["limits"], shown["task"]["waits_for"]) == (["tenant:acme"], "tenant:acme")
        assert words in holdfast("list", url=url).out
        assert "tenant:acme (1 wait; 1 of 1 taken)" in " ".join(holdfast("doctor", url=url).out.split())
        gate.set()
        await waiting.result(timeout=60)


async def test_it_is_seen_for_which_limit_a_step_waits(url: str) -> None:
    await bring(url, "greet", "you", to=TaskState.PENDING)
    gate, hold = asyncio.Event(), Holdfast(url)

    @hold.task
    async def ask(ctx: Context) -> None:
        await ctx.step("ask", gate.wait, limits=["openai"])

    async with hold, hold.worker():
        await hold.limit("openai", concurrency=1)
        handles = [await hold.submit(ask) for _ in range(2)]

        async def one_rests() -> bool:
            return any([(await handle.task()).resting for handle in handles])

        await until(one_rests)
        [resting] = [handle for handle in handles if (await handle.task()).resting]
        shown = json.loads(holdfast("show", resting.id, "--json", url=url).out)
        assert "without a slot" in shown["now"]
        assert shown["why"] == "it waits for limit openai: 1 of 1 taken"
        assert "1 resting (limit openai 1)" in " ".join(holdfast("workers", url=url).out.split())
        [worker] = json.loads(holdfast("workers", "--json", url=url).out)["workers"]
        assert worker["waits_for"] == {"openai": 1}
        # One that keeps its own places while it waits.
        await hold.limit("tenant", concurrency=1)
        handles.append(await hold.submit(ask, limits=["tenant"]))

        async def waits() -> bool:
            shown = json.loads(holdfast("show", handles[-1].id, "--json", url=url).out)
            return "without a slot" in shown["now"] and shown["why"] == "it waits for limit openai: 1 of 1 taken"

        await until(waits)
        gate.set()
        for handle in handles:
            await handle.result(timeout=60)
        assert "limit" not in json.loads(holdfast("show", resting.id, "--json", url=url).out)["why"]
