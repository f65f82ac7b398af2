"""A caller that follows a task which is pruned meanwhile gets the reason, not advice about its id."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta

import pytest

from holdfast import Agent, Holdfast, NotFound, ScriptedModel, TaskFailed
from holdfast.model.task import Task
from holdfast.service.changes import follow

PATIENCE = 60.0


async def test_a_task_that_was_seen_and_is_gone_was_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Holdfast("memory://") as hold:
        agent = hold.register(Agent("agent", model=ScriptedModel(["done"])))
        handle = await hold.submit(agent, "go")
        task = await handle.task()
        answers: list[Task | None] = []

        async def standing(task_id: str) -> Task | None:
            assert task_id == handle.id
            return answers.pop(0)

        async def look() -> Task:
            if (found := answers.pop(0)) is None:
                raise NotFound("task", handle.id)
            return found

        monkeypatch.setattr(hold.store, "standing", standing)
        for ask in (
            lambda: handle.result(timeout=PATIENCE),
            lambda: anext(aiter(handle.events())),
            lambda: _last(hold, look),
        ):
            answers[:] = [task, None]
            with pytest.raises(NotFound, match="it had ended and was pruned meanwhile"):
                await ask()
            answers[:] = [None]
            with pytest.raises(NotFound, match="check the id"):
                await ask()


async def _last(hold: Holdfast, look: object) -> None:
    async with aclosing(follow(hold.store, look, every=0.01)) as views:  # type: ignore[arg-type, var-annotated]
        async for _ in views:
            pass


async def test_a_conversation_whose_beginning_was_pruned_is_reported() -> None:
    async with Holdfast("memory://") as hold:
        agent = hold.register(Agent("agent", model=ScriptedModel(lambda _: "done")))
        async with hold.worker():
            first = await hold.submit(agent, "go")
            await first.result(timeout=PATIENCE)
        following = await hold.submit(agent, "go on", after=first)
        await hold.store.prune(timedelta(0))
        with pytest.raises(NotFound, match="it was pruned, or the id"):
            await hold.submit(agent, "go on", after=first)
        async with hold.worker():
            with pytest.raises(TaskFailed, match="it had ended and was pruned meanwhile"):
                await following.result(timeout=PATIENCE)
