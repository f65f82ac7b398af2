"""A sub-agent: an Agent among the tools of another."""

from typing import Any

from holdfast import Agent, Handle, Holdfast, ScriptedModel, TaskDefinition, TaskState, tool
from holdfast.agent.model import Request
from holdfast.agent.scripted import Answer, Line, Writer, call
from tests.engine.support import ended, until
from tests.semantics.scene import AT_ONCE, HOUR, ONE_TRY, SOON, Calls, Scene


class Team:
    """A boss that asks its helper, which sends something."""

    def __init__(self, scene: Scene, boss: list[Line] | Writer | None = None, **options: Any) -> None:  # noqa: ANN401
        self.calls = calls = Calls()

        @tool
        async def send(to: str) -> str:
            """Send."""
            return calls.do(f"send {to}")

        self.helper = ScriptedModel(
            lambda request: "sent" if request.messages[-1].role == "tool" else call("send", to="ann")
        )
        helper = Agent("helper", description="Helps.", model=self.helper, tools=[send], builtins=False)
        self.model = ScriptedModel(boss or [call("helper", request="Send it."), "done"])
        options = {"retry": ONE_TRY, **options}
        agent = Agent("boss", model=self.model, tools=[helper], builtins=False, **options)
        self.definition: TaskDefinition[..., Any] = scene.hold.register(agent)

    async def begin(self, scene: Scene) -> Handle[Any]:
        return await scene.hold.submit(self.definition, "go")


def broken_once() -> list[Line]:
    """The boss asks its helper, and then its model fails once."""
    broken = [True]

    def answer(_: object) -> str | BaseException:
        return RuntimeError("no such model") if broken and broken.pop() else "done"

    return [call("helper", request="Send it."), answer, answer, answer]


async def automatic_retry(scene: Scene) -> None:
    team = Team(scene, broken_once(), retry=AT_ONCE)
    handle = await team.begin(scene)
    assert await ended(handle) == "done"
    assert team.calls == ["send ann"]
    assert len(await scene.children(handle)) == 1


async def resume(scene: Scene) -> None:
    team = Team(scene, broken_once())
    handle = await team.begin(scene)
    await scene.failure(handle)
    await scene.hold.resume(handle)
    assert await ended(handle) == "done"
    assert team.calls == ["send ann"]
    assert len(await scene.children(handle)) == 1


async def _continued(scene: Scene, handle: Handle[Any], team: Team) -> None:
    """The same helper worked in a round of its own, and what it had sent was not sent again."""
    [child] = await scene.children(handle)
    assert (child.round, child.state) == (2, TaskState.COMPLETED)
    assert team.calls == ["send ann"]


async def retry(scene: Scene) -> None:
    ask = call("helper", request="Send it.")
    broken = [True]

    def think(request: Request) -> Answer | BaseException:
        if request.messages[-1].role != "tool":
            return ask
        return RuntimeError("no such model") if broken and broken.pop() else "done"

    team = Team(scene, think)
    handle = await team.begin(scene)
    await scene.failure(handle)
    await scene.hold.retry(handle)
    assert await ended(handle) == "done"
    await _continued(scene, handle, team)


async def new_round(scene: Scene) -> None:
    ask = call("helper", request="Send it.")
    team = Team(
        scene, [ask, "short", ask, "long"], verify=lambda _, result: result == "long" or "longer", retry=AT_ONCE
    )
    handle = await team.begin(scene)
    assert await ended(handle) == "long"
    await _continued(scene, handle, team)


async def new_round_with_another_request(scene: Scene) -> None:
    """An equal request goes to the helper that had it; another one goes to the next that is left."""
    script: list[Line] = [
        [call("helper", request="A"), call("helper", request="B")],
        "short",
        [call("helper", request="C"), call("helper", request="A")],
        "long",
    ]
    team = Team(scene, script, verify=lambda _, result: result == "long" or "longer", retry=AT_ONCE)
    handle = await team.begin(scene)
    assert await ended(handle) == "long"
    inputs = [(child.round, child.user_input) for child in await scene.children(handle)]
    assert sorted(inputs, key=str) == [(2, ["A"]), (2, ["C"])]
    assert team.calls == ["send ann", "send ann"]


async def new_round_with_an_equal_request_behind_another(scene: Scene) -> None:
    """The order of the calls does not matter: what helper A sent is not sent again."""
    calls = Calls()

    @tool
    async def send(to: str) -> str:
        """Send."""
        return calls.do(f"send {to}")

    def think(request: Request) -> Answer | BaseException:
        if request.messages[-1].role == "tool":
            return "sent"
        asked = [message.content for message in request.messages if message.role == "user"]
        return call("send", to="bob" if "B" in asked else "ann")

    helper = Agent("helper", description="Helps.", model=ScriptedModel(think), tools=[send], builtins=False)
    script: list[Line] = [
        call("helper", request="A"),
        "short",
        [call("helper", request="B"), call("helper", request="A")],
        "long",
    ]
    boss = Agent(
        "boss",
        model=ScriptedModel(script),
        tools=[helper],
        builtins=False,
        retry=AT_ONCE,
        verify=lambda _, result: result == "long" or "longer",
    )
    handle = await scene.hold.submit(scene.hold.register(boss), "go")
    assert await ended(handle) == "long"
    assert calls == ["send ann", "send bob"]


async def fork(scene: Scene) -> None:
    team = Team(scene)
    origin = await team.begin(scene)
    await ended(origin)
    fork = await scene.hold.fork(origin)
    assert await ended(fork) == "done"
    assert team.calls == ["send ann"]
    assert await scene.children(fork) == []


class Waiting:
    """A boss whose helper asks a person."""

    def __init__(self, scene: Scene, **options: Any) -> None:  # noqa: ANN401
        self.helper = ScriptedModel([call("ask_question", question="Which one?"), "that one"])
        helper = Agent("helper", description="Helps.", model=self.helper)
        model = ScriptedModel([call("helper", request="Choose."), "done"])
        agent = Agent("boss", model=model, tools=[helper], builtins=False, **options)
        self.definition: TaskDefinition[..., Any] = scene.hold.register(agent)

    async def begin(self, scene: Scene, **options: Any) -> Handle[Any]:  # noqa: ANN401
        handle = await scene.hold.submit(self.definition, "go", **options)
        await until(scene.hold.approvals)
        await scene.waits(handle)
        return handle


async def cancel(scene: Scene) -> None:
    handle = await Waiting(scene).begin(scene)
    await scene.hold.cancel(handle)
    await scene.is_cancelled(handle)
    [child] = await scene.children(handle)
    await scene.is_cancelled(scene.hold.handle(child.id))
    assert await scene.hold.approvals() == []


async def deadline(scene: Scene) -> None:
    with scene.box.frozen():
        handle = await Waiting(scene).begin(scene, deadline=SOON)
    assert "DeadlineExceeded" in await scene.failure(handle)
    [child] = await scene.children(handle)
    assert "DeadlineExceeded" in await scene.failure(scene.hold.handle(child.id))
    assert await scene.hold.approvals() == []


async def resume_of_a_stopped_one(scene: Scene) -> None:
    with scene.box.frozen():
        handle = await Waiting(scene).begin(scene, deadline=SOON)
    await scene.failure(handle)
    with scene.box.frozen():
        await scene.hold.resume(handle, deadline=HOUR)
        await until(scene.hold.approvals)
        [question] = await scene.hold.approvals()
        await scene.hold.answer(question.id, "the left one", by="anna")
        assert await ended(handle) == "done"
    [child] = await scene.children(handle)
    assert (child.round, child.state) == (1, TaskState.COMPLETED)


async def suspension(scene: Scene) -> None:
    handle = await Waiting(scene).begin(scene)
    assert (await handle.task()).owner is None
    [question] = await scene.hold.approvals()
    await scene.hold.answer(question.id, "the left one", by="anna")
    assert await ended(handle) == "done"


async def take_over(scene: Scene) -> None:
    team = Team(scene)
    scene.box.crash("llm:2", when="before_effect")
    handle = await team.begin(scene)
    assert await ended(handle) == "done"
    assert team.calls == ["send ann"]
    assert len(await scene.children(handle)) == 1


async def deploy(scene: Scene) -> None:
    """The helper is gone from the code: its recorded answer counts all the same."""
    url = f"sqlite:///{scene.folder}/deployed.db"
    async with Holdfast(url) as old:
        ask = ScriptedModel([call("helper", request="Send it."), RuntimeError("no such model")])
        helper = Agent("helper", description="Helps.", model=ScriptedModel(["sent"]))
        first = await old.submit(old.register(Agent("boss", model=ask, tools=[helper], retry=ONE_TRY)), "go")
        async with old.worker():
            await scene.failure(first)
    async with Holdfast(url) as new:
        model = ScriptedModel(["never asked", "done"])
        new.register(Agent("boss", model=model, retry=ONE_TRY))
        async with new.worker():
            assert await ended(await new.resume(first.id)) == "done"
        assert [message.content for message in model.requests[0].messages if message.role == "tool"] == ["sent"]


async def prune(scene: Scene) -> None:
    team = Team(scene)
    handle = await team.begin(scene)
    await ended(handle)
    [child] = await scene.children(handle)
    await scene.prune()
    assert await scene.hold.store.get(handle.id) is None
    assert await scene.hold.store.get(child.id) is None
