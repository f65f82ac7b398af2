"""Resuming an agent: its state from the newest good checkpoint and the journal, unless that is too old."""

from __future__ import annotations

from functools import partial

from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.attempt.journal import RESUMED
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.checkpoints import Checkpoints, age_of, check_age, damage_of
from holdfast.model.operations import SetAsideCheckpoint
from holdfast.model.records import Checkpoint, PatchRecord


async def stored_state(attempt: Attempt) -> tuple[Checkpoint | None, tuple[PatchRecord, ...], int]:
    """Return the newest good checkpoint, the patches after it, and the highest number of any checkpoint.

    Damaged checkpoints are set aside: kept for inspection, and never used to resume.
    """
    loaded = attempt.loaded
    if loaded is None:
        return None, (), 0
    newest = loaded.checkpoint
    if newest is None or damage_of(newest) is None:
        return newest, loaded.patches, 0 if newest is None else newest.number
    store, task_id = attempt.services.store, attempt.task.id
    every = await call_store(partial(store.checkpoints, task_id))
    good = None
    for checkpoint in reversed(every):
        why = checkpoint.damaged or damage_of(checkpoint)
        if why is None:
            good = checkpoint
            break
        if checkpoint.damaged is None and not attempt.discovery.is_under_way:
            await attempt.outbox.commit(SetAsideCheckpoint(number=checkpoint.number, why=why))
    after = 0 if good is None else good.version
    patches = await call_store(partial(store.patches, task_id, after=after))
    return good, tuple(patches), every[-1].number


async def check_freshness(attempt: Attempt, policy: Checkpoints) -> None:
    """Raise CheckpointExpired if the state is older than the policy allows."""
    loaded = attempt.loaded
    if loaded is None or policy.max_age is None or attempt.undoing is not None:
        return
    lines = [step for step in loaded.steps if step.round == attempt.task.round]
    # A resume does not make the state fresh; only accepting a stale state does.
    moments = [step.finished_at or step.started_at for step in lines if step.kind != RESUMED]
    last = max((moment for moment in moments if moment is not None), default=None)
    now = attempt.services.time.now()
    if last is None or now - last <= policy.max_age:
        return
    history = await call_store(partial(attempt.services.store.history, attempt.task.id))
    check_age(policy, attempt.task.id, age_of(history, last, now))
