"""Tasks of our own that agents outside may take as well: neither work is taken for the other's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast import Agent, Conflict, Context, Handle, Holdfast, Retry, TaskFailed, TaskState, tool
from holdfast.agent.scripted import ScriptedModel, call
from tests.engine.support import reaches
from tests.service.handover.support import NOTHING, Outside, facts, task_of

NAMES = ("handover", "deploy")


@pytest.fixture
def ada(living: Holdfast) -> Outside:
    return Outside(living, "ada")


def did(runs: list[str], what: str, answer: str) -> Callable[[], Coroutine[Any, Any, str]]:
    """A function that notes that it ran."""

    async def run() -> str:
        runs.append(what)
        return answer

    return run


def define(
    hold: Holdfast, *, verdicts: list[bool] | None = None, runs: list[str] | None = None, retry: Retry | None = None
) -> None:
    """A task with two steps, and a verifier with a given answer."""
    done = runs if runs is not None else []

    async def deploy(ctx: Context, service: str) -> str:
        for name in ("build", "apply"):
            await ctx.step(name, did(done, name, name))
        return f"{service} is up{f' ({ctx.feedback})' if ctx.feedback else ''}"

    definition = hold.task(name="deploy", retry=retry)(deploy)
    if verdicts is not None:

        @definition.verify
        async def verify(ctx: Context, result: object) -> bool:
            del ctx, result
            return verdicts.pop(0)


async def test_what_an_agent_outside_finished_is_verified_by_the_tasks_own_worker(
    living: Holdfast, ada: Outside
) -> None:
    runs: list[str] = []
    define(living, verdicts=[True], runs=runs)
    handle: Handle[Any] = await living.submit("deploy", "billing")
    taken = await ada.take(names=NAMES)
    assert (taken.task.id, taken.state) == (handle.id, None)
    standing = await ada.holding(taken.lease).finish("billing is up, by hand")
    assert standing.task.state is TaskState.REVIEW
    async with living.worker():
        assert await handle.result(60) == "billing is up, by hand"
    assert runs == []


async def test_what_its_verifier_rejects_goes_back(living: Holdfast, ada: Outside) -> None:
    runs: list[str] = []
    define(living, verdicts=[False, True], runs=runs, retry=Retry(max_attempts=3, initial=0.01))
    handle: Handle[Any] = await living.submit("deploy", "billing")
    await ada.holding((await ada.take(handle.id, names=NAMES)).lease).finish("nothing is up")
    async with living.worker():
        result = await handle.result(60)
    assert runs == ["build", "apply"]
    assert str(result).startswith("billing is up")


async def test_without_a_verifier_its_worker_still_has_the_last_word(living: Holdfast, ada: Outside) -> None:
    define(living)
    handle: Handle[Any] = await living.submit("deploy", "billing")
    standing = await ada.holding((await ada.take(handle.id, names=NAMES)).lease).finish("by hand")
    assert standing.task.state is TaskState.REVIEW
    with pytest.raises(Conflict, match="its result is being verified"):
        await ada.ask(handle.id, names=NAMES)
    async with living.worker():
        assert await handle.result(60) == "by hand"


async def test_only_its_own_worker_fails_it(living: Holdfast, ada: Outside) -> None:
    define(living)
    handle: Handle[Any] = await living.submit("deploy", "billing")
    lease = (await ada.take(handle.id, names=NAMES)).lease
    with pytest.raises(Conflict, match=r"has a definition, whose worker decides.*release_task"):
        await ada.holding(lease).give_up("cannot")
    assert (await task_of(living, handle.id)).owner == lease.worker_id
    await ada.holding(lease).release("cannot", NOTHING)
    async with living.worker():
        assert await handle.result(60) == "billing is up"


async def test_keys_of_agents_outside_never_meet_those_of_the_code(living: Holdfast, ada: Outside) -> None:
    runs: list[str] = []
    define(living, runs=runs)
    handle: Handle[Any] = await living.submit("deploy", "billing")
    lease = (await ada.take(handle.id, names=NAMES)).lease
    for key in ("build", "apply", "holdfast:approval:1"):
        await ada.step(lease, key, "forged")
    await ada.holding(lease).release("", NOTHING)
    async with living.worker():
        assert await handle.result(60) == "billing is up"
    assert runs == ["build", "apply"]  # its own code did them
    keys = {step.key: step.kind for step in await living.store.steps(handle.id)}
    assert {key for key, kind in keys.items() if kind != "outside"} == {"build", "apply"}
    assert {key for key, kind in keys.items() if kind == "outside"} == {
        "outside:build",
        "outside:apply",
        "outside:holdfast:approval:1",
    }


async def test_what_its_worker_did_before_replays_after_an_agent_outside_had_it(living: Holdfast, ada: Outside) -> None:
    runs: list[str] = []

    async def deploy(ctx: Context) -> list[str]:
        first = await ctx.step("build", did(runs, "build", "built"))
        answer = await ctx.ask("Go on?")
        return [first, str(answer), await ctx.step("apply", did(runs, "apply", "applied"))]

    living.task(deploy)
    handle: Handle[Any] = await living.submit("deploy")
    async with living.worker():
        await reaches(handle, TaskState.WAITING)
    [asked] = await living.approvals(handle.id)
    await living.answer(asked.id, "yes", by="ann")
    taken = await ada.take(handle.id, names=NAMES)
    assert taken.answers == []  # it was not an agent outside who asked
    await ada.step(taken.lease, "look", 1)
    await ada.step(taken.lease, "look closer", 2)
    await ada.holding(taken.lease).release("", NOTHING)
    async with living.worker():
        assert await handle.result(60) == ["built", "yes", "applied"]
    assert runs == ["build", "apply"]


async def test_a_question_of_an_agent_outside_does_not_reach_the_code(living: Holdfast, ada: Outside) -> None:
    define(living)
    handle: Handle[Any] = await living.submit("deploy", "billing")
    asked = await ada.holding((await ada.take(handle.id, names=NAMES)).lease).ask("Which host?")
    async with living.worker():
        await living.answer(asked.id, "db1", by="ann")
        assert await handle.result(60) == "billing is up"


async def test_a_fork_and_a_retry_of_a_task_that_was_in_other_hands(living: Holdfast, ada: Outside) -> None:
    runs: list[str] = []
    failing = [True]

    async def deploy(ctx: Context) -> str:
        await ctx.step("build", lambda: runs.append("build"))
        if failing:
            raise ValueError("no luck")
        return "up"

    living.task(retry=Retry(max_attempts=1))(deploy)
    handle: Handle[Any] = await living.submit("deploy")
    lease = (await ada.take(handle.id, names=NAMES)).lease
    await ada.step(lease, "build", "by hand")
    await ada.holding(lease).release("", NOTHING)
    async with living.worker():
        with pytest.raises(TaskFailed, match="no luck"):
            await handle.result(60)
        failing.clear()
        fork: Handle[Any] = await living.fork(handle.id, by="ann")
        assert await fork.result(60) == "up"
        await living.resume(handle.id, by="ann")
        assert await handle.result(60) == "up"
    assert runs == ["build"]  # done once, and replayed in the fork and in the resumed one


async def test_a_new_round_begins_with_nothing_of_agents_outside(living: Holdfast, ada: Outside) -> None:
    async def deploy(ctx: Context) -> str:
        return str(await ctx.ask("Again?"))

    definition = living.task(retry=Retry(max_attempts=5, initial=0.01))(deploy)

    @definition.verify
    async def verify(ctx: Context, result: object) -> bool:
        del ctx
        return result == "right"

    handle: Handle[Any] = await living.submit("deploy")
    lease = (await ada.take(handle.id, names=NAMES)).lease
    await ada.step(lease, "look", 1)
    await ada.holding(lease).finish("wrong")
    async with living.worker():  # rejects it, and begins the second round
        await reaches(handle, TaskState.WAITING)
    [asked] = await living.approvals(handle.id)
    await living.answer(asked.id, "right", by="ann")
    taken = await ada.take(handle.id, names=NAMES)
    assert taken.task.round == 2
    assert not await ada.step(taken.lease, "look", 2)
    await ada.holding(taken.lease).release("", NOTHING)
    async with living.worker():
        assert await handle.result(60) == "right"
    looks = [(step.key, step.round) for step in await living.store.steps(handle.id) if step.kind == "outside"]
    assert looks == [("outside:look", 1), ("outside:look", 2)]


async def test_an_agent_of_ours_goes_on_where_one_outside_let_go(living: Holdfast) -> None:
    looked: list[str] = []

    @tool(risk="read_only")
    def look(where: str) -> str:
        """Look somewhere."""
        looked.append(where)
        return f"{where} is full"

    model = ScriptedModel([call("look", where="/var"), call("ask_question", question="May I clean?"), "Cleaned."])
    agent = living.register(Agent("cleaner", model=model, tools=[look]))
    ada = Outside(living, "ada")
    handle: Handle[Any] = await living.submit(agent, "Free the disk")
    async with living.worker():
        await reaches(handle, TaskState.WAITING)
    [asked] = await living.approvals(handle.id)
    await living.answer(asked.id, "yes", by="ann")
    taken = await ada.take(handle.id, names=["cleaner"])
    assert taken.state is not None
    assert taken.state.goal == "Free the disk"
    await ada.step(taken.lease, "measure", 7, facts(size="20 GB"))
    await ada.step(taken.lease, "llm:1", "forged")
    await ada.holding(taken.lease).release("", NOTHING)
    async with living.worker():
        assert await handle.result(60) == "Cleaned."
    assert looked == ["/var"]
    state = await living.state(handle.id)
    assert "20 GB" in [fact.value for fact in state.known_facts]
