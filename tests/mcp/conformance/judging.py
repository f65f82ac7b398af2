"""Whether a scenario went as it is expected to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.mcp.conformance.expectations import DoesNotApply, Expected, Passes
from tests.mcp.conformance.proxy import Exchange
from tests.mcp.conformance.suites import Check

FORM: Final = frozenset({"wire-schema-valid", "wire-schema-harness-error"})
"""Checks of the form of messages, which a suite adds to every scenario: a success also where there was no message."""


def faults(checks: Sequence[Check], exchanges: Sequence[Exchange], expected: Expected) -> list[str]:
    """Return everything that is not as it should be, in words."""
    if isinstance(expected, DoesNotApply):
        return [str(check) for check in checks if check.id in FORM and check.status == "FAILURE"]
    return [*_unexpected(checks, expected), *_unreached(exchanges, expected)]


def _unexpected(checks: Sequence[Check], expected: Passes) -> Iterator[str]:
    verdicts = [check for check in checks if check.status != "INFO"]
    if not any(check.status == "SUCCESS" for check in verdicts if check.id not in FORM):
        yield "nothing was found to be right"
    for check in verdicts:
        if check.id not in expected.apart_from and check.status != "SUCCESS":
            yield str(check)
        if check.id in expected.apart_from and check.status == "SUCCESS":
            yield f"{check.id} is said to be impossible, and succeeded"
    for missing in sorted(expected.apart_from.keys() - {check.id for check in checks}):
        yield f"{missing} is said to be impossible, and was not even tried"


def _unreached(exchanges: Sequence[Exchange], expected: Passes) -> Iterator[str]:
    """Name what was to be reached and was not: suites also accept the polite answer that there is no such tool."""
    if expected.reaching is None:
        return
    reached = [exchange for exchange in exchanges if exchange.meant == expected.reaching]
    if not reached:
        yield f"the suite did not ask for {expected.reaching}"
    for exchange in reached:
        result = (exchange.answer or {}).get("result")
        if result is None or result.get("isError", False) is not expected.refused:
            yield f"{expected.reaching} was answered by {exchange.status} {exchange.answer}"
