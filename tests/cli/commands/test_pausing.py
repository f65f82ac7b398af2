"""``holdfast pause`` and ``holdfast unpause``, and where a pause is seen."""

from __future__ import annotations

import json

from holdfast import TaskState
from tests.cli.commands.support import bring, holdfast, work_off


async def test_a_queue_is_paused_seen_and_unpaused(url: str) -> None:
    task_id = await bring(url, "greet", "you", to=TaskState.PENDING)
    answer = holdfast("pause", "queue:default", "--reason", "freeze", "--by", "ann", url=url)
    assert (answer.code, answer.out) == (0, "")
    assert "`holdfast unpause queue:default`" in answer.said
    assert "paused" in holdfast("list", url=url).out
    [listed] = json.loads(holdfast("list", "--json", url=url).out)["tasks"]
    assert (listed["paused"]["subject"], listed["paused"]["by"]) == ("queue:default", "ann")
    shown = json.loads(holdfast("show", task_id, "--json", url=url).out)
    assert shown["now"] == "pending, paused"
    assert "by ann: freeze" in shown["why"]
    assert "holdfast unpause queue:default" in holdfast("show", task_id, url=url).out
    queues = holdfast("queues", url=url)
    assert "paused" in queues.out
    assert "by ann: freeze" in queues.said
    assert json.loads(holdfast("queues", "--json", url=url).out)["pauses"][0]["reason"] == "freeze"
    assert "paused: queue:default" in holdfast("doctor", url=url).out
    assert json.loads(holdfast("unpause", "queue:default", "--json", url=url).out) == {
        "subject": "queue:default",
        "was_paused": True,
    }
    assert "was not paused" in holdfast("unpause", "queue:default", url=url).said
    assert (await work_off(url, task_id)).state is TaskState.COMPLETED


async def test_a_task_is_paused_by_a_few_characters_of_its_id(url: str) -> None:
    task_id = await bring(url, "greet", "you", to=TaskState.PENDING)
    assert json.loads(holdfast("pause", task_id[-8:], "--json", url=url).out)["subject"] == task_id
    assert f"holdfast unpause {task_id[-8:]}" in holdfast("show", task_id, url=url).out
    assert holdfast("unpause", task_id[-8:], url=url).code == 0
    for unknown in ("nowhere", "queues:default"):
        answer = holdfast("pause", unknown, url=url)
        assert (answer.code, "pause queue:<name> or task:<name>" in answer.said) == (3, True)
    assert holdfast("pause", "queue:", url=url).code == 2
    ended = await bring(url, "greet", "you", to=TaskState.COMPLETED)
    assert holdfast("pause", ended, url=url).code == 4
