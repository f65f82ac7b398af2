"""The journal of one attempt: which key a step gets, and what is recorded under it.

Keys are names. The second use of a name is ``name#2``, in the order in which the steps are *called*; two branches that
run at the same time have no such order, so a name that another asyncio task or thread used needs an explicit ``key=``.
Branches one after the other do have an order: an asyncio task that was made after the earlier one had ended needs none.
Inside a step, names are counted apart for each try: see scope.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Self

from holdfast.engine.attempt.scope import (
    INSIDE,
    OWN,
    Digests,
    Scope,
    comes_after,
    current_branch,
    note_branch,
    path_inside,
)
from holdfast.engine.manage.fork.ancestry import MARKER, PastReplay
from holdfast.engine.runtime.loop_turns import READ_IN_A_TURN
from holdfast.model.canonical import digest, parse
from holdfast.model.errors import DuplicateName, JournalMismatch
from holdfast.model.failure import Failure
from holdfast.model.step import Step, StepState

RESERVED = OWN
"""Keys with this beginning are the engine's own."""

VERIFY = "verify/"
"""Keys of a verifier's own steps begin with this, so that they never meet those of the work."""

CHILD, RESULT = "child", "result"
"""Kinds of lines: a child was submitted, and its end was waited for."""

ATTEMPT, RESTED, RESUMED, SPILLED = "attempt", "rested", "resumed", "spilled"
"""Kinds of lines: an attempt failed and is followed by another; a person had the task go on; the task was taken off its
worker while it rested there."""

TRANSITION = "transition"
"""The kind of a line that says that a machine went to another state."""

IGNORED_STOP = "ignored-stop"
"""The kind of a line that says: the task's code caught the signal that stops it, and went on."""

OTHER_INPUT = f"{RESERVED}other-input"
"""The line that a round begins with whose input is another one than that of the round before. It has an effect id, by
which later rounds get to see it."""

_NUMBER = re.compile(r"[#:]\d+$")

AGAIN = "again"
"""The digest of a reopened RESULT line: the child has to begin again before its end is waited for."""

NO_ARGUMENTS = digest(b"[]")
"""The digest of the arguments of a call that has none."""

ROUND_SIZE = 1 << 32
"""Positions of one round: they grow within a task, across rounds, without asking where the last round ended."""


def before_round(number: int) -> int:
    """Return the last position before a round begins."""
    return (number - 1) * ROUND_SIZE


class Journal:
    """What was done in this round, and the names in use in this attempt."""

    __slots__ = (
        "_by_effect",
        "_earlier",
        "_effects_before",
        "_had_undo",
        "_past",
        "_position",
        "_reserved",
        "_round",
        "_steps",
        "_undone",
        "digests",
        "task_id",
    )

    def __init__(self, task_id: str, round_: int, steps: Iterable[Step] = ()) -> None:
        """``steps`` are those of this round, and of earlier ones those that have an effect."""
        self.task_id = task_id
        self._round = round_
        self._steps: dict[str, Step] = {}
        self._earlier: dict[str, Step] = {}
        self._by_effect: dict[str, Step] = {}
        self._effects_before: list[Step] = []
        """Of all earlier rounds, not only the last."""
        self._reserved: dict[str, str] = {}
        """Effects of earlier rounds whose place a step of this attempt takes, and which."""
        self._undone: set[str] = set()
        """Keys of this round whose steps were undone and not done anew since."""
        self._had_undo = False
        self.digests = Digests()
        self._position = before_round(round_)
        self._past: PastReplay | None = None
        self._add(steps)
        self._find_past()

    @classmethod
    async def read(cls, task_id: str, round_: int, steps: Sequence[Step]) -> Self:
        """Return the journal of these steps, made in several turns of the event loop where they are many."""
        journal = cls(task_id, round_, steps[:READ_IN_A_TURN])
        for start in range(READ_IN_A_TURN, len(steps), READ_IN_A_TURN):
            await asyncio.sleep(0)
            journal._add(steps[start : start + READ_IN_A_TURN])
        if len(steps) > READ_IN_A_TURN:
            journal._find_past()
        return journal

    def _add(self, steps: Iterable[Step]) -> None:
        for step in steps:  # by position: of two rounds the later one comes later
            is_of_this = step.round == self._round
            (self._steps if is_of_this else self._earlier)[step.key] = step
            if step.effect_id is not None:
                self._by_effect[step.effect_id] = step
                if not is_of_this:
                    self._effects_before.append(step)
            if is_of_this:
                self._position = max(self._position, step.position)
            self.digests.note(step.key)
            self._note_undone(step)

    def _find_past(self) -> None:
        marker = self._steps.get(MARKER)
        self._past = None if marker is None else PastReplay(marker, self._steps.values())

    def allot(self, scope: Scope, name: str, key: str | None = None) -> str:
        """Give a step its key, now, while the order of the calls is the order of the code."""
        own = self.allot_own(scope, name) if key is None else self.allot_explicit(scope, key)
        if self._past is not None:
            self._past.calls(own)
        return own

    def allot_own(self, scope: Scope, name: str) -> str:
        """Give one of the engine's own steps its key."""
        branch = current_branch()
        count, user = scope.used.get(name, (0, branch))
        if user is not branch and not comes_after(branch, user):
            raise DuplicateName(
                f"step {name!r} was used by another concurrent branch of task {self.task_id}: which of them comes "
                "first may differ on a replay. Give each branch's step a key of its own: "
                f'ctx.step("{name}", ..., key=f"{name}-{{item}}")'
            )
        note_branch(branch, scope)
        scope.used[name] = (count + 1, branch)
        return name if not count else self.allot_explicit(scope, f"{name}#{count + 1}")

    def allot_explicit(self, scope: Scope, key: str) -> str:
        """Give a step this very key; it must be free."""
        if key in scope.used:
            raise DuplicateName(
                f"step key {key!r} is used twice in task {self.task_id}: the second would be taken for a replay of "
                "the first; give it another key="
            )
        scope.used[key] = (1, current_branch())
        return key

    def find(self, key: str, kind: str) -> Step | None:
        """Return what is recorded under the key, or None. JournalMismatch if that is something else."""
        if self._past is not None:
            self._past.passes(key)
        step = self._steps.get(key)
        if step is not None and step.kind != kind:
            raise JournalMismatch(
                f"task {self.task_id} recorded {key!r} as {step.kind!r}, and the code now asks for {kind!r} under that "
                "key: it was changed while the task was under way. Put the old order of steps back, or give the new "
                "step a name of its own; then resume the task"
            )
        return step

    def mark(self) -> Callable[[], None] | None:
        """Return what brings the code back, in the past that a fork shares, to where it is now: for another try."""
        past = self._past
        return None if past is None else partial(past.go_back, past.mark())

    @property
    def is_of_fork(self) -> bool:
        """Whether this is the round in which a fork began, with the past that it shares."""
        return self._past is not None

    @property
    def seed(self) -> tuple[str, int]:
        """The task and round that numbers are made of here: in the past that a fork shares, those of its origin."""
        shared = None if self._past is None else self._past.seed()
        return (self.task_id, self._round) if shared is None else shared

    @property
    def has_left_past(self) -> bool:
        """Whether the code has come through the past that a fork shares with its origin."""
        return self._past is None or self._past.seed() is None

    @property
    def was_undone(self) -> bool:
        """Whether a saga has undone steps of this round: what is done now comes behind all that was done before."""
        return self._had_undo

    def is_hollow(self, step: Step) -> bool:
        """Whether something inside a step was undone and not done since: it does not stand for its result any more."""
        if not self._undone:
            return False
        path = path_inside(step.key)
        return any(self.digests.is_inside(key, path) for key in self._undone)

    def get(self, key: str) -> Step | None:
        """Return what is recorded under the key, whatever it is."""
        return self._steps.get(key)

    def note(self, step: Step) -> None:
        """Remember what was just recorded."""
        (self._steps if step.round == self._round else self._earlier)[step.key] = step
        if step.effect_id is not None:
            self._by_effect[step.effect_id] = step
        self._note_undone(step)

    def _note_undone(self, step: Step) -> None:
        if step.round != self._round:
            return
        if step.undone_at is not None:
            self._had_undo = True
            self._undone.add(step.key)
        elif self._undone:
            self._undone.discard(step.key)

    def earlier(self, key: str) -> Step | None:
        """Return the step under this key in the last round before this one that had it, if it had an effect."""
        return self._earlier.get(key)

    def done_before(
        self, name: str, *, by: str, is_same: Callable[[Step], bool], is_made: Callable[[Step], bool]
    ) -> list[Step]:
        """Return the calls ``name:...`` of earlier rounds that are the same as another, one line for each effect.

        A later round in which a call took the place of an earlier one has the same effect under another key. Left out
        are those that ``is_made`` denies, and those whose place another call than ``by`` has taken in this round.
        """
        taken = {step.effect_id for key, step in self._steps.items() if key != by}
        made: dict[str | None, Step] = {}
        for key, step in self._earlier.items():
            if key.rpartition(":")[0] != name or not is_same(step):
                continue
            if step.undone_at is None and step.effect_id not in taken and is_made(step):
                made.setdefault(step.effect_id, step)
        return list(made.values())

    def made_before(self, name: str, key: str, digests: set[str], counts: Callable[[Step], bool]) -> Step | None:
        """Return the call of an earlier round whose place this one takes: the same arguments, under the same name.

        Its own key comes first. Otherwise numbers do not matter: of a name that is used again, of a step around it, or
        of a visit of a machine. Each call is taken once, by the step that comes first.

        Without arguments two functions of one name may do different things, and only keys tell them apart. Then a key
        that a user gave is its own, and a step that came up in an earlier round has no other's place.
        """
        has_arguments = NO_ARGUMENTS not in digests
        may_be_other = has_arguments or all(step.key != key for step in self._effects_before)
        taken = {step.effect_id for one, step in self._steps.items() if one != key}
        taken |= {effect_id for effect_id, by in self._reserved.items() if by != key}
        place, last = _place(key)
        for step in sorted(self._effects_before, key=lambda step: step.key != key):
            around, own = _place(step.key)
            is_named = own == last or (has_arguments and (own == name or _is_keyed(own, name)))
            is_such = step.key == key or (may_be_other and around == place and is_named)
            if is_such and step.digest in digests and step.effect_id not in taken and counts(step):
                self._reserved[step.effect_id or ""] = key
                return step
        return None

    def is_reserved(self, step: Step, key: str) -> bool:
        """Whether the effect of a line of an earlier round counts as that of another step than ``key`` in this one."""
        return self._reserved.get(step.effect_id or "", key) != key

    @property
    def has_other_input(self) -> bool:
        """Whether this round, or an earlier one, began with other input than the one before it."""
        return OTHER_INPUT in self._steps or OTHER_INPUT in self._earlier

    def by_effect(self, effect_id: str) -> Step | None:
        """Return the step, of whichever round, that this effect belongs to."""
        return self._by_effect.get(effect_id)

    def next_position(self) -> int:
        """Return the place of the next line."""
        self._position += 1
        return self._position

    @property
    def last_position(self) -> int:
        """The place of the last line."""
        return self._position

    def completed(self, kind: str) -> list[Step]:
        """Return the completed steps of a kind."""
        return [step for step in self._steps.values() if step.kind == kind and step.state is StepState.COMPLETED]

    def of_kind(self, kind: str) -> list[Step]:
        """Return the lines of a kind, however they stand."""
        return [step for step in self._steps.values() if step.kind == kind]

    @property
    def begun_again_at(self) -> datetime | None:
        """When the task was last begun again in this round, by its policy or by a person; None: never."""
        lines = [*self.of_kind(ATTEMPT), *self.of_kind(RESUMED)]
        return max((step.finished_at for step in lines if step.finished_at is not None), default=None)

    def has_ended_since(self, moment: datetime) -> bool:
        """Say whether a step or wait has come to its end since then."""
        return any(
            step.finished_at is not None and step.finished_at > moment
            for step in self._steps.values()
            if step.kind not in {ATTEMPT, IGNORED_STOP, RESTED, RESUMED, SPILLED}
        )

    def failed_attempts(self) -> list[Step]:
        """Return the records of earlier attempts of this round that failed."""
        return sorted((step for step in self._steps.values() if step.kind == ATTEMPT), key=lambda step: step.position)

    def ignored_stops(self) -> list[Step]:
        """Return how often the code did not let itself be stopped in this round, since a person last resumed it."""
        resumed = max((step.position for step in self.of_kind(RESUMED)), default=0)
        return [step for step in self.of_kind(IGNORED_STOP) if step.position > resumed]


def _place(key: str) -> tuple[str, str]:
    """Return where a key stands and its last part, without the numbers that were given out on the way."""
    around, _, own = key.rpartition(INSIDE)
    visits, _, last = own.rpartition("/")
    parts = [*around.split(INSIDE), *visits.split("/")]
    return INSIDE.join(_NUMBER.sub("", part) for part in parts), re.sub(r"#\d+$", "", last)


def _is_keyed(own: str, name: str) -> bool:
    """Say whether a key that the user gave begins with the name of the step, as ``pay-3`` does with ``pay``."""
    return own.startswith(name) and not own[len(name) : len(name) + 1].isalnum()


def reopened(step: Step) -> Step:
    """Return a failed step as one that is to be done. A person who rejected it is asked anew, a child begins again."""
    attempts = step.attempts + (step.kind == "approval")
    mark = AGAIN if step.kind == RESULT else step.digest
    return replace(
        step, state=StepState.PENDING, error=None, retry_at=None, finished_at=None, attempts=attempts, digest=mark
    )


def ended_by(keys: Iterable[str], get: Callable[[str], Step | None]) -> list[Step]:
    """Return the failed lines under these keys, with the lines inside them that they failed by, however deep."""
    found: dict[str, Step] = {}
    ahead = list(keys)
    while ahead:
        step = get(ahead.pop())
        if step is None or step.key in found or step.state is not StepState.FAILED:
            continue
        found[step.key] = step
        if step.kind != RESULT and step.error is not None:  # what a child failed by stands in its own journal
            ahead.extend(Failure.from_json(parse(step.error)).steps)
    return list(found.values())


def stable_bytes(*parts: object) -> bytes:
    """Return 32 bytes that depend on nothing but the parts: the same on every replay."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
