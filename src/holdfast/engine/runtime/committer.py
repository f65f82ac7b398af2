"""Group commit: the Commits of all attempts of a process, in one durable transaction at a time.

Each attempt continues when its own Commit is durable. A refused Commit does not affect other attempts. If an answer is
lost with the connection, the same Commits are sent again with the same numbers until the store answers: only the store
knows whether they were applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.engine.runtime.batcher import Batcher
from holdfast.engine.runtime.store_retry import endless_pauses
from holdfast.model.commit import Commit, Held, Refusal, Verdict
from holdfast.model.size import commit_size
from holdfast.store.base import StateStore

MOST_COMMITS = 500


class Committer(Batcher[Commit, Verdict]):
    """Sends Commits in the order in which they were put."""

    def __init__(self, store: StateStore) -> None:
        """Commit to this store."""
        super().__init__(
            store.commit, most=MOST_COMMITS, patience=endless_pauses, size=commit_size, outage=store.outage
        )

    def _line_of(self, item: Commit) -> object:
        """Commits of one attempt are numbered: none may overtake another."""
        return item.task_id

    def _name_of(self, item: Commit) -> str:
        return f"task {item.task_id}"

    def _answered(self, items: Sequence[Commit], answers: Sequence[Verdict]) -> None:
        """Refuse the Commits that are queued behind a refused Commit of the same attempt.

        Their numbers follow the number of the refused one. If they were sent later, another Commit could have such a
        number by then, and the store would take the queued one for a repetition of it.
        """
        last: dict[tuple[str, int], Verdict] = {}
        refused: set[tuple[str, int]] = set()
        for item, answer in zip(items, answers, strict=True):
            if isinstance(item.guard, Held):
                last[item.task_id, item.guard.fence] = answer  # the state of the task after the whole batch
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
                # Answered after the Commits of the batch, which were sent before it.
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
