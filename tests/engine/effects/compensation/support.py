"""What the tests of sagas share: a travel agency, whose books show what was reserved and released, in which order."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from holdfast import Compensation, Doubt, Effect, EffectState, Handle, Holdfast, Retry, Step
from tests.engine.support import until

ONE_TRY = Retry(max_attempts=1)
AT_ONCE = Retry(initial=0.0)


@dataclass(frozen=True)
class Booking:
    what: str
    number: int


class Agency:
    """Does everything once under each id, as good services do. ``+flight`` in its book is a reservation."""

    def __init__(self) -> None:
        self.book: list[str] = []
        self.reserved: dict[str, Booking] = {}
        self.released: dict[str, Booking] = {}
        self.tries: Counter[str] = Counter()
        self.broken: set[str] = set()
        """What cannot be released at the moment."""

    async def reserve(self, what: str, effect_id: str) -> Booking:
        if effect_id not in self.reserved:
            self.reserved[effect_id] = Booking(what, len(self.reserved) + 1)
            self.book.append(f"+{what}")
        return self.reserved[effect_id]

    async def release(self, booking: Booking, what: str, effect_id: str) -> None:
        self.tries[what] += 1
        if what in self.broken:
            raise ConnectionError(f"no answer about the {what}")
        if effect_id not in self.released:
            self.released[effect_id] = booking
            self.book.append(f"-{what}")

    @property
    def release_at_once(self) -> Compensation:
        """Release it, in three tries without a pause."""
        return Compensation(self.release, retry=AT_ONCE)

    def ids_of(self, what: str) -> list[str]:
        """The ids under which something was reserved."""
        return [effect_id for effect_id, booking in self.reserved.items() if booking.what == what]

    def clear(self) -> None:
        """Start afresh."""
        self.__init__()  # type: ignore[misc]


async def doubts_of(hold: Holdfast, task: Handle[Any], *steps: str) -> list[Doubt]:
    """Return what a person is asked about a task, once these steps are among it, in their order."""
    found: dict[str, Doubt] = {}

    async def are_there() -> bool:
        found.clear()
        found.update((doubt.effect.step_key, doubt) for doubt in await hold.doubts(task) if doubt.approval_id)
        return {*steps} <= {*found}

    await until(are_there)
    return [found[step] for step in steps]


async def effects_of(hold: Holdfast, task: Handle[Any]) -> dict[str, Effect]:
    """Return the effects of a task's own steps by key, the last of each; those of undos are left out."""
    listed = await hold.store.effects(task_id=task.id, limit=1000)
    return {effect.step_key: effect for effect in listed if not effect.step_key.startswith("holdfast:")}


async def states_of(hold: Holdfast, task: Handle[Any]) -> dict[str, EffectState]:
    return {key: effect.state for key, effect in (await effects_of(hold, task)).items()}


async def undos_of(hold: Holdfast, task: Handle[Any]) -> list[Step]:
    """Return the lines of the journal that undo something, in their order."""
    return [step for step in await hold.store.steps(task.id) if step.key.startswith("holdfast:undo:")]
