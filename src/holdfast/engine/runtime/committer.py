"""Group commit: the Commits of all attempts of a process, in one durable transaction at a time.

Each attempt goes on when its own Commit is durable. One that is refused harms nobody else. Where an answer is lost with
the connection, the same Commits are sent again with the same numbers, for as long as it takes: only the store can say
whether they were applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.engine.runtime.batcher import Batcher
from holdfast.engine.runtime.store_retry import endless_patience
from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.model.size import commit_size
from holdfast.store.base import StateStore

MOST_COMMITS = 500


class Committer(Batcher[Commit, Verdict]):
    """Sends Commits in the order in which they were put."""

    def __init__(self, store: StateStore) -> None:
        """Commit to this store."""
        super().__init__(
            store.commit, most=MOST_COMMITS, patience=endless_patience, size=commit_size, outage=store.outage
        )

    def _answered(self, items: Sequence[Commit], answers: Sequence[Verdict]) -> None:
        """Refuse what is queued behind a refused Commit of the same attempt.

        It was numbered for a place in a row that has ended. Were it sent later, another Commit could stand in that
        place, and this one would pass for a repetition of it.
        """
        last: dict[tuple[str, int], Verdict] = {}
        refused: set[tuple[str, int]] = set()
        for item, answer in zip(items, answers, strict=True):
            if isinstance(item.guard, Held):
                last[item.task_id, item.guard.fence] = answer  # how the row stands after the whole batch
                if not answer.applied:
                    refused.add((item.task_id, item.guard.fence))
        if not refused:
            return
        kept: list[tuple[Commit, asyncio.Future[Verdict]]] = []
        for commit, waiting in self._waiting:
            key = (commit.task_id, commit.guard.fence if isinstance(commit.guard, Held) else 0)
            if key not in refused:
                kept.append((commit, waiting))
            else:
                # Behind those of the batch: they were sent before it.
                asyncio.get_running_loop().call_soon(_answer, waiting, _behind(last[key]))
        self._waiting.clear()
        self._waiting.extend(kept)


def _answer(waiting: asyncio.Future[Verdict], verdict: Verdict) -> None:
    if not waiting.done():
        waiting.set_result(verdict)


def _behind(verdict: Verdict) -> Verdict:
    if verdict.refusal is Refusal.SUPERSEDED:
        return verdict
    return Verdict(
        task_id=verdict.task_id,
        refusal=Refusal.OUT_OF_ORDER,
        detail=f"a commit of task {verdict.task_id} before this one was refused",
        state=verdict.state,
        fence=verdict.fence,
        sequence=verdict.sequence,
        revision=verdict.revision,
        version=verdict.version,
        owner=verdict.owner,
        cancel_requested=verdict.cancel_requested,
    )
