"""The agent's state while it runs: the patches in the store, plus its own patches that are not stored yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.manage.past_state import EMPTY, read_patch
from holdfast.engine.manage.state import with_origin
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import canonical, parse
from holdfast.model.operations import ApplyPatch
from holdfast.model.patch import StatePatch, absorb, apply
from holdfast.model.records import Checkpoint, PatchRecord
from holdfast.model.state_size import check_growth, fit_patch

ENGINE = "holdfast"
"""The author of patches that no tool, model or person asked for."""


class StateKeeper:
    """One attempt's view of its task's AgentState.

    Others may patch the state at any time, so it is read again before each model call. The attempt's own buffered
    patches are applied on top.
    """

    def __init__(
        self,
        attempt: Attempt,
        checkpoint: Checkpoint | None,
        patches: Iterable[PatchRecord],
        *,
        noted: Callable[[bytes], None],
    ) -> None:
        """Start from what the store knew when the attempt began. ``noted`` gets each patch made here."""
        self._attempt = attempt
        self._noted = noted
        self._stored = EMPTY if checkpoint is None else AgentState.from_json(parse(checkpoint.body))
        self.version = 0 if checkpoint is None else checkpoint.version
        """The version of the stored state, as last read."""
        self._own: list[ApplyPatch] = []
        self._is_concurrent = False
        self._fold(patches)
        self.state = self._stored

    def change(
        self, patch: StatePatch, *, author: str, reason: str = "", step_key: str | None = None, is_own: bool = True
    ) -> tuple[ApplyPatch, ...]:
        """Apply a patch here, and return the operation that stores it; an empty tuple if it changes nothing.

        Raises InvalidValue if it does not fit the state. Long texts in it are shortened. With ``is_own`` False, the
        patch is not the engine's: then the size of the state is limited.
        """
        dated = with_origin(patch, self._attempt.services.time.now(), self.state.current_step)
        patch = fit_patch(dated, self.state.open_questions)
        changed = apply(self.state, patch)
        if not is_own:
            check_growth(self.state, changed)
        if changed == self.state:
            return ()
        self.state = changed
        operation = ApplyPatch(body=canonical(patch.to_json()), author=author, reason=reason, step_key=step_key)
        self._own.append(operation)
        self._noted(operation.body)
        return (operation,)

    def catch_up(self) -> bool:
        """Note that its own patches were stored; return whether the state is now exactly that of ``version``.

        It is not while one of its own patches is on its way, or after a patch of another author came in between.
        """
        attempt = self._attempt
        is_sent = attempt.outbox.is_flushed and not self._is_concurrent
        if self._own and is_sent and attempt.outbox.version == self.version + len(self._own):
            self._stored, self.version, self._own = self.state, attempt.outbox.version, []
        return not self._own and attempt.outbox.version <= self.version

    @contextmanager
    def concurrent_calls(self) -> Iterator[None]:
        """Mark that calls run concurrently until the block ends: one may read while the patch of another is on its way.

        The version alone does not show whether that patch or one of another author arrived.
        """
        self.catch_up()
        self._is_concurrent = True
        try:
            yield
        finally:
            self._is_concurrent = False

    async def refresh(self) -> bool:
        """Read the new patches; return whether any of them has another author."""
        if self.catch_up() and await self._is_unchanged():
            return False
        store, task_id = self._attempt.services.store, self._attempt.task.id
        foreign = self._fold(await call_store(lambda: store.patches(task_id, after=self.version)))
        if self._attempt.outbox.is_flushed:
            self._own.clear()  # a patch that is not stored by now was refused with its Commit
        self.state = self._stored
        for own in self._own:
            self.state = absorb(self.state, read_patch(own))
        return foreign

    async def _is_unchanged(self) -> bool:
        task_id = self._attempt.task.id
        task = await call_store(lambda: self._attempt.services.store.get(task_id))
        return task is not None and task.version == self.version

    def _fold(self, patches: Iterable[PatchRecord]) -> bool:
        foreign = False
        for record in patches:
            self._stored = absorb(self._stored, read_patch(record))
            self.version = record.version
            mine = next((own for own in self._own if _is_same(own, record)), None)
            if mine is None:
                foreign = True
            else:
                self._own.remove(mine)
        return foreign


def _is_same(own: ApplyPatch, record: PatchRecord) -> bool:
    return (own.step_key, own.author, own.body) == (record.step_key, record.author, record.body)
