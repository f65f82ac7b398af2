"""Waiting for a task, and for work: what happened before the wait began is not waited for."""

from __future__ import annotations

import asyncio

import pytest
from mcp import Client

from holdfast import Holdfast
from holdfast.model.checkpoints import checksum_of
from holdfast.model.operations import SaveCheckpoint
from holdfast.model.records import Checkpoint
from tests.engine.manage.state.support import write
from tests.mcp.support import ask, server_of, submitted, taken
from tests.mcp.watching import watcher_of
from tests.service.handover.support import Outside, task_of


async def test_a_question_that_was_answered_before_the_wait(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client)
    asked = await ask(client, "ask_human", lease=lease, question="Which disk?")
    await hold.answer(asked["question_id"], "sdb", by="ann")
    shown = await ask(client, "wait_for_task", task_id=task_id, until="pending", timeout_seconds=55)
    assert (shown["done"], shown["state"]) == (True, "pending")


async def test_a_question_that_is_answered_meanwhile(hold: Holdfast, client: Client) -> None:
    task_id, lease = await taken(client)
    asked = await ask(client, "ask_human", lease=lease, question="Which disk?")
    waiting = asyncio.create_task(ask(client, "wait_for_task", task_id=task_id, until="pending", timeout_seconds=55))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await hold.answer(asked["question_id"], "sdb", by="ann")
    assert (await waiting)["state"] == "pending"


async def test_a_question_without_an_answer_in_time(client: Client) -> None:
    task_id, lease = await taken(client)
    await ask(client, "ask_human", lease=lease, question="Which disk?")
    shown = await ask(client, "wait_for_task", task_id=task_id, until="pending", timeout_seconds=0.1)
    assert (shown["done"], shown["state"]) == (False, "waiting")


@pytest.mark.parametrize("until", ["ended", "pending", "changed"])
async def test_an_end_is_an_end_whatever_was_waited_for(hold: Holdfast, client: Client, until: str) -> None:
    task_id, lease = await taken(client)
    await ask(client, "ask_human", lease=lease, question="Which disk?")
    waiting = asyncio.create_task(ask(client, "wait_for_task", task_id=task_id, until=until, timeout_seconds=55))
    await asyncio.sleep(0.05)
    await hold.cancel(task_id, "not wanted", by="ann")
    shown = await waiting
    assert (shown["done"], shown["state"], shown["cancel_requested"]) == (True, "cancelled", "not wanted")


async def test_each_look_is_short(client: Client) -> None:
    task_id, lease = await taken(client, "x" * 3000, plan=["look"], details={"a": "y" * 3000}, key="k")
    shown = await ask(client, "wait_for_task", task_id=task_id, timeout_seconds=0)
    assert shown == {"done": False, "task_id": task_id, "state": "running"}
    await ask(client, "report_progress", lease=lease, message="half way")
    await ask(client, "finish_task", lease=lease, result=1)
    shown = await ask(client, "wait_for_task", task_id=task_id)
    assert shown == {
        "done": True,
        "task_id": task_id,
        "state": "completed",
        "result": 1,
        "progress": [{"message": "half way", "by": "mcp:ada"}],
    }


async def test_work_that_is_handed_back_while_a_caller_waits_for_it(hold: Holdfast, client: Client) -> None:
    bob = Outside(hold, "bob")
    task = await bob.offer()
    lease = (await bob.take()).lease
    waiting = asyncio.create_task(ask(client, "claim_task", wait_seconds=55))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert len(await hold.store.workers()) == 1  # a client that only waits is not registered yet
    await bob.holding(lease).release("yours")
    claimed = await waiting
    assert (claimed["task_id"], claimed["notes"][0]["note"]) == (task.id, "yours")
    assert (await task_of(hold, task.id)).attempts == 0


async def test_work_that_waits_elsewhere_is_named_when_the_time_is_up(client: Client) -> None:
    for queue in ("disks", "disks", "nets"):
        await submitted(client, queue=queue)
    await submitted(client, queue="later", delay_seconds=3600)
    answer = await ask(client, "claim_task", queues=["default", "nets"], wait_seconds=0.05)
    assert answer["task"]["queue"] == "nets"
    answer = await ask(client, "claim_task", queues=["default", "nets"], wait_seconds=0.05)
    assert answer == {"task": None, "elsewhere": {"disks": 2}}


async def test_a_new_checkpoint_is_notified(hold: Holdfast) -> None:
    task = await Outside(hold, "ada").offer()
    uri = f"state://agents/default/tasks/{task.id}/checkpoints/1"
    server, body = server_of(hold), b"{}"
    for era in ("auto", "legacy"):
        async with server.http(), watcher_of(server, era, [uri]) as heard:
            saved = Checkpoint(number=1, position=0, version=1, body=body, checksum=checksum_of(body))
            await write(hold, task.id, SaveCheckpoint(saved))
            await heard.of(uri)
