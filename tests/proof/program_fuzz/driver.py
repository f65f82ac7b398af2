"""Runs one case in this process, life after life, and has it judged."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from unittest import mock

from holdfast import FeedRetention, Holdfast, NotFound, StateStore, Task, Transaction, make_store
from holdfast.model import worker as rules
from holdfast.model.feed import OLDEST
from holdfast.store import outage
from holdfast.testing.skipping_clock import SkippingClock
from tests.feed_truth import FeedWitness
from tests.proof.program_fuzz.grammar import Case
from tests.proof.program_fuzz.interpreter import TABLE, Interpreter, set_limits
from tests.proof.program_fuzz.judge import LABELS, Evidence, judge
from tests.proof.program_fuzz.lives import Life, Line, Traffic
from tests.proof.program_fuzz.office import PRUNED_AFTER, Office
from tests.proof.program_fuzz.records import Records

HANGS = 120.0
"""Real seconds after which a case that has not ended hangs. Nothing else depends on real time."""

OUTSIDE_LEASE = 30.0
LONG_AGO = 300.0
"""Seconds after which all that has ended is pruned, more than a clock is set back."""
LONGEST_HOP = 5.0
A_BIT = 0.001
"""More than needed, so that rounding leaves nothing almost due."""
QUIET = 0.0015
MOST_RESTLESS = 100
"""Looks, after which time goes on in any case: a worker whose idea of the server's time is a little ahead asks all
the time whether something is due."""
MOST_LIVES = 100
READS = 0.1
"""How often the reader of the feed goes on for a while."""

SETTINGS = [
    (outage, "FIRST_PAUSE", 0.001),
    (outage, "LONGEST_PAUSE", 0.005),
    (rules, "POISON_AFTER", 1_000_000),  # a task that saw so many lives end is not to blame
]


@dataclass(frozen=True)
class Verdict:
    """What was wrong with a case, if anything."""

    case: Case
    wrong: tuple[str, ...]


async def run_case(case: Case, url: str, folder: Path, *, hangs_after: float = HANGS) -> Verdict:
    """Run it on an empty store, and judge it."""
    records = Records(folder / "records.jsonl")
    clock = SkippingClock()
    store = make_store(url, clock=clock)
    try:
        async with store:
            scene = Scene(case, store, records, clock, hangs_after)
            with scene.settings():
                try:
                    return Verdict(case, tuple(judge(await scene.play())))
                except Hangs as hangs:
                    return Verdict(case, (f"it hangs: {hangs}",))
    finally:
        records.close()


class Hangs(Exception):
    """Nothing comes to an end any more."""


class Scene:
    """One case on one store."""

    def __init__(
        self, case: Case, store: StateStore, records: Records, clock: SkippingClock, hangs_after: float
    ) -> None:
        self.case = case
        self._hangs_after = hangs_after
        self.store = store
        self.records = records
        self.clock = clock
        self.traffic = Traffic()
        self.threads = Traffic()
        self.version = 1
        self.office: Office
        self._dice = random.Random(f"accidents {case.seed}")
        self._reads = random.Random(f"reads {case.seed}")
        self._feed: FeedWitness
        self._lives = 0
        self._opening: Line | None = None

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        with contextlib.ExitStack() as patches:
            for module, name, value in SETTINGS:
                patches.enter_context(mock.patch.object(module, name, value))
            patches.enter_context(mock.patch("holdfast.engine.api.async_holdfast.make_store", self._line_to_open))
            yield

    def _line_to_open(self, *_: object, **__: object) -> Line | None:
        return self._opening

    async def play(self) -> Evidence:
        hold = Holdfast("memory://", clock=self.clock)
        Interpreter(self.case, self.records, hold)
        self._opening = self._line(lost=0.0)
        async with hold:
            await self.store.set_feed_retention(FeedRetention(age=timedelta(days=36500)))
            self._feed = FeedWitness((await self.store.read_feed(OLDEST)).cursor)
            self.office = Office(self.case, self.records, hold, self.store, OUTSIDE_LEASE)
            if self.case.store != "json":
                await hold.transaction(create_table)
            await set_limits(hold, self.case)
            await self.office.begin(LABELS)
            lives = [await self._begin()]
            try:
                async with asyncio.timeout(self._hangs_after):
                    await self._live(lives)
            except TimeoutError:
                raise Hangs(await self._describe()) from None
            finally:
                for life in lives:
                    await life.end()
            evidence = await evidence_of(self.case, self.records, self.office, hold)
            evidence = replace(evidence, feed=tuple(await self._feed.check(self.store)))
            return evidence if self.case.prune_after is None else await self._prune_all(evidence)

    async def _prune_all(self, evidence: Evidence) -> Evidence:
        """Prune when all has ended; whatever then stays would stay for ever."""
        self.clock.advance(LONG_AGO)
        await self.store.prune(PRUNED_AFTER)
        return replace(evidence, left=tuple((await self.office.tasks()).values()))

    async def _live(self, lives: list[Life]) -> None:
        """Let lives follow each other until all is over."""
        while True:
            await self._until_quiet(lives)
            if self._reads.random() < READS:
                await self._feed.look(self.store, limit=self._reads.randint(1, 20), pages=self._reads.randint(1, 5))
            for life in lives.copy():
                if life.is_over:
                    lives.remove(life)
                    await self._bury(life)
            current = lives[-1] if lives else None
            if current is None or current.frozen:
                lives.append(await self._begin())
                continue
            if await self.office.attend():
                return
            for life in lives[:-1]:
                if life.frozen and (current.commits >= 3 or self._dice.random() < 0.02):
                    life.thaw()
            if not self.threads.under_way:
                ahead = self.clock.ahead()
                self.clock.advance(LONGEST_HOP if ahead is None else min(ahead.total_seconds() + A_BIT, LONGEST_HOP))

    async def _begin(self) -> Life:
        faults = self.case.faults
        fault = faults[self._lives] if self._lives < len(faults) else None
        self._lives += 1
        assert self._lives < MOST_LIVES
        case = self.case
        line = self._line(lost=case.lost, read_only=case.read_only, full=case.full, away=case.away)
        life = Life(
            case,
            self.records,
            line,
            self.threads,
            fault,
            version=self.version,
            clock=self.clock,
            replaced=case.replaced if self._lives == 1 else 0,
        )
        if fault is not None and fault.deploy:
            self.version = 2
        self._opening = line
        await life.begin()
        return life

    async def _bury(self, life: Life) -> None:
        left_its_tasks, worker_id = life.is_dead or life.line.replaced, life.worker_id
        await life.end()
        if left_its_tasks and not (life.fault is not None and life.fault.lapse):
            await self.store.retire(worker_id)

    def _line(self, *, lost: float, **refusals: int) -> Line:
        return Line(self.store, self.traffic, self._dice, lost, **refusals)

    async def _until_quiet(self, lives: list[Life]) -> None:
        """Return when nothing goes on that needs no time to pass, or a life is over."""
        calm = restless = 0
        while calm < 2 and restless < MOST_RESTLESS:
            restless += 1
            total, size = self.traffic.total, self.records.size()
            for _ in range(10):
                await asyncio.sleep(0)
            await asyncio.sleep(QUIET)
            if any(life.is_over for life in lives) or (lives and lives[-1].frozen):
                return
            still = (
                total == self.traffic.total
                and size == self.records.size()
                and not self.traffic.under_way
                and not self.threads.under_way
            )
            calm = calm + 1 if still else 0

    async def _describe(self) -> str:
        tasks = await self.office.tasks()
        open_ones = [f"{task.name} is {task.state}" for task in tasks.values() if not task.state.is_terminal]
        doubts = [f"{doubt.effect.step_key} {doubt.effect.state}" for doubt in await self.office.hold.doubts()]
        return f"{open_ones}, doubts: {doubts}"


async def evidence_of(case: Case, records: Records, office: Office, hold: Holdfast) -> Evidence:
    """Gather what the judge needs, once all is over."""
    rows = [] if case.store == "json" else [row[0] for row in await hold.transaction(_read_table)]
    tasks = await office.tasks()
    charged = await office.charged() if office.root in tasks else None
    if any(node["kept"] for node in case.body.walk()):
        for task in tasks.values():
            await _check_artifacts(records, hold, task)
    known = {**office.pruned, **tasks}
    return Evidence(
        case,
        tuple(records.lines()),
        known,
        office.root,
        tuple(office.forks),
        tuple(rows),
        charged,
        frozenset(tasks),
        queues=tuple(await hold.queues()),
    )


async def _check_artifacts(records: Records, hold: Holdfast, task: Task) -> None:
    """Note each artifact that a task keeps and that cannot be read."""
    for link in await hold.store.artifact_links(task.id):
        try:
            await hold.artifacts.read_text(link.artifact_id)
        except NotFound as error:
            records.write("wrong", task.id, note=f"an artifact that the task keeps cannot be read: {error}")


async def create_table(tx: Transaction) -> None:
    await tx.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (label TEXT)")


async def _read_table(tx: Transaction) -> list[tuple[str]]:
    return await tx.execute(f"SELECT label FROM {TABLE}")
