"""``holdfast queue``: the settings of a queue, and a queue that is full."""

from __future__ import annotations

import json

from tests.cli.commands.support import holdfast


def test_a_queue_gets_a_limit_and_loses_it(url: str) -> None:
    assert holdfast("migrate", url=url).code == 0
    answer = holdfast("queue", "deploys", "--max-pending", "0", url=url)
    assert (answer.code, answer.out) == (0, "")
    assert answer.said == "holdfast: queue deploys: 0 pending, of at most 0\n"
    shown = json.loads(holdfast("queue", "deploys", "--json", url=url).out)
    assert shown == {
        "name": "deploys",
        "max_pending": 0,
        "pending": 0,
        "concurrency": None,
        "working": 0,
        "fair_by": None,
        "retention": None,
    }
    assert "deploys: 0 of at most 0 pending" in holdfast("queues", url=url).said
    assert json.loads(holdfast("queues", "--json", url=url).out)["settings"] == [shown]
    assert "submissions are refused" in holdfast("doctor", url=url).out
    refused = holdfast("submit", "workshop:hold", "greet", "--input", "you", "--queue", "deploys", url=url)
    assert refused.code == 4, refused.said
    assert "queue 'deploys' is full" in refused.said
    assert "of any number" in holdfast("queue", "deploys", "--max-pending", "none", url=url).said
    assert holdfast("queue", "deploys", "--max-pending", "few", url=url).code == 2
    assert holdfast("queue", "deploys", "--max-pending", "-1", url=url).code == 2


def test_a_queue_limits_its_tasks_at_work(url: str) -> None:
    assert holdfast("migrate", url=url).code == 0
    answer = holdfast("queue", "deploys", "--concurrency", "2", url=url)
    assert answer.said == "holdfast: queue deploys: 0 pending, of any number; 0 of at most 2 at work\n"
    assert json.loads(holdfast("queue", "deploys", "--json", url=url).out)["concurrency"] == 2
    assert "deploys: 0 of at most 2 at work" in holdfast("queues", url=url).said
    assert "of any number\n" in holdfast("queue", "deploys", "--concurrency", "none", url=url).said
    assert holdfast("queue", "deploys", "--concurrency", "0", url=url).code == 2


def test_a_queue_says_how_long_it_keeps_ended_tasks(url: str) -> None:
    assert holdfast("migrate", url=url).code == 0
    answer = holdfast("queue", "deploys", "--retention", "failed=90d, completed=12h", url=url)
    kept = "completed tasks are kept for 12h; failed tasks are kept for 90d"
    assert answer.said == f"holdfast: queue deploys: 0 pending, of any number; {kept}\n"
    shown = json.loads(holdfast("queue", "deploys", "--json", url=url).out)
    assert shown["retention"] == {"completed": 43_200.0, "failed": 7_776_000.0}
    assert kept.replace(";", ",") in holdfast("queues", url=url).said
    for text in ("completed", "completed=", "completed=30", "done=1d", "failed=1d,failed=2d", "completed=-1d", ""):
        assert holdfast("queue", "deploys", "--retention", text, url=url).code == 2, text
    assert "of any number\n" in holdfast("queue", "deploys", "--retention", "none", url=url).said


def test_the_tasks_of_a_queue_take_turns(url: str) -> None:
    assert holdfast("migrate", url=url).code == 0
    answer = holdfast("queue", "deploys", "--fair-by", "tenant", url=url)
    assert answer.said == "holdfast: queue deploys: 0 pending, of any number; tasks take turns by tenant\n"
    assert json.loads(holdfast("queue", "deploys", "--json", url=url).out)["fair_by"] == "tenant"
    assert "deploys: tasks take turns by tenant" in holdfast("queues", url=url).said
    for text in ("", "a=b"):
        assert holdfast("queue", "deploys", "--fair-by", text, url=url).code == 2, text
    assert "of any number\n" in holdfast("queue", "deploys", "--fair-by", "none", url=url).said
