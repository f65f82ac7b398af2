"""What the feed must have seen, compared with what the store holds."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast import EffectState, FeedEvent, StateStore, Task
from holdfast.testing.snapshot import all_tasks

Seen = dict[str, Any]
"""An event, as JSON."""

DOUBT = {EffectState.IN_DOUBT, EffectState.NEEDS_HUMAN}
_MOST = 10_000


class FeedWitness:
    """A reader that stops and goes on: all it keeps is what it was seen, with the cursors, in a file or not."""

    def __init__(self, cursor: str, path: Path | None = None) -> None:
        """``cursor`` is where it begins, unless the file says where it stopped."""
        self.begin = cursor
        self._path = path
        self.seen: list[Seen] = []
        if path is not None and path.exists():
            self.seen = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    @property
    def cursor(self) -> str:
        return str(self.seen[-1]["cursor"]) if self.seen else self.begin

    async def look(self, store: StateStore, *, limit: int = 500, pages: int = 1_000_000) -> None:
        """Read on, some pages or to the end."""
        new: list[Seen] = []
        cursor = self.cursor
        for _ in range(pages):
            page = await store.read_feed(cursor, limit=limit)
            if not page.events:
                break
            new += [_as_json(event) for event in page.events]
            cursor = page.cursor
        self.seen += new
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(one) + "\n" for one in new)

    async def check(self, store: StateStore) -> list[str]:
        """Read to the end; return what is wrong, if it began with the store."""
        await self.look(store)
        again = FeedWitness(self.begin)
        await again.look(store, limit=7)
        wrong = [] if _places(again.seen) == _places(self.seen) else ["another reader got something else"]
        return [*wrong, *[line async for line in _compare(store, self.seen)]]


def _as_json(event: FeedEvent) -> Seen:
    return dict(event.to_json())


def _places(seen: Iterable[Seen]) -> list[tuple[str, str, str]]:
    return [(one["cursor"], one["kind"], one["task_id"]) for one in seen]


async def _compare(store: StateStore, seen: list[Seen]) -> Any:  # noqa: ANN401 - an asynchronous iterator of lines
    by_task: dict[str | None, list[Seen]] = defaultdict(list)
    for one in seen:
        by_task[one["task_id"]].append(one)
    tasks = {task.id: task for task in await all_tasks(store)}
    for task_id in by_task.keys() | tasks.keys():
        events = by_task[task_id]
        for line in _chain(events):
            yield f"task {task_id}: {line}"
        if task_id in tasks:
            async for line in _of_task(store, tasks[task_id], events):
                yield f"task {task_id}: {line}"
    for worker in await store.workers():
        states = [one["kind"].partition(".")[2] for one in by_task[None] if one["data"].get("worker_id") == worker.id]
        if states[-1:] != [worker.state] or states[:1] != ["live"] or len(states) != len(set(states)):
            yield f"worker {worker.id} is {worker.state}, and the feed has {states}"


def _chain(events: list[Seen]) -> Iterator[str]:
    """Each move begins where the one before has ended, whether the task is still stored or not."""
    moves = [one for one in events if one["kind"].startswith("task.")]
    states = [one["kind"].partition(".")[2] for one in moves]
    if moves and moves[0]["data"]["from"] is not None:
        yield f"its first move was from {moves[0]['data']['from']}"
    for before, (state, move) in pairwise(zip(states, moves, strict=True)):
        if move["data"]["from"] != before[0]:
            yield f"it went on to {state} from {move['data']['from']}, and was {before[0]}"


async def _of_task(store: StateStore, task: Task, events: list[Seen]) -> Any:  # noqa: ANN401 - as above
    history = [(move.from_state, move.to_state, move.reason[:200], move.actor) for move in await store.history(task.id)]
    moves = [
        (one["data"]["from"], one["kind"].partition(".")[2], one["data"]["reason"], one["data"]["actor"])
        for one in events
        if one["kind"].startswith("task.")
    ]
    if moves != history:
        yield f"its history is {history}, and the feed has {moves}"

    steps = {(step.round, step.key): (step.state, step.attempts) for step in await store.steps(task.id)}
    last = {
        (one["round"], one["data"]["key"]): (one["kind"].partition(".")[2], one["data"]["attempts"])
        for one in events
        if one["kind"].startswith("step.")
    }
    if last != steps:
        yield f"of its steps the feed has {sorted(set(last.items()) ^ set(steps.items()))} otherwise"

    seen = Counter((one["kind"], one["data"].get("approval_id")) for one in events)
    for approval in await store.approvals(task_id=task.id, limit=_MOST):
        ends = seen["approval.decided", approval.id] + seen["approval.expired", approval.id]
        if seen["approval.opened", approval.id] != 1 or ends != (approval.state != "open"):
            yield f"approval {approval.id} is {approval.state}, and the feed has {seen}"

    doubts = {one["data"]["effect_id"]: one["data"]["state"] for one in events if one["kind"].startswith("doubt.")}
    for effect in await store.effects(task_id=task.id, limit=_MOST):
        if (effect.state in DOUBT) != (doubts.get(effect.effect_id) in DOUBT):
            yield f"effect {effect.effect_id} is {effect.state}, and the feed has {doubts.get(effect.effect_id)}"

    for kind, channel in (("progress", f"task:{task.id}"), ("message", f"inbox:{task.id}")):
        found = [one["data"]["number"] for one in events if one["kind"] == kind]
        kept = await store.events(channel, limit=_MOST)
        stored = [
            event.number
            for event in kept
            if not (isinstance(event.payload, dict) and event.payload.get("kind") == "text")
        ]
        if sorted(found) != found or len(set(found)) != len(found) or not set(stored) <= set(found):
            yield f"channel {channel} has {stored}, and the feed has {found}"
