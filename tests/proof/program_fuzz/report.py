"""What a person reads when a case fails: what was wrong, the smallest program that shows it, and how to repeat it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.proof.program_fuzz.driver import Verdict
from tests.proof.program_fuzz.grammar import Case
from tests.proof.program_fuzz.shrink import shrink

FEW = 5
"""Runs to shrink a case that hangs: each of them takes its time."""


async def explain(verdict: Verdict, test: str, run: Callable[[Case], Awaitable[Verdict]]) -> str:
    """Shrink a case that failed, and return the whole report."""
    last = verdict

    async def fails(case: Case) -> bool:
        nonlocal last
        found = await run(case)
        if found.wrong:
            last = found
        return bool(found.wrong)

    hangs = any("hangs" in wrong for wrong in verdict.wrong)
    small = await shrink(verdict.case, fails, **({"most": FEW} if hangs else {}))
    parts = [
        f"seed {verdict.case.seed} on {verdict.case.store}:",
        *(f"  {wrong}" for wrong in verdict.wrong),
        "the smallest program that was found to fail, and what is wrong with it:",
        small.text(),
        *(f"  {wrong}" for wrong in last.wrong),
        f"repeat it with HOLDFAST_SEED={verdict.case.seed} .venv/bin/python -m pytest {test}",
        f"or as data, with case_from_json: {small.to_json()}",
    ]
    return "\n".join(parts)
