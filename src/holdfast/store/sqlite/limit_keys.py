"""The keys of limits as one transaction works on them: what each has room for, and what it counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.model.flow_limit import MOST, grain_of, limit_name, validity_of
from holdfast.store.records import keys_of
from holdfast.store.sqlite.write_transaction import WriteTransaction

MOST_CANDIDATES: Final = 1000
"""Of one line: a limit that allows more, or any number, lets out no more at once."""

_MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True)
class Key:
    """One key, its limit, and what was taken of it."""

    key: str
    taken: int
    calls: int
    tokens: int
    closed_until: int | None
    concurrency: int | None
    rate: int | None
    token_limit: int | None
    per: int | None
    burst: int
    is_paused: int
    counts_from_future: int
    """Whether the clock was set back since something of it was counted."""

    def is_closed(self, now: int) -> bool:
        """Say whether its provider asked to begin nothing yet."""
        return self.closed_until is not None and self.closed_until > now

    def free(self, now: int) -> int:
        """Return how many tasks or steps could begin with it, as far as it counts them."""
        if self.is_paused or self.is_closed(now):
            return 0
        return max(min(self.free_places, self.free_calls), 0)

    @property
    def free_places(self) -> int:
        """How many more may be at work at the same time."""
        return MOST if self.concurrency is None else self.concurrency - self.taken

    @property
    def free_calls(self) -> int:
        """How many more may begin now."""
        return MOST if self.rate is None else self.rate + self.burst - self.calls

    @property
    def free_tokens(self) -> int:
        """How many tokens calls that begin now may use."""
        return MOST if self.token_limit is None else self.token_limit - self.tokens

    @property
    def grows_with_time(self) -> bool:
        """Whether more can begin as soon as something counts no more: it is not the places that are missing."""
        return self.rate is not None and self.free_places >= max(self.free_calls, 1)

    def counted(self, tokens: int) -> int:
        """Return how many of the tokens that a step asks for are counted."""
        return 0 if self.token_limit is None else min(tokens, self.token_limit)

    def validity(self) -> int:
        """Return for how long a permit may be used to begin."""
        return validity_of(None if self.per is None else self.per * _MICROSECOND) // _MICROSECOND

    def counts_until(self, now: int, valid_for: int = 0) -> int | None:
        """Return until when something that begins by a permit of this moment counts; None: it is not counted.

        ``valid_for`` is for how long the permit may be used, if that is longer than usual.
        """
        if self.per is None:
            return None
        grain = grain_of(self.per * _MICROSECOND) // _MICROSECOND
        end = now + max(self.validity(), valid_for) + self.per
        return -(-end // grain) * grain


class Keys:
    """The keys that a transaction has looked at. Nothing but this object changes what they count meanwhile."""

    def __init__(self, tx: WriteTransaction) -> None:
        """Begin with none."""
        self._tx = tx
        self._known: dict[str, Key] = {}
        self._begun: Counter[str] = Counter()

    def load(self, keys: Iterable[str]) -> None:
        """Read those that are not known yet, and count no more what is over.

        The sweep deletes the rows of keys that are idle: they are made again.
        """
        missing = sorted(set(keys) - self._known.keys())
        if not missing:
            return
        listed = json.dumps(missing)
        found = [Key(*row) for row in self._tx.all("key_states", listed, self._tx.now)]
        if len(found) < len(missing):
            self._tx.run_many("insert_key", [(name, limit_name(name)) for name in missing])
            found = [Key(*row) for row in self._tx.all("key_states", listed, self._tx.now)]
        self._known |= {key.key: key for key in found}
        for key in found:
            if key.counts_from_future:
                self._follow_clock(key.key)
        if any(key.calls or key.tokens for key in found):
            self._forget_what_is_over(listed)

    def _follow_clock(self, name: str) -> None:
        """Count what began for as long as it would have counted, although the clock was set back."""
        now = self._tx.now
        for until, calls, tokens, counted_at in self._tx.all("delete_uses_of_the_future", name, now):
            earlier = until - (counted_at - now)
            self._tx.run("add_use", name, earlier, calls, tokens, now)
            self._tx.run("move_uses_of_permits", name, until, earlier)

    def _forget_what_is_over(self, listed: str) -> None:
        over: dict[str, tuple[int, int]] = {}
        for name, calls, tokens in self._tx.all("delete_uses_over", listed, self._tx.now):
            before = over.get(name, (0, 0))
            over[name] = before[0] + calls, before[1] + tokens
        for name, (calls, tokens) in over.items():
            self.add(name, -calls, -tokens)

    def add(self, name: str, calls: int, tokens: int) -> None:
        """Change the sums of a key. The caller changes the rows that they are the sums of."""
        self._tx.run("add_to_key", name, calls, tokens)
        key = self._known[name]
        key.calls += calls
        key.tokens += tokens

    def __getitem__(self, name: str) -> Key:
        """Return a key that was loaded."""
        return self._known[name]

    def first_full(self, keys: Collection[str]) -> str | None:
        """Return the first of these keys, in their order, with which no task can begin now."""
        for name in keys:
            if name not in self._known:
                self.load(keys)
            if self._known[name].free(self._tx.now) < 1:
                return name
        return None

    def begin(self, keys: Collection[str]) -> None:
        """Count a task that begins with all of these."""
        for name in keys:
            self._known[name].taken += 1
            self._known[name].calls += self._known[name].per is not None
        self._begun.update(keys)

    def write(self, *, takes_places: bool = True) -> None:
        """Write what has begun since the last time. Without ``takes_places`` the rows of the tasks take them."""
        begun, self._begun = self._begun, Counter()
        if takes_places:
            self._tx.run_many("take_places", sorted(begun.items()))
        uses = [
            (name, until, count, 0, self._tx.now)
            for name, count in begun.items()
            if (until := self._known[name].counts_until(self._tx.now)) is not None
        ]
        self._tx.run_many("add_use", uses)
        self._tx.run_many("add_to_key", [(name, count, 0) for name, _, count, _, _ in uses])
        for name, count in begun.items():
            key, now = self._known[name], self._tx.now
            if key.free(now) + count >= MOST_CANDIDATES:
                self._tx.run("look_at_line", name)  # all that one look lets out may have been claimed
            elif key.grows_with_time:
                self._tx.run("look_at_line_later", name, now)

    def next_look(self, name: str) -> int | None:
        """Return when a key has more room because of time alone; None: something else has to happen."""
        key, now = self._known[name], self._tx.now
        if key.is_closed(now) and not key.is_paused:
            return key.closed_until
        if key.is_paused or not key.grows_with_time:
            return None
        ((end,),) = self._tx.all("first_end_of_uses", name, now)
        return None if end is None else int(end)


def take_places(tx: WriteTransaction, limits: bytes | None) -> str | None:
    """Let a task begin that a caller leases by its id, or that rested; return the key that is full, if one is.

    The row itself takes the places, as soon as it is written.
    """
    names = keys_of(limits)
    if not names:
        return None
    keys = Keys(tx)
    full = keys.first_full(names)
    if full is None:
        keys.begin(names)
        keys.write(takes_places=False)
    return full
