"""Agents under limits: each model call takes a permit, whose tokens are reserved by estimate and settled by usage."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import EffectState, Holdfast, LimitUse, Reply, Retry, TaskFailed, Usage, tool
from holdfast.agent.model import ModelError, Request
from holdfast.agent.model_call import LONG_ANSWER
from holdfast.agent.scripted import call
from tests.agent.support import PATIENCE, finished, register
from tests.engine.support import until

HOUR = timedelta(hours=1)
AT_ONCE = Retry(max_attempts=3, initial=0, jitter="none")


async def use(hold: Holdfast, name: str = "openai") -> LimitUse:
    [found] = await hold.limits(name)
    return found


async def settles(hold: Holdfast, *, calls: int, tokens: int) -> None:
    """Return when the limit counts this, and no call has a permit."""

    async def is_settled() -> bool:
        now = await use(hold)
        return (now.taken, now.calls, now.tokens) == (0, calls, tokens)

    await until(is_settled)


async def test_a_model_call_counts_its_estimate_while_it_runs_and_its_usage_afterwards(either: Holdfast) -> None:
    await either.limit("openai", rate=10, tokens=100_000, concurrency=1, per=HOUR)
    during: list[LimitUse] = []

    async def answer(_: Request) -> Reply:
        during.append(await use(either))
        return Reply(content="Done.", usage=Usage(input_tokens=100, output_tokens=23))

    agent, model = register(either, [answer], limits=["openai"])
    await finished(either, agent)
    [seen] = during
    assert (seen.taken, seen.calls) == (1, 1)
    assert LONG_ANSWER < seen.tokens < 2 * LONG_ANSWER
    await settles(either, calls=1, tokens=123)
    assert len(model.requests) == 1


async def test_each_try_takes_a_permit_and_a_refusal_uses_no_tokens(either: Holdfast) -> None:
    await either.limit("openai", rate=10, tokens=100_000, per=HOUR)
    reply = Reply(content="Done.", usage=Usage(input_tokens=10, output_tokens=5))
    agent, _ = register(either, [ModelError("not now"), reply], limits=["openai"], model_retry=AT_ONCE)
    await finished(either, agent)
    await settles(either, calls=2, tokens=15)


async def test_calls_of_many_agents_wait_until_their_tokens_fit(hold: Holdfast) -> None:
    await hold.limit("openai", tokens=3 * LONG_ANSWER, per=HOUR)
    now = most = 0
    go_on = asyncio.Event()

    async def answer(_: Request) -> Reply:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await go_on.wait()
        now -= 1
        return Reply(content="Done.", usage=Usage(input_tokens=10, output_tokens=5))

    agent, model = register(hold, [answer], limits=["openai"])
    handles = [await hold.submit(agent, "go") for _ in range(5)]
    async with hold.worker(concurrency=5):
        await until(lambda: now == 2)

        async def three_wait() -> bool:
            return (await use(hold)).waiting == 3

        await until(three_wait)
        go_on.set()
        for handle in handles:
            await handle.result(timeout=PATIENCE)
    assert most == 2
    assert len(model.requests) == 5
    await settles(hold, calls=5, tokens=75)


async def test_a_provider_that_asks_for_a_pause_closes_the_limit_of_all_agents(hold: Holdfast) -> None:
    await hold.limit("openai", rate=100, per=timedelta(minutes=1))
    busy = ModelError("too many requests", status=429, retry_after=0.5)
    loop, began = asyncio.get_running_loop(), list[float]()

    def answer(_: Request) -> str:
        began.append(loop.time())
        return "Done."

    agent, _ = register(hold, [busy, answer], limits=["openai"], model_retry=AT_ONCE)
    other, _ = register(hold, [answer], limits=["openai"], name="other")
    handle = await hold.submit(agent, "go")
    async with hold.worker():

        async def is_closed() -> bool:
            return (await use(hold)).closed_until is not None

        await until(is_closed)
        closed_at = loop.time()
        await (await hold.submit(other, "go")).result(timeout=PATIENCE)
        await handle.result(timeout=PATIENCE)
    assert min(began) - closed_at >= 0.3  # of half a second; the look at the store took the rest


async def test_an_agent_whose_limit_was_never_set_calls_no_model(hold: Holdfast) -> None:
    agent, model = register(hold, ["Done."], limits=["nope"], retry=Retry(max_attempts=1))
    handle = await hold.submit(agent, "go")
    async with hold.worker():
        with pytest.raises(TaskFailed, match=r"hold.limit\('nope'"):
            await handle.result(timeout=PATIENCE)
    assert model.requests == []


@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_a_tool_under_a_limit_waits_for_each_of_its_calls_and_is_armed_only_then(
    hold: Holdfast, effect: str
) -> None:
    await hold.limit("mail", concurrency=1)
    now = most = 0
    armed: list[int] = []

    @tool(risk="write_local", effect=effect, limits=["mail"])
    async def send(to: str) -> str:
        """Send a mail."""
        nonlocal now, most
        now += 1
        most = max(most, now)
        effects = await hold.store.effects(states={EffectState.ARMED})
        armed.append(len(effects))
        await asyncio.sleep(0.01)
        now -= 1
        return to

    agent, _ = register(
        hold, [[call("send", to="a"), call("send", to="b"), call("send", to="c")], "Done."], tools=[send]
    )
    await finished(hold, agent)
    assert most == 1
    assert armed == ([1, 1, 1] if effect == "once" else [0, 0, 0])
