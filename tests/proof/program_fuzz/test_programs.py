"""Random programs under random accidents, on every store: nothing done twice, nothing lost, nothing left hanging."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.everyday import FULL
from tests.postgres_server import PostgresServer
from tests.proof.program_fuzz.driver import HANGS, Verdict, run_case
from tests.proof.program_fuzz.generation import EVERYTHING, make_case
from tests.proof.program_fuzz.grammar import Case, case_from_json
from tests.proof.program_fuzz.report import explain

_IN_FULL = {"memory": 8, "json": 3, "sqlite": 22, "postgres": 20}
CASES = _IN_FULL if FULL else _IN_FULL | {"postgres": 8}
"""Of 60, with those of ``test_processes``; fewer every day, as one on PostgreSQL costs as much as six on SQLite."""

SOAKED = 34
"""Times as many in a soak: 2,040 in all."""


@pytest.mark.parametrize("store", CASES)
async def test_random_programs(
    store: str, seeds: Sequence[int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    new_url = url_maker(store, request)
    folders = (tmp_path / f"run-{number}" for number in itertools.count(1))

    async def run(case: Case, hangs_after: float = HANGS) -> Verdict:
        folder = next(folders)
        folder.mkdir()
        return await run_case(case, new_url(folder), folder, hangs_after=hangs_after)

    for seed in range(seeds[0], seeds[0] + CASES[store] * (SOAKED if SOAK else 1)):
        case = make_case(seed, store, features=EVERYTHING)
        assert case_from_json(case.to_json()).text() == case.text()
        verdict = await run(case)
        if verdict.wrong:
            pytest.fail(await explain(verdict, f"'{request.node.nodeid}'", lambda case: run(case, 20.0)), pytrace=False)


def url_maker(store: str, request: pytest.FixtureRequest) -> Callable[[Path], str]:
    """Return what makes the URL of an empty store."""
    match store:
        case "postgres":
            server: PostgresServer = request.getfixturevalue("postgres18")
            return lambda _: server.create_store()
        case "memory":
            return lambda _: "memory://"
        case "json":
            return lambda own: f"json:///{own}/store"
        case _:
            return lambda own: f"sqlite:///{own}/agents.db"
