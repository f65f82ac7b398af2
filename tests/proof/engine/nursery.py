"""A warm process that forks one life after the other, most of them doomed, and inspects the store after each.

    python -m tests.proof.engine.nursery boundaries URL FOLDER SEED KIND
    python -m tests.proof.engine.nursery chaos URL FOLDER SEED KILLS

``boundaries`` gives each life one task of the kind in a queue of its own, and ends it before, and after, the first
Commit, the second, and so on. ``chaos`` gives all lives the same queue, and ends them at any verb. Both then let one
more life finish everything, and print how many kills they made.

The parent has no event loop and no thread at any time, so forking is safe; whatever needs one runs in a child.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import itertools
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from holdfast import Holdfast, StateStore, make_store, open_store
from holdfast.engine.steps import suspension
from holdfast.engine.worker import worker
from holdfast.model import worker as rules
from holdfast.model.transitions import OPEN
from tests.proof.engine.conditions import eventually, until_alone
from tests.proof.engine.doom import MOMENTS, Doom
from tests.proof.engine.evidence import Evidence, note_acknowledgements
from tests.proof.engine.inspection import check_end, check_store
from tests.proof.engine.workload import KINDS, define

LONGEST_LIFE = 60
"""Seconds after which a life that should be over shows where it hangs, and ends."""

LAST_LEASE = 5.0
"""Seconds: the end of the last life, which may be slow, is not awaited."""

# What a life of a tenth of a second needs: shorter waits, and no verdict that a task which saw so many workers die must
# be what killed them.
SETTINGS = [(suspension, "HOLD_SLOT", 0.05), (suspension, "LOOK_EVERY", 0.05), (worker, "LOOK_EVERY", 0.05)]
SETTINGS += [(rules, "POISON_AFTER", 1_000_000)]

DECK = [
    Doom(verb, number, moment)
    for verb, most in {
        "commit": 8,
        "claim": 3,
        "heartbeat": 2,
        "sweep": 3,
        "submit": 1,
        "register": 1,
        "load": 1,
    }.items()
    for number in range(1, most + 1)
    for moment in MOMENTS
]
"""Where chaos strikes. Every life meets each of these: the verified task it brings takes eight Commits and a load."""


class Nursery:
    """Lives on one database."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        make_store(url)  # imports its driver here, once, and not in every child
        self.url = url
        self.evidence = Evidence(folder / "evidence")
        self.seed = seed
        # Longer where a worker that is only slow, after all that were killed, would make its task pass for poison.
        self.lease = 0.3 if url.startswith("sqlite") else 3.0
        self.queues: set[str] = set()
        self.lives = 0
        self.kills = 0

    def boundaries(self, kind: str) -> None:
        """End a life before and after each Commit of a task, until one comes through: there are no more of them."""
        for number in itertools.count(1):
            for moment in ("before", "after"):
                doom = Doom("commit", number, moment)
                may_survive = number > KINDS[kind]
                if not self.live(doom, [kind], f"life-{self.lives}", one_task=True, may_survive=may_survive):
                    return

    def chaos(self, kills: int) -> None:
        """End lives wherever the deck says. Seeds in a row take their turns at it, so that a few of them use it up."""
        deck = random.Random(0).sample(DECK, len(DECK))
        dice = random.Random(self.seed)
        for turn in range(self.seed * kills, (self.seed + 1) * kills):
            kinds = ["verified", dice.choice(list(KINDS))] if self.lives else list(KINDS)
            self.live(deck[turn % len(deck)], kinds, "default")

    def live(
        self, doom: Doom, kinds: list[str], queue: str, *, one_task: bool = False, may_survive: bool = False
    ) -> bool:
        """Have a life submit tasks of these kinds and work on the queue until its doom; say whether it met it."""
        self.lives += 1
        self.queues.add(queue)
        status = in_a_child(lambda: self._live(doom, kinds, queue, one_task=one_task))
        was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not was_killed:
            assert may_survive, f"life {self.lives} was to die {doom}, and did not: {status}"
            assert status == 0, f"life {self.lives} failed"
        self.kills += was_killed
        inspected = in_a_child(lambda: self._inspect(check_store))
        assert inspected == 0, f"the inspection after life {self.lives}, which died {doom}, failed"
        return was_killed

    def finish(self) -> None:
        """Let one more life do whatever is left, and inspect the end."""
        assert in_a_child(self._finish) == 0, "the last life failed"
        assert in_a_child(lambda: self._inspect(check_end)) == 0, "the last inspection failed"

    # In children

    async def _live(self, doom: Doom, kinds: list[str], queue: str, *, one_task: bool) -> None:
        dice = random.Random(f"{self.seed}/{self.lives}")
        hold = Holdfast(self.url)
        definitions = define(hold, self.evidence)
        with impatient(lambda store: doom.await_in(store, self.evidence, dice)):
            async with hold:
                handles = await asyncio.gather(
                    *(hold.submit(definitions[kind], self.lives, queue=queue) for kind in kinds)
                )
                self.evidence.submitted(handle.id for handle in handles)
                doom.target = handles[0].id if one_task else None
                async with hold.worker(queues=queue, lease=self.lease):
                    if one_task:
                        await handles[0].result()
                    else:
                        await asyncio.Event().wait()

    async def _finish(self) -> None:
        hold = Holdfast(self.url)
        define(hold, self.evidence)
        with impatient(lambda store: note_acknowledgements(store, self.evidence)):
            async with hold, hold.worker(queues=sorted(self.queues), lease=LAST_LEASE):

                async def all_ended() -> bool:
                    return not set(await hold.store.count()) & OPEN

                await eventually("every task has ended", all_ended, within=LONGEST_LIFE)

    async def _inspect(self, check: Callable[[StateStore, Evidence], Coroutine[Any, Any, None]]) -> None:
        await until_alone(self.url)
        async with open_store(self.url) as store:
            await check(store, self.evidence)


@contextlib.contextmanager
def impatient(prepare: Callable[[StateStore], None]) -> Iterator[None]:
    """Have whatever is opened in this block use the settings above, and a store that was prepared."""

    def make_prepared(url: str, **options: Any) -> StateStore:  # noqa: ANN401 - as make_store
        store = make_store(url, **options)
        prepare(store)
        return store

    with contextlib.ExitStack() as patches:
        for module, name, value in SETTINGS:
            patches.enter_context(mock.patch.object(module, name, value))
        patches.enter_context(mock.patch("holdfast.engine.api.async_holdfast.make_store", make_prepared))
        yield


def in_a_child(what: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run it in a forked process; return how that ended, as ``waitpid`` says it."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        faulthandler.dump_traceback_later(LONGEST_LIFE, exit=True)
        asyncio.run(what())
        os._exit(0)
    except BaseException:  # noqa: BLE001 - it must not return into the parent's code
        traceback.print_exc()
        os._exit(1)


def main(what: str, url: str, folder: str, seed: str, argument: str) -> None:
    nursery = Nursery(url, Path(folder), int(seed))
    if what == "boundaries":
        nursery.boundaries(argument)
    else:
        nursery.chaos(int(argument))
    nursery.finish()
    print(nursery.kills)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
