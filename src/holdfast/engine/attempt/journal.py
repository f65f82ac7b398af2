"""The journal of one attempt: which key a step gets, and what is recorded under it.

Keys are names. The second use of a name is ``name#2``, in the order in which the steps are *called*. Two concurrent
branches have no such order, so a name that another asyncio task or thread used needs an explicit ``key=``. Branches
that run one after the other do have an order: an asyncio task that was made after the earlier one had ended needs no
``key=``. Inside a step, names are counted separately for each try: see scope.
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
"""Keys of a verifier's own steps begin with this, so that they never collide with keys of the task's steps."""

CHILD, RESULT = "child", "result"
"""Kinds of lines: a child was submitted; the code waited for its end."""

ATTEMPT, RESTED, RESUMED, SPILLED = "attempt", "rested", "resumed", "spilled"
"""Kinds of lines: an attempt failed and another one follows; when the task rested on its worker; a person resumed the
task; the task was taken off its worker while it rested there."""

LIMIT = "limit"
"""The kind of the line that says for which limits a resting task waits."""

TRANSITION = "transition"
"""The kind of a line that records a machine's change of state."""

IGNORED_STOP = "ignored-stop"
"""The kind of a line that records that the task's code caught the signal that stops it, and continued."""

OTHER_INPUT = f"{RESERVED}other-input"
"""The first line of a round whose input differs from that of the round before. It has an effect id, so that later
rounds see it."""

_NUMBER = re.compile(r"[#:]\d+$")

AGAIN = "again"
"""The digest of a reopened RESULT line: the child has to begin again before the code waits for its end."""

NO_ARGUMENTS = digest(b"[]")
"""The digest of the arguments of a call that has none."""

ROUND_SIZE = 1 << 32
"""Positions of one round. Positions grow across the rounds of a task, without reading where the last round ended."""


_NONE: frozenset[str] = frozenset()
"""One for all journals: ``frozenset()`` makes a new object each time, and most attempts need none."""


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
        """``steps`` are all steps of this round, and those steps of earlier rounds that have an effect."""
        self.task_id = task_id
        self._round = round_
        self._steps: dict[str, Step] = {}
        self._earlier: dict[str, Step] = {}
        self._by_effect: dict[str, Step] = {}
        self._effects_before: tuple[Step, ...] = ()
        """Steps with an effect of all earlier rounds, not only of the last one."""
        self._reserved: dict[str, str] = {}
        """Effects of earlier rounds that a step of this attempt takes over: effect id to the key of that step."""
        self._undone = _NONE
        """Keys of this round whose steps were undone and not done again since."""
        self._had_undo = False
        self.digests = Digests()
        self._position = before_round(round_)
        self._past: PastReplay | None = None
        self._add(steps)
        self._find_past()

    @classmethod
    async def read(cls, task_id: str, round_: int, steps: Sequence[Step]) -> Self:
        """Return the journal of these steps. If there are many, reading them takes several turns of the event loop."""
        journal = cls(task_id, round_, steps[:READ_IN_A_TURN])
        for start in range(READ_IN_A_TURN, len(steps), READ_IN_A_TURN):
            await asyncio.sleep(0)
            journal._add(steps[start : start + READ_IN_A_TURN])
        if len(steps) > READ_IN_A_TURN:
            journal._find_past()
        return journal

    def _add(self, steps: Iterable[Step]) -> None:
        effects_before = []
        for step in steps:  # by position: of two rounds the later one comes later
            is_of_this = step.round == self._round
            (self._steps if is_of_this else self._earlier)[step.key] = step
            if step.effect_id is not None:
                self._by_effect[step.effect_id] = step
                if not is_of_this:
                    effects_before.append(step)
            if is_of_this:
                self._position = max(self._position, step.position)
            self.digests.note(step.key)
            self._note_undone(step)
        if effects_before:
            self._effects_before += tuple(effects_before)

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
        """Give a step its key by its name: the number of uses is added from the second use on."""
        branch = current_branch()
        count, user = scope.used.get(name, (0, branch))
        if user is not branch and not comes_after(branch, user):
            raise DuplicateName(
                f"step {name!r} was used by another concurrent branch of task {self.task_id}: a replay may run the "
                "branches in another order. Give each branch's step a key of its own: "
                f'ctx.step("{name}", ..., key=f"{name}-{{item}}")'
            )
        note_branch(branch, scope)
        scope.used[name] = (count + 1, branch)
        return name if not count else self.allot_explicit(scope, f"{name}#{count + 1}")

    def allot_explicit(self, scope: Scope, key: str) -> str:
        """Give a step exactly this key, which must be free."""
        if key in scope.used:
            raise DuplicateName(
                f"step key {key!r} is used twice in task {self.task_id}: the second step would get the recorded result "
                "of the first; give it another key="
            )
        scope.used[key] = (1, current_branch())
        return key

    def find(self, key: str, kind: str) -> Step | None:
        """Return the line under the key, or None. Raises JournalMismatch if that line is of another kind."""
        if self._past is not None:
            self._past.passes(key)
        step = self._steps.get(key)
        if step is not None and step.kind != kind:
            raise JournalMismatch(
                f"task {self.task_id} recorded {key!r} as {step.kind!r}, and the code now asks for {kind!r} under that "
                "key: the code was changed while the task was under way. Restore the old order of steps, or give the "
                "new step a name of its own; then resume the task"
            )
        return step

    def mark(self) -> Callable[[], None] | None:
        """Return a function that moves a fork's code back to its present place in the shared past: for another try."""
        past = self._past
        return None if past is None else partial(past.go_back, past.mark())

    @property
    def is_of_fork(self) -> bool:
        """Whether this is the round in which a fork began, with the past that it shares."""
        return self._past is not None

    @property
    def seed(self) -> tuple[str, int]:
        """The task and round that random values are made from: in the past that a fork shares, those of its origin."""
        shared = None if self._past is None else self._past.seed()
        return (self.task_id, self._round) if shared is None else shared

    @property
    def has_left_past(self) -> bool:
        """Whether the code has passed the end of the past that a fork shares with its origin."""
        return self._past is None or self._past.seed() is None

    @property
    def was_undone(self) -> bool:
        """Whether a saga has undone steps of this round: new lines come after all lines from before."""
        return self._had_undo

    def has_undone_inside(self, step: Step) -> bool:
        """Whether something inside a step was undone and not done again: the step's result is not valid any more."""
        if not self._undone:
            return False
        path = path_inside(step.key)
        return any(self.digests.is_inside(key, path) for key in self._undone)

    def get(self, key: str) -> Step | None:
        """Return the line under the key, of any kind; None if there is none."""
        return self._steps.get(key)

    def note(self, step: Step) -> None:
        """Remember a line that was just recorded."""
        (self._steps if step.round == self._round else self._earlier)[step.key] = step
        if step.effect_id is not None:
            self._by_effect[step.effect_id] = step
        self._note_undone(step)

    def _note_undone(self, step: Step) -> None:
        if step.round != self._round:
            return
        if step.undone_at is not None:
            self._had_undo = True
            self._undone |= {step.key}
        elif self._undone:
            self._undone -= {step.key}

    def earlier(self, key: str) -> Step | None:
        """Return the step with an effect under this key, from the latest earlier round that had it."""
        return self._earlier.get(key)

    def done_before(
        self, name: str, *, by: str, is_same: Callable[[Step], bool], is_made: Callable[[Step], bool]
    ) -> list[Step]:
        """Return the calls ``name:...`` of earlier rounds that are the same as a new one, one line for each effect.

        If a call of a later round took the place of an earlier one, both have the same effect under different keys.
        Calls for which ``is_made`` returns False are left out. So are calls whose place a call other than ``by`` has
        taken in this round.
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

        A call under the same key comes first. Otherwise numbers in the key are ignored: of a repeated name, of a step
        around it, or of a machine's visit. Each earlier call is taken once, by the first step that asks.

        Without arguments, two functions with one name may do different things, and only their keys distinguish them.
        Then a key that a user gave matches only itself, and a step that an earlier round had under the same key takes
        no other step's place.
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
        """Whether a step of this round other than ``key`` has taken the effect of a line of an earlier round."""
        return self._reserved.get(step.effect_id or "", key) != key

    @property
    def has_other_input(self) -> bool:
        """Whether this round, or an earlier one, began with an input that differs from the round before it."""
        return OTHER_INPUT in self._steps or OTHER_INPUT in self._earlier

    def by_effect(self, effect_id: str) -> Step | None:
        """Return the step, of any round, that this effect belongs to."""
        return self._by_effect.get(effect_id)

    def next_position(self) -> int:
        """Return the position of the next line."""
        self._position += 1
        return self._position

    @property
    def last_position(self) -> int:
        """The position of the last line."""
        return self._position

    def completed(self, kind: str) -> list[Step]:
        """Return the completed steps of a kind."""
        return [step for step in self._steps.values() if step.kind == kind and step.state is StepState.COMPLETED]

    def of_kind(self, kind: str) -> list[Step]:
        """Return the lines of a kind, in any state."""
        return [step for step in self._steps.values() if step.kind == kind]

    @property
    def begun_again_at(self) -> datetime | None:
        """When its policy or a person last restarted the task in this round; None: never."""
        lines = [*self.of_kind(ATTEMPT), *self.of_kind(RESUMED)]
        return max((step.finished_at for step in lines if step.finished_at is not None), default=None)

    def has_ended_since(self, moment: datetime) -> bool:
        """Return whether a step or wait has ended since then."""
        return any(
            step.finished_at is not None and step.finished_at > moment
            for step in self._steps.values()
            if step.kind not in {ATTEMPT, IGNORED_STOP, LIMIT, RESTED, RESUMED, SPILLED}
        )

    def failed_attempts(self) -> list[Step]:
        """Return the records of earlier attempts of this round that failed."""
        return sorted((step for step in self._steps.values() if step.kind == ATTEMPT), key=lambda step: step.position)

    def ignored_stops(self) -> list[Step]:
        """Return the lines of ignored stops of this round, since a person last resumed the task."""
        if not self._steps:
            return []
        resumed = max((step.position for step in self.of_kind(RESUMED)), default=0)
        return [step for step in self.of_kind(IGNORED_STOP) if step.position > resumed]


def _place(key: str) -> tuple[str, str]:
    """Return the path around a key and its last part, both without the numbers that the engine added."""
    around, _, own = key.rpartition(INSIDE)
    visits, _, last = own.rpartition("/")
    parts = [*around.split(INSIDE), *visits.split("/")]
    return INSIDE.join(_NUMBER.sub("", part) for part in parts), re.sub(r"#\d+$", "", last)


def _is_keyed(own: str, name: str) -> bool:
    """Return whether a key that the user gave begins with the name of the step, as ``pay-3`` begins with ``pay``."""
    return own.startswith(name) and not own[len(name) : len(name) + 1].isalnum()


def reopened(step: Step) -> Step:
    """Return a failed step as a step to do. A person who rejected it is asked again, a child begins again."""
    attempts = step.attempts + (step.kind == "approval")
    mark = AGAIN if step.kind == RESULT else step.digest
    return replace(
        step, state=StepState.PENDING, error=None, retry_at=None, finished_at=None, attempts=attempts, digest=mark
    )


def ended_by(keys: Iterable[str], get: Callable[[str], Step | None]) -> list[Step]:
    """Return the failed lines under these keys, with the lines inside them that caused their failure, at any depth."""
    found: dict[str, Step] = {}
    ahead = list(keys)
    while ahead:
        step = get(ahead.pop())
        if step is None or step.key in found or step.state is not StepState.FAILED:
            continue
        found[step.key] = step
        if step.kind != RESULT and step.error is not None:  # the cause of a child's failure is in its own journal
            ahead.extend(Failure.from_json(parse(step.error)).steps)
    return list(found.values())


def stable_bytes(*parts: object) -> bytes:
    """Return 32 bytes that depend only on the parts: the same on every replay."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest()
