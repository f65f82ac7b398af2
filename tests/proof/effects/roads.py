"""Roads: the places a task with one effect passes, what a kill at each of them leaves behind, and where that leads.

A model of what ought to be, made without the engine. It says which kills can follow which, so that a plan only asks for
kills that will come about. The processes and the ledger show whether they did, and what became of the world.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, TypeVar, get_args

T = TypeVar("T")

Kind: TypeAlias = Literal["checked", "unchecked", "idempotent", "pure"]
"""``once`` with and without a reconcile, and the two that may simply run again."""
KINDS: tuple[Kind, ...] = get_args(Kind)

Manner: TypeAlias = Literal["async", "blocking", "carried"]
"""How the call is made: on the loop, in a thread, or on the loop with its intent in the Commit of the step before."""

Known: TypeAlias = Literal[
    "nothing", "armed", "doubt", "absent", "human", "asked", "done", "completed", "ended", "either"
]
"""What the store holds. ``done``: the effect, its step not yet; ``either``: the kill came amid a Commit."""

MOST_KILLS = 4
"""Of one task: a task that kills more workers than that passes for poison."""


class Standing(NamedTuple):
    """The situation when no worker runs the task."""

    known: Known = "nothing"
    made: bool = False
    """The call has reached the world, or is on its way there."""
    again: bool = False
    """It was found absent once before."""


class Stop(NamedTuple):
    """A place on a road, and how things stand once a worker was killed there."""

    place: str
    leaves: Standing

    @property
    def is_last(self) -> bool:
        """Whether nothing can be planned behind it."""
        return self.leaves.known in {"ended", "either"}


ONLY_READS = ("before reconcile", "amid reconcile")
IN_RECOVERY = frozenset(
    {f"{moment} {what}" for moment in ("before", "amid", "after") for what in ("doubt", "absent", "happened", "human")}
    | {"before question", "after question", *ONLY_READS}
)
"""Places that only a worker passes that clears up after another."""


def road(kind: Kind, at: Standing) -> list[Stop]:
    """Return what a fresh worker passes, in order, if it is not killed."""
    way = _Way(at)
    if at.known in {"armed", "doubt", "human", "asked"}:
        way.clear_up(checks=kind == "checked")
    if way.at.known in {"nothing", "absent"}:
        way.make_the_call(once=kind in {"checked", "unchecked"})
    if way.at.known == "done":
        way.write("adoption", "completed")
    if way.at.known == "completed":
        way.write("end", "ended")
    return way.stops


class _Way:
    """Goes on from standing to standing, and notes every stop."""

    def __init__(self, at: Standing) -> None:
        self.at = at
        self.stops: list[Stop] = []

    def stand(self, *places: str) -> None:
        self.stops += (Stop(place, self.at) for place in places)

    def write(self, what: str, known: Known) -> None:
        self.stand(f"before {what}")
        self.stops.append(Stop(f"amid {what}", self.at._replace(known="either")))
        self.at = self.at._replace(known=known, again=self.at.again or known == "absent")
        self.stand(f"after {what}")

    def clear_up(self, *, checks: bool) -> None:
        if self.at.known == "armed":
            self.write("doubt", "doubt")
        if self.at.known == "doubt" and checks:
            self.stand(*ONLY_READS)
            self.write("happened", "done") if self.at.made else self.write("absent", "absent")
        if self.at.known == "doubt":
            self.write("human", "human")
        if self.at.known == "human":
            self.write("question", "asked")
        if self.at.known == "asked":  # and a person says what is true
            self.at = Standing("done", made=True) if self.at.made else Standing("absent", again=True)

    def make_the_call(self, *, once: bool) -> None:
        if once:
            self.write("arm", "armed")
            self.stand("before check", "after check")
        self.stand("entered")
        self.at = self.at._replace(made=True)
        self.stand("sent", "recorded", "answered")
        self.write("result", "completed")


def deck(kind: Kind, *, amid: bool) -> set[Stop]:
    """Return every stop worth a kill: all there are, but of a second doubt about the same call only its beginning.

    ``amid``: those amid a Commit as well, whose outcome is a matter of luck.
    """
    found: set[Stop] = set()
    begin = [Standing()]
    for at in begin:
        for stop in road(kind, at):
            is_second_doubt = stop.leaves.again and stop.place in IN_RECOVERY - {"after absent"}
            if stop in found or is_second_doubt or (stop.leaves.known == "either" and not amid):
                continue
            found.add(stop)
            if not stop.is_last:
                begin.append(stop.leaves)
    return found


@dataclass(frozen=True)
class Plan:
    """One task, and the places at which its workers are killed, one after the other."""

    number: int
    kind: Kind
    manner: Manner
    stops: tuple[Stop, ...]

    def __str__(self) -> str:
        return f"{self.number} ({self.kind}, {self.manner}): {', '.join(stop.place for stop in self.stops)}"

    @property
    def was_in_doubt(self) -> bool:
        """Whether a worker was killed when it certainly had armed the call, and had not recorded its result."""
        return any(stop.leaves.known in {"armed", "doubt", "human", "asked"} for stop in self.stops)

    @property
    def kills_in_recovery(self) -> int:
        """How many workers in a row were killed while they cleared up."""
        longest = run = 0
        for stop in self.stops:
            run = run + 1 if stop.place in IN_RECOVERY else 0
            longest = max(longest, run)
        return longest


def make_plans(seed: int, *, amid: bool) -> list[Plan]:
    """Return plans with a kill at every stop of every kind, in chains as the dice fall."""
    dice = random.Random(seed)
    chains = [(kind, stops) for kind in KINDS for stops in _chains(kind, dice, amid=amid)]
    manners = {"checked": get_args(Manner), "unchecked": get_args(Manner)}
    return [
        Plan(number, kind, dice.choice(manners.get(kind, ("async", "blocking"))), tuple(stops))
        for number, (kind, stops) in enumerate(chains, start=1)
    ]


def _chains(kind: Kind, dice: random.Random, *, amid: bool) -> Iterator[list[Stop]]:
    missing = deck(kind, amid=amid)
    if kind in {"checked", "unchecked"}:
        for made, kills in zip((False, True), _shuffled((2, 3), dice), strict=True):
            yield (stops := _recoveries(kind, kills, dice, made=made))
            missing.difference_update(stops)
    while missing:
        stops = _way_to(kind, dice.choice(sorted(missing)), dice)
        missing.difference_update(stops)
        while len(stops) < MOST_KILLS and not stops[-1].is_last:
            fresh = [stop for stop in road(kind, stops[-1].leaves) if stop in missing]
            if not fresh:
                break
            stops.append(dice.choice(fresh))
            missing.discard(stops[-1])
        yield stops


def _recoveries(kind: Kind, kills: int, dice: random.Random, *, made: bool) -> list[Stop]:
    """Return a chain in which so many workers in a row are killed while they clear up after the first."""
    first = [stop for stop in road(kind, Standing()) if stop.leaves == Standing("armed", made)]
    stops = [dice.choice(first)]
    for left in reversed(range(kills)):
        ahead = [stop for stop in road(kind, stops[-1].leaves) if stop.place in IN_RECOVERY and not stop.is_last]
        if left:  # not so far that nothing is left to clear up
            ahead = [stop for stop in ahead if stop.leaves.known in {"armed", "doubt", "human"}]
        stops.append(dice.choice(ahead))
    return stops


def _way_to(kind: Kind, target: Stop, dice: random.Random) -> list[Stop]:
    """Return one of the shortest chains that ends there."""
    ways: list[list[Stop]] = [[]]
    seen: set[Standing] = set()
    for way in ways:
        ahead = road(kind, way[-1].leaves if way else Standing())
        if target in ahead:
            return [*way, target]
        for stop in _shuffled(ahead, dice):
            if not stop.is_last and stop.leaves not in seen:
                seen.add(stop.leaves)
                ways.append([*way, stop])
    raise AssertionError(f"no way leads to {target}")


def _shuffled(items: Iterable[T], dice: random.Random) -> list[T]:
    return dice.sample(listed := list(items), len(listed))
