"""Cases with real processes: each life is one, and is really killed or stopped.

    python -m tests.proof.program_fuzz.nursery URL FOLDER CASE

A warm process without a loop or a thread forks them all: the office, which answers people's questions and judges in the
end, and one worker after the other. CASE is a file that ``Case.to_json`` wrote. Prints what was wrong as JSON.

A worker stops and kills itself, at a Commit or beside what its steps do to the world: never between the last check of
a call and the call, which no engine can close.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from holdfast import Holdfast, StateStore, StoreBusy, StoreUnavailable, make_store
from holdfast.engine.effects import once_step
from holdfast.engine.steps import suspension
from holdfast.engine.worker import worker
from holdfast.model import worker as rules
from tests.proof.program_fuzz.driver import HANGS, create_table, evidence_of
from tests.proof.program_fuzz.grammar import Case, Fault, case_from_json
from tests.proof.program_fuzz.interpreter import Interpreter, set_limits
from tests.proof.program_fuzz.judge import LABELS, judge
from tests.proof.program_fuzz.office import Office
from tests.proof.program_fuzz.outage import persist, take_away
from tests.proof.program_fuzz.records import Records

PACE = 0.1
LEASE = 2.0
OUTSIDE_LEASE = 1.0
LONGEST = 8 * HANGS
"""Seconds that a case may take. One in which nothing happens any more is given up after ``HANGS``."""
AWAY = 1.2
"""Seconds that the database is away."""
FROZEN = 1.5 * LEASE
"""Seconds that a stopped worker stays so: its lease is over then, and whether it is decides no verdict."""

SETTINGS = [
    (suspension, "HOLD_SLOT", 0.05),
    (suspension, "LOOK_EVERY", 0.1),
    (worker, "LOOK_EVERY", 0.1),
    (once_step, "DISPATCH_WITHIN", 0.5),
    (rules, "POISON_AFTER", 1_000_000),
]


class Nursery:
    """One case on one database."""

    def __init__(self, case: Case, url: str, folder: Path) -> None:
        make_store(url)  # imports its driver here, once
        self.case, self.url, self.folder = case, url, folder

    def run(self) -> list[str]:
        """Have lives follow each other until the office says that all is over; return what was wrong."""
        office = fork(self._attend)
        outage = fork(self._take_away) if self.case.away else None
        workers: dict[int, float | None] = {}
        lives, version = 0, 1
        size, give_up_at = 0, time.monotonic() + HANGS
        try:
            while not (ended := reap(office)):
                if not any(thaw_at is None for thaw_at in workers.values()):
                    fault = self.case.faults[lives] if lives < len(self.case.faults) else None
                    lives += 1
                    workers[fork(lambda fault=fault, version=version: self._work(fault, version))] = None  # type: ignore[misc]
                    version = 2 if fault is not None and fault.deploy else version
                self._look_after(workers)
                if (now_there := self._size()) > size:  # a slow case is not a stuck one
                    size, give_up_at = now_there, time.monotonic() + HANGS
                if time.monotonic() > give_up_at:
                    return [f"it hangs after {lives} lives"]
                time.sleep(0.01)
        finally:
            for pid in [*workers, office, *([outage] if outage else [])]:
                end(pid)
        verdict = self.folder / "verdict.json"
        return json.loads(verdict.read_text()) if ended == 1 and verdict.exists() else ["the office failed"]

    def _size(self) -> int:
        records = self.folder / "records.jsonl"
        return records.stat().st_size if records.exists() else 0

    def _look_after(self, workers: dict[int, float | None]) -> None:
        for pid, thaw_at in list(workers.items()):
            found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if found and os.WIFSTOPPED(status):
                workers[pid] = time.monotonic() + FROZEN
            elif found:
                del workers[pid]
            elif thaw_at is not None and time.monotonic() >= thaw_at:
                os.kill(pid, signal.SIGCONT)
                workers[pid] = float("inf")

    # In children

    async def _work(self, fault: Fault | None, version: int) -> None:
        records = Records(self.folder / "records.jsonl")
        strike = Strike(fault)
        hold = Holdfast(self.url)
        Interpreter(self.case, records, hold, version=version, on_act=strike.act, pace=PACE)

        def make_watched(url: str, **options: Any) -> StateStore:  # noqa: ANN401
            store = make_store(url, **options)
            vars(store)["commit"] = strike.around(store.commit)
            return store

        with mock.patch("holdfast.engine.api.async_holdfast.make_store", make_watched):
            async with hold:
                # The office, another process, makes the table and submits first.
                while not records.count("ready", ""):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                async with hold.worker(lease=LEASE, concurrency=20, grace=0.0):
                    await strike.handed_back.wait()

    async def _attend(self) -> None:
        records = Records(self.folder / "records.jsonl")
        hold = Holdfast(self.url)
        Interpreter(self.case, records, hold, pace=PACE)
        async with hold:
            office = Office(self.case, records, hold, hold.store, OUTSIDE_LEASE)
            await hold.transaction(create_table)
            await set_limits(hold, self.case)
            await office.begin(LABELS)
            records.write("ready", "")
            while not await self._attend_once(office):  # noqa: ASYNC110 - it looks at what other processes do
                await asyncio.sleep(0.05)
            evidence = await persist(lambda: evidence_of(self.case, records, office, hold))
            wrong = list(judge(evidence))
        (self.folder / "verdict.json").write_text(json.dumps(wrong))

    async def _attend_once(self, office: Office) -> bool:
        try:
            return await office.attend()
        except StoreBusy:  # a process that was frozen in the middle of a transaction locks all others out of a file
            return False
        except StoreUnavailable:  # the database is away
            return False

    async def _take_away(self) -> None:
        records = Records(self.folder / "records.jsonl")
        while not records.count("ready", "") or records.size() < self.case.away:  # noqa: ASYNC110 - others write them
            await asyncio.sleep(0.01)
        records.write("away", "")
        take_away(self.url, AWAY)


class Strike:
    """Ends or stops this very process where its fault says so."""

    def __init__(self, fault: Fault | None) -> None:
        self._fault = fault
        self._commits = self._acts = 0
        self.handed_back = asyncio.Event()

    def around(self, commit: Callable[..., Any]) -> Callable[..., Any]:
        async def struck(commits: Sequence[Any]) -> Any:  # noqa: ANN401
            self._commits += 1
            here = self._fault is not None and self._fault.commit == self._commits
            kind = self._fault.kind if self._fault is not None and here else ""
            if kind == "die before":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            if kind == "hand back":
                self.handed_back.set()
            answer = await commit(commits)
            if kind == "die after":
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return struck

    async def act(self, _: str) -> None:
        self._acts += 1
        if self._fault is not None and self._fault.act == self._acts:
            os.kill(os.getpid(), signal.SIGKILL)


def fork(what: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run it in a forked process; return its id."""
    if pid := os.fork():
        return pid
    try:
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        for module, name, value in SETTINGS:
            setattr(module, name, value)
        asyncio.run(what())
        os._exit(0)
    except BaseException:  # noqa: BLE001 - it must not return into the parent's code
        traceback.print_exc()
        os._exit(1)


def reap(pid: int) -> int:
    """0 while it runs, 1 when it ended well, 2 otherwise."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return 0 if not found else 1 if status == 0 else 2


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)  # reaches a stopped one too
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # it is over, and was waited for


def main(url: str, folder: str, case: str) -> None:
    wrong = Nursery(case_from_json(Path(case).read_text()), url, Path(folder)).run()
    print(json.dumps(wrong))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
