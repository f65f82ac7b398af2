"""``holdfast schedules``."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

from holdfast import Context, Holdfast, TaskFilter, TaskState
from tests.cli.commands.support import at_terminal, holdfast


def make(url: str) -> None:
    """Make two schedules, and one that a worker which has stopped has declared."""

    async def work() -> None:
        hold = Holdfast(url)

        @hold.task
        async def backup(ctx: Context, what: str) -> str:
            return f"{what} {ctx.tick}"

        async with hold:
            await hold.schedule("nightly", backup, "billing", cron="0 3 * * *", timezone="Europe/Berlin")
            await hold.schedule("pulse", backup, "cache", every=300, jitter=60, overlap="queue", catch_up="none")
        declaring = Holdfast(url)

        @declaring.task(cron="0 7 * * mon-fri")
        async def report(ctx: Context) -> None: ...

        async with declaring, declaring.worker():
            pass

    asyncio.run(work())


def listed(url: str) -> dict[str, Any]:
    found = json.loads(holdfast("schedules", "--json", url=url).out)["schedules"]
    return {one["name"]: one for one in found}


def test_schedules_are_listed(url: str) -> None:
    empty = holdfast("schedules", url=url if url.startswith("post") else made(url))
    assert (empty.code, "there is no schedule" in empty.said) == (0, True)
    make(url)
    answer = holdfast("schedules", url=url)
    assert answer.code == 0
    lines = {line.split()[0]: line for line in answer.out.splitlines()}
    assert "0 3 * * * Europe/Berlin" in lines["nightly"]
    assert "every 5m" in lines["pulse"]
    assert "+1m" in lines["pulse"]
    assert "not declared" in lines["report"]
    found = listed(url)
    assert list(found) == ["nightly", "pulse", "report"]
    assert len(found["nightly"]["next"]) == 3
    assert datetime.fromisoformat(found["nightly"]["next"][0]) > datetime.now(UTC)
    assert (found["pulse"]["every"], found["pulse"]["overlap"], found["pulse"]["catch_up"]) == (300.0, "queue", "none")
    assert (found["report"]["declared"], found["report"]["declared_by"], found["report"]["next"]) == (True, [], [])


def made(url: str) -> str:
    """Make the store, because a command that looks creates none."""

    async def open_it() -> None:
        async with Holdfast(url):
            pass

    asyncio.run(open_it())
    return url


def test_a_schedule_is_paused_and_goes_on(url: str) -> None:
    make(url)
    answer = holdfast("pause", "schedule:nightly", "--reason", "moving", "--by", "ann", url=url)
    assert (answer.code, answer.out) == (0, "")
    assert "schedule:nightly is paused: it submits nothing until" in answer.said
    assert "schedule:nightly" in holdfast("queues", url=url).said
    assert listed(url)["nightly"]["paused_at"] is not None
    assert "paused" in holdfast("schedules", url=url).out
    on = json.loads(holdfast("unpause", "schedule:nightly", "--json", url=url).out)
    assert on == {"subject": "schedule:nightly", "was_paused": True}
    assert len(listed(url)["nightly"]["next"]) == 3
    assert "was not paused" in holdfast("unpause", "schedule:nightly", url=url).said


async def test_a_schedule_is_triggered(url: str) -> None:
    await asyncio.to_thread(make, url)
    answer = await asyncio.to_thread(holdfast, "schedules", "trigger", "nightly", "--by", "ann", url=url)
    assert answer.code == 0
    async with Holdfast(url) as hold:
        page = await hold.store.find(TaskFilter(states=frozenset({TaskState.PENDING})))
        [task] = [task for task in page.items if task.schedule == "nightly"]
        assert (task.id, task.user_input) == (answer.out.strip(), ["billing"])
        assert (await hold.store.history(task.id))[0].actor == "ann"
    shown = await asyncio.to_thread(holdfast, "show", task.id, url=url)
    assert "nightly" in shown.out


def test_a_schedule_is_deleted_after_a_question(url: str) -> None:
    make(url)
    refused = holdfast("schedules", "delete", "nightly", url=url)
    assert (refused.code, "add --yes" in refused.said) == (2, True)
    assert holdfast("schedules", "delete", "nightly", "--yes", url=url).code == 0
    asked = at_terminal("schedules", "delete", "report", url=url, types="y\n")
    assert asked.code == 0
    assert list(listed(url)) == ["pulse"]


def test_a_schedule_that_is_not_there_is_not_found(url: str) -> None:
    made(url)
    for words in (
        ["pause", "schedule:nothing"],
        ["schedules", "trigger", "nothing"],
        ["schedules", "delete", "nothing"],
    ):
        answer = holdfast(*words, url=url)
        assert (answer.code, "schedule nothing" in answer.said or "'nothing'" in answer.said) == (3, True), answer
