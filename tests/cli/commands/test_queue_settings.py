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
    assert shown == {"name": "deploys", "max_pending": 0, "pending": 0}
    assert "deploys: 0 of at most 0 pending" in holdfast("queues", url=url).said
    assert json.loads(holdfast("queues", "--json", url=url).out)["settings"] == [shown]
    assert "submissions are refused" in holdfast("doctor", url=url).out
    refused = holdfast("submit", "workshop:hold", "greet", "--input", "you", "--queue", "deploys", url=url)
    assert refused.code == 4, refused.said
    assert "queue 'deploys' is full" in refused.said
    assert "of any number" in holdfast("queue", "deploys", "--max-pending", "none", url=url).said
    assert holdfast("queue", "deploys", "--max-pending", "few", url=url).code == 2
    assert holdfast("queue", "deploys", "--max-pending", "-1", url=url).code == 2
