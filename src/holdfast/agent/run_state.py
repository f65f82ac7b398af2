"""The agent's state while it runs: the fold of the patches in the store, and of its own that are on their way there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.engine.attempt.attempt import Attempt
from holdfast.engine.manage.past_state import EMPTY, read_patch
from holdfast.engine.manage.state import with_origin
from holdfast.engine.runtime.store_retry import insist
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

    Others may patch the state at any time, so it is read again before each model call. What was buffered and not sent
    yet comes on top.
    """

    def __init__(
        self,
        attempt: Attempt,
        checkpoint: Checkpoint | None,
        patches: Iterable[PatchRecord],
        *,
        noted: Callable[[bytes], None],
    ) -> None:
        """Begin with what the store knew when the attempt began. ``noted`` is told of each patch made here."""
        self._attempt = attempt
        self._noted = noted
        self._stored = EMPTY if checkpoint is None else AgentState.from_json(parse(checkpoint.body))
        self.version = 0 if checkpoint is None else checkpoint.version
        """Of the stored state, as far as it was read."""
        self._own: list[ApplyPatch] = []
        self._is_crowded = False
        self._fold(patches)
        self.state = self._stored

    def change(
        self, patch: StatePatch, *, author: str, reason: str = "", step_key: str | None = None, is_own: bool = True
    ) -> tuple[ApplyPatch, ...]:
        """Apply a patch here, and return the operation that stores it; nothing if it changes nothing.

        InvalidValue if it does not fit the state. What is too long in it is shortened. With ``is_own`` False it is not
        the engine's: then it may not let the state grow without end.
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
        """Take for stored what was stored; say whether the state is now exactly that of ``version``.

        It is not while a patch of its own is on its way, and not once somebody else's came in between.
        """
        attempt = self._attempt
        is_sent = attempt.outbox.is_flushed and not self._is_crowded
        if self._own and is_sent and attempt.outbox.version == self.version + len(self._own):
            self._stored, self.version, self._own = self.state, attempt.outbox.version, []
        return not self._own and attempt.outbox.version <= self.version

    @contextmanager
    def crowded(self) -> Iterator[None]:
        """Calls are made at the same time until the block ends: one may look while the patch of another is on its way.

        The version alone would not tell that patch from one of somebody else's that arrived before it.
        """
        self.catch_up()
        self._is_crowded = True
        try:
            yield
        finally:
            self._is_crowded = False

    async def refresh(self) -> bool:
        """Read what was patched since; say whether any of it was somebody else's."""
        if self.catch_up() and await self._is_unchanged():
            return False
        store, task_id = self._attempt.services.store, self._attempt.task.id
        foreign = self._fold(await insist(lambda: store.patches(task_id, after=self.version)))
        if self._attempt.outbox.is_flushed:
            self._own.clear()  # what is not stored by now was refused with the Commit that held it
        self.state = self._stored
        for own in self._own:
            self.state = absorb(self.state, read_patch(own))
        return foreign

    async def _is_unchanged(self) -> bool:
        task_id = self._attempt.task.id
        task = await insist(lambda: self._attempt.services.store.get(task_id))
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
