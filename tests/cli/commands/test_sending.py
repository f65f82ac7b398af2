"""``holdfast send``."""

from __future__ import annotations

import json

from holdfast import Holdfast, TaskState
from tests.cli.commands.support import bring, holdfast, work_off


async def test_an_agent_reads_it(url: str) -> None:
    task_id = await bring(url, "helper", "Mail them", to=TaskState.WAITING)
    answer = holdfast("send", task_id[-8:], "be brief", url=url)
    assert (answer.code, answer.out) == (0, "")
    assert answer.said == f"holdfast: task {task_id} reads it before its next model call\n"
    parsed = json.loads(holdfast("send", task_id, "please", "--by", "ann", "--json", url=url).out)
    assert parsed == {"task_id": task_id, "text": "please", "by": "ann"}
    async with Holdfast(url) as hold:
        [approval] = await hold.approvals(task_id)
        await hold.approve(approval.id, by="ann")
    assert (await work_off(url, task_id)).result == "OK."


async def test_ended_watchers_are_not_notified(url: str) -> None:
    ended = await bring(url, "greet", "you", to=TaskState.COMPLETED)
    answer = holdfast("send", ended, "hello", url=url)
    assert (answer.code, answer.out) == (4, "")
    assert "`holdfast submit`" in answer.said
    assert holdfast("send", "nowhere", "hello", url=url).code == 3
    assert holdfast("send", ended, "  ", url=url).code == 2


async def test_a_task_that_seems_to_be_no_agent(url: str) -> None:
    task_id = await bring(url, "wonder", to=TaskState.WAITING)
    assert "only agents read" in holdfast("send", task_id, "hello", url=url).said
