"""``holdfast cancel``."""

from __future__ import annotations

import asyncio
import json

from holdfast import Context, Holdfast, TaskState
from tests.cli.commands.support import PATIENCE, at_terminal, bring, holdfast, look, states, workshop


async def test_one_task_is_asked_about_too(url: str) -> None:
    task_id = await bring(url, "greet", "you", to=TaskState.PENDING)
    refused = holdfast("cancel", task_id, url=url)
    assert (refused.code, refused.out) == (2, "")
    for words in ("greet", "you", "1 task, with whatever children it has, will be cancelled", "add --yes"):
        assert words in refused.said
    no = at_terminal("cancel", task_id, url=url, types="n\n")
    assert (no.code, no.out) == (1, "")
    assert await states(url, task_id) == ["pending"]
    yes = at_terminal("cancel", task_id[-8:], "--reason", "not needed", url=url, types="y\n")
    assert (yes.code, yes.out) == (0, f"{task_id} cancelled\n")
    [task] = await look(url, task_id)
    assert task.cancel_requested == "not needed"
    async with Holdfast(url) as hold:
        assert (await hold.store.history(task_id))[-1].actor == "tess"


async def test_a_filter_finds_open_tasks_only(url: str) -> None:
    ended = await bring(url, "fail", to=TaskState.FAILED)
    ids = [await bring(url, "greet", f"number {number}", to=TaskState.PENDING) for number in range(12)]
    refused = holdfast("cancel", "--since", "1h", url=url)
    assert refused.code == 2
    assert "12 tasks" in refused.said
    assert "and 2 more" in refused.said
    assert "number 9" in refused.said
    assert "number 10" not in refused.said
    assert set(await states(url, *ids)) == {"pending"}
    done = holdfast("cancel", "--since", "1h", "--yes", "--json", url=url)
    assert (done.code, [one["state"] for one in json.loads(done.out)["tasks"]]) == (0, ["cancelled"] * 12)
    assert set(await states(url, *ids)) == {"cancelled"}
    assert await states(url, ended) == ["failed"]


async def test_what_has_ended_is_left_as_it_is(url: str) -> None:
    task_id = await bring(url, "greet", "you", to=TaskState.COMPLETED)
    answer = holdfast("cancel", task_id, url=url)
    assert (answer.code, answer.out) == (0, f"{task_id} completed\n")
    assert answer.said == f"holdfast: task {task_id} had ended before (completed), and is left as it is\n"


async def test_a_task_that_runs_is_stopped_by_its_worker(url: str) -> None:
    async with workshop(url) as hold:
        begun, stopped = asyncio.Event(), asyncio.Event()

        @hold.task
        async def hang(ctx: Context) -> None:
            del ctx
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        handle = await hold.submit(hang)
        async with hold.worker():
            await asyncio.wait_for(begun.wait(), PATIENCE)
            answer = await asyncio.to_thread(holdfast, "cancel", handle.id, "--yes", url=url)
            assert (answer.code, answer.out) == (0, f"{handle.id} running\n")
            assert "its worker stops it" in answer.said
            await asyncio.wait_for(stopped.wait(), PATIENCE)
