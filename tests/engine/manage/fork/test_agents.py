"""Forks of agents: the conversation up to an answer, another way from there, and a mailbox of their own."""

from __future__ import annotations

import asyncio

from holdfast import Budget, Holdfast, tool
from holdfast.agent.scripted import Answer, call
from holdfast.model.patch import StatePatch
from holdfast.model.task import JsonValue
from tests.agent.support import PATIENCE, finished, keys_of, register, shown
from tests.engine.support import until


async def test_the_conversation_is_shared_and_goes_on_another_way(hold: Holdfast) -> None:
    made: list[str] = []

    @tool(risk="write_local", effect="once")
    def mend(what: str) -> str:
        """Mend something."""
        made.append(what)
        return f"mended {what}"

    def observe(_tool: str, _arguments: object, result: JsonValue, _state: object) -> StatePatch:
        return StatePatch(set_flags=(str(result),))

    agent, model = register(
        hold,
        [call("mend", what="roof"), call("mend", what="door"), "Done."],
        tools=[mend],
        observe=observe,
        builtins=False,
        budget=Budget(max_steps=10),
    )
    origin = await finished(hold, agent, "Mend the house.")
    assert made == ["roof", "door"]
    fork = await hold.fork(origin, at="mend:1.0", patch=StatePatch(goal="Mend half of it."), by="alice")
    assert await hold.state(fork, at="mend:1.0") == await hold.state(origin, at="mend:1.0")
    assert (await hold.state(fork)).goal == "Mend half of it."
    asked = len(model.requests)
    async with hold.worker():
        assert await fork.result(timeout=PATIENCE) == "Done."
    assert made == ["roof", "door", "door"]
    assert len(model.requests) == asked + 2
    assert ("tool", "mended roof") in shown(model, asked)
    assert await keys_of(hold, fork) == await keys_of(hold, origin)
    assert (await hold.state(fork)).risk_flags == ("mended roof", "mended door")
    spent = {one.meter: one.spent for one in await hold.store.accounts(fork.id)}
    whole = {one.meter: one.spent for one in await hold.store.accounts(origin.id)}
    assert spent["steps"] == whole["steps"] - 2


async def test_the_fork_reads_its_own_mail_and_no_old_mail_twice(hold: Holdfast) -> None:
    """Two messages were read in the shared past. A message to the fork is the first of its own."""
    going = asyncio.Event()

    @tool(risk="read_only")
    async def wait() -> str:
        """Wait."""
        await going.wait()
        return "waited"

    def answer(request: object) -> Answer:
        texts = [message.content for message in request.messages if message.role == "user"]  # type: ignore[attr-defined]
        called = any(message.role == "tool" for message in request.messages)  # type: ignore[attr-defined]
        return ", ".join(texts) if called else call("wait")

    agent, _ = register(hold, answer, tools=[wait], builtins=False)
    origin = await hold.submit(agent, "begin")
    async with hold.worker():
        await hold.send(origin, "one")
        await hold.send(origin, "two")
        going.set()
        await origin.result(timeout=PATIENCE)

        async def both_were_read() -> bool:
            return {"message:1", "message:2"} <= set(await keys_of(hold, origin))

        await until(both_were_read)
        going.clear()
        last = (await keys_of(hold, origin))[-1]
        before_the_end = [key for key in await keys_of(hold, origin) if key != last][-1]
        fork = await hold.fork(origin, at=before_the_end)
        await hold.send(fork, "three")
        assert await fork.result(timeout=PATIENCE) == "begin, one, two, three"
        assert await origin.result(timeout=PATIENCE) == "begin, one, two"
    assert [event.payload["text"] for event in await hold.store.events(f"inbox:{fork.id}")] == ["one", "two", "three"]


async def test_a_fork_in_a_later_round_knows_what_was_said_before(hold: Holdfast) -> None:
    """The rejected work and the reason are part of its conversation, as they are of the origin's."""

    async def strict(_ctx: object, result: str) -> bool | str:
        return True if result == "Better." else "not good enough"

    agent, model = register(hold, ["Bad.", call("note_missing"), "Better."], verify=strict, builtins=False)
    origin = await finished(hold, agent, "Write.")
    theirs = shown(model)
    fork = await hold.fork(origin, at="llm:2")
    async with hold.worker():
        assert await fork.result(timeout=PATIENCE) == "Better."
    assert shown(model) == theirs
    assert ("assistant", "Bad.") in theirs
    assert (await fork.task()).round == (await origin.task()).round == 2
