"""A smaller share of the programs, with real processes that are really killed and stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.forked_program import ForkedProgram
from tests.proof.program_fuzz import nursery
from tests.proof.program_fuzz.driver import Verdict
from tests.proof.program_fuzz.generation import EVERYTHING, make_case
from tests.proof.program_fuzz.grammar import Case, Fault, Node
from tests.proof.program_fuzz.report import explain
from tests.proof.program_fuzz.test_programs import SOAKED, url_maker

CLONE = Path(__file__).parents[3]
AT_ONCE = 4
"""Cases side by side: most of their time is waiting."""

CASES = {"sqlite": 4, "postgres": 3}
REAL = EVERYTHING - {"blocking", "jump", "deadline", "lost", "read_only", "full", "replaced"}
"""Threads cannot be stopped, and in real time a slow one could act after it was found not to have."""


class Runner:
    """Runs cases, each in a nursery of its own."""

    def __init__(self, store: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self._new_url = url_maker(store, request)
        self._folder = folder
        self._runs = 0

    async def run(self, case: Case) -> Verdict:
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir()
        (folder / "case.json").write_text(case.to_json())
        arguments = (self._new_url(folder), str(folder), str(folder / "case.json"))
        out, err = folder / "nursery.out", folder / "nursery.err"
        process = ForkedProgram(nursery.__name__, *arguments, folder=CLONE, stdout=out, stderr=err)
        try:
            code = await asyncio.to_thread(process.wait, 2 * nursery.LONGEST)
        finally:
            process.kill()
        assert code == 0, err.read_text()
        wrong = tuple(json.loads(out.read_text().splitlines()[-1]))
        return Verdict(case, wrong if "the office failed" not in wrong else (*wrong, err.read_text()))


@pytest.mark.parametrize("store", CASES)
async def test_random_programs_in_real_processes(
    store: str, seeds: Sequence[int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    runner, places = Runner(store, tmp_path, request), asyncio.Semaphore(AT_ONCE)

    async def run(seed: int) -> Verdict:
        async with places:
            return await runner.run(make_case(seed, store, features=REAL))

    wanted = range(seeds[0], seeds[0] + CASES[store] * (SOAKED if SOAK else 1))
    for verdict in await asyncio.gather(*map(run, wanted)):
        if verdict.wrong:
            pytest.fail(await explain(verdict, f"'{request.node.nodeid}'", runner.run), pytrace=False)


async def test_the_kills_are_real(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    step = Node("book", "nested", {"keyed": True, "undo": "plain"})
    body = Node("n0", "seq", {}, (step, Node("ask", "ask", {"keyed": True})))
    case = Case(seed=1, store="sqlite", body=body, faults=(Fault("die after", act=1),))
    verdict = await Runner("sqlite", tmp_path, request).run(case)
    assert verdict.wrong == ()
    lines = [json.loads(line) for line in (tmp_path / "run-1" / "records.jsonl").read_text().splitlines()]
    assert [line["what"] for line in lines].count("act") == 2  # the step ran, its process was killed, it ran again
