"""The AgentState as a task's own code sees it: ``ctx.state``, ``ctx.patch`` and ``ctx.refresh_state``.

A patch is one Commit: a line of the journal and the patch that belongs to it. A replay finds the line and applies
nothing.

Code must take the same way when it runs again, so it must see the same state at the same place. It therefore does not
see the newest state, but the state of a version: that of its own last patch, or the version recorded in the last line
for a look at the state. It sees patches of others after its next patch, or after ``ctx.refresh_state``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from holdfast.engine.attempt.journal import RESERVED
from holdfast.engine.attempt.journal_line import journal_line
from holdfast.engine.attempt.scope import enclosing_path, path_inside
from holdfast.engine.attempt.step_owner import StepOwner
from holdfast.engine.manage.artifacts import link_to
from holdfast.engine.manage.fork.ancestry import MARKER, Ancestry
from holdfast.engine.manage.past_state import EMPTY, fold
from holdfast.engine.manage.state import with_origin
from holdfast.engine.runtime import log
from holdfast.engine.runtime.store_retry import call_store
from holdfast.model.agent_state import AgentState
from holdfast.model.canonical import canonical, digest, parse
from holdfast.model.checkpoints import damage_of
from holdfast.model.codec import decode, encode
from holdfast.model.errors import InvalidValue
from holdfast.model.failure import Failure
from holdfast.model.operations import ApplyPatch, LinkArtifact, WriteStep
from holdfast.model.patch import StatePatch, absorb, apply
from holdfast.model.queries import Loaded
from holdfast.model.records import PatchRecord
from holdfast.model.state_size import check_growth
from holdfast.model.step import StepState

PATCH, LOOK = "patch", "state"
"""Kinds of lines: the code patched the state; the code read the state, at the version recorded in the line."""

FORKED = "fork"
"""The reason of the patch that a fork begins with."""


class Viewer(StepOwner, Protocol):
    """An attempt whose code reads its AgentState."""

    @property
    def view(self) -> StateView:
        """The AgentState as the code sees it."""

    @property
    def loaded(self) -> Loaded | None:
        """What the store knew of the task when this attempt began."""


class StateView:
    """What one attempt knows of its task's state, and which version its code has seen."""

    __slots__ = ("_attempt", "_base", "_begun", "_forked", "_inside", "_last", "_records", "_seen", "_versions")

    def __init__(self, attempt: StepOwner, base: tuple[int, AgentState], records: Iterable[PatchRecord]) -> None:
        """``base`` is a state and its version; ``records`` are all patches after it that are known."""
        self._attempt = attempt
        self._base = self._last = base
        self._records: list[PatchRecord] = []
        self._seen = 0
        self._begun: set[str] = set()
        """Contexts whose first read was recorded, by the prefix of their keys."""
        self._versions: dict[str, int] = {}
        """The versions that steps of this round made, by the key of the step."""
        self._inside: dict[str, int] = {}
        """The newest version that code inside a step has made or read, by the path inside that step."""
        self._note(records)
        for line in attempt.journal.completed(LOOK):
            self._note_inside(line.key, decode(line.output or b""))
        marker = attempt.journal.get(MARKER)
        self._forked = 0 if marker is None else self._first_of_fork(Ancestry.read(marker).origin.version)

    @classmethod
    async def read(cls, attempt: Viewer) -> StateView | None:
        """Return what the store knew when the attempt began; None for an agent, and if there is no state yet."""
        loaded = attempt.loaded
        if loaded is None or loaded.task.version == 0 or attempt.definition.is_agent:
            return None
        saved, journal = loaded.checkpoint, attempt.journal
        if saved is None:
            return cls(attempt, (0, EMPTY), loaded.patches)
        if damage_of(saved) is None and not journal.of_kind(PATCH) and not journal.of_kind(LOOK):
            return cls(attempt, (saved.version, AgentState.from_json(parse(saved.body))), loaded.patches)
        # The code will read versions from before the checkpoint.
        store, task_id = attempt.services.store, attempt.task.id
        return cls(attempt, (0, EMPTY), await call_store(partial(store.patches, task_id)))

    # What is known

    @property
    def known(self) -> int:
        """The newest version that is known here."""
        return self._records[-1].version if self._records else self._base[0]

    def _note(self, records: Iterable[PatchRecord]) -> None:
        for record in records:
            if record.version <= self.known:
                continue  # another branch has read it meanwhile
            self._records.append(record)
            if record.step_key is not None and record.round == self._attempt.task.round:
                self._versions[record.step_key] = record.version
                self._note_inside(record.step_key, record.version)

    def _note_inside(self, key: str, version: int) -> None:
        path = enclosing_path(key)
        while path and self._inside.get(path, -1) < version:
            self._inside[path] = version
            path = self._attempt.journal.digests.around(path)

    def _first_of_fork(self, shared: int) -> int:
        """Return the version that a fork begins with: the shared one, plus the patch that was made with the fork."""
        own = next((one for one in self._records if one.version == shared + 1), None)
        return shared + (own is not None and own.step_key is None and own.reason == FORKED)

    async def read_on(self) -> None:
        """Read the patches that were made since."""
        store, task_id = self._attempt.services.store, self._attempt.task.id
        self._note(await call_store(partial(store.patches, task_id, after=self.known)))

    # What the code sees

    def at(self, version: int) -> AgentState:
        """Return the state of a version."""
        last = self._last if self._last[0] <= version else self._base
        behind = last[0] - self._base[0]
        ahead = max(version - self._base[0], behind)
        self._last = last = (max(version, last[0]), fold(self._records[behind:ahead], last[1]))
        return last[1]

    def see(self, version: int) -> None:
        """Note that the code has reached a place where it sees this version."""
        self._seen = max(self._seen, version)

    def pass_over(self, key: str) -> None:
        """Note that a try of a step is over: the code sees the patches made inside it, also in a replay."""
        if self._inside:
            self._seen = max(self._seen, self._inside.get(path_inside(key), 0))

    def look(self, prefix: str) -> AgentState:
        """Return what the code of a context sees. Its first read is a line of the journal."""
        if prefix not in self._begun:
            self._begun.add(prefix)
            key = f"{RESERVED}{prefix}first-state"
            recorded = self._attempt.find(key, LOOK)
            if recorded is None:
                self.record_look(key, self.known)
            else:
                self.see(decode(recorded.output or b""))
        return self.current

    @property
    def current(self) -> AgentState:
        """The state of the version that the code has seen."""
        if self._forked > self._seen and self._attempt.journal.has_left_past:
            self._seen = self._forked
        return self.at(self._seen)

    def record_look(self, key: str, version: int) -> None:
        """See a version, and record that in a line, which goes into the next Commit."""
        attempt = self._attempt
        self.see(version)
        line = journal_line(attempt, key, LOOK, None, state=StepState.COMPLETED, output=encode(version))
        attempt.outbox.buffer(WriteStep(line))
        self._note_inside(key, version)

    def fit(self, patch: StatePatch) -> StatePatch:
        """Return a patch as it is stored. Raises InvalidValue if it does not fit the state.

        It was made for the state that the code has seen: it may resolve questions that others resolved since then.
        """
        newest = self.at(self.known)
        made = with_origin(patch, self._attempt.services.time.now(), newest.current_step)
        was_open = {*newest.open_questions, *self.current.open_questions}
        if any(question not in was_open for question in made.resolve_questions):
            apply(newest, made)  # raises the error that explains what is wrong
        check_growth(newest, absorb(newest, made))
        return made

    async def see_own(self, key: str) -> AgentState:
        """Return the state right after a patch that was made under this key."""
        if key not in self._versions:
            await self.read_on()
        version = self._versions.get(key, self._seen)
        self.see(version)
        return self.at(version)

    def note_own(self, version: int, operation: ApplyPatch) -> None:
        """Note a patch that was just stored, if all patches before it are known."""
        if version == self.known + 1:
            record = PatchRecord(
                version=version,
                body=operation.body,
                author=operation.author,
                reason=operation.reason,
                at=self._attempt.services.time.now(),
                step_key=operation.step_key,
                round=self._attempt.task.round,
            )
            self._note((record,))


async def patch_state(attempt: Viewer, key: str, patch: StatePatch, *, reason: str) -> AgentState:
    """Patch the state, once; return it as it is right after that."""
    view = attempt.view
    recorded = attempt.find(key, PATCH)
    asked = digest(canonical(patch.to_json()))
    if recorded is not None and recorded.state is not StepState.PENDING:
        if recorded.digest != asked:
            log.other_arguments(attempt.task, key)
        if recorded.state is StepState.FAILED:
            await attempt.discovery.let_branches_pass()
            raise _refused(Failure.from_json(parse(recorded.error or b"null")).message, key)
        await attempt.take_turn(recorded)
        return await view.see_own(key)
    await attempt.check()
    line = replace(journal_line(attempt, key, PATCH, recorded, state=StepState.COMPLETED), digest=asked)
    try:
        made = view.fit(patch)
    except InvalidValue as error:
        # Code that catches this takes another way. A replay must take the same way, even if the patch fits by then.
        refused = _refused(str(error), key)
        why = canonical(Failure.of(refused).to_json())
        await attempt.outbox.commit(WriteStep(replace(line, state=StepState.FAILED, error=why)))
        raise refused from None
    operation = ApplyPatch(body=canonical(made.to_json()), author=attempt.task.name, reason=reason, step_key=key)
    links = (LinkArtifact(link_to(artifact)) for artifact in made.add_artifacts)
    verdict = await attempt.outbox.commit(WriteStep(line), operation, *links)
    view.note_own(verdict.version, operation)
    return await view.see_own(key)


def _refused(message: str, key: str) -> InvalidValue:
    error = InvalidValue(message)
    error.step = key
    return error


async def refresh_state(attempt: Viewer, key: str) -> AgentState:
    """Read what others have patched; return the state as it is then."""
    view = attempt.view
    recorded = attempt.find(key, LOOK)
    if recorded is not None:
        await attempt.take_turn(recorded)
        view.see(decode(recorded.output or b""))
    else:
        await attempt.check()
        await view.read_on()
        view.record_look(key, view.known)
    return view.current
