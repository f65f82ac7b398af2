"""What counts as conformance: it is not enough that a suite reports success."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mcp.conformance.expectations import DoesNotApply, Expected, Passes
from tests.mcp.conformance.judging import faults
from tests.mcp.conformance.proxy import Exchange
from tests.mcp.conformance.suites import Check

GOOD = Check("tools-list", "SUCCESS", "lists tools")
FORM = Check("wire-schema-valid", "SUCCESS", "is valid")
IMPOSSIBLE = Passes(apart_from={"sampling": "the server does not sample"})


def exchange(answer: str, *, meant: str | None = "test_tool", id_: int = 1) -> Exchange:
    return Exchange({"id": 1}, meant, 200, bytearray(f'{{"id": {id_}, {answer}}}'.encode()))


@pytest.mark.parametrize(
    ("checks", "expected", "found"),
    [
        ([GOOD, FORM], Passes(), []),
        ([GOOD, Check("order", "FAILURE", "no order")], Passes(), ["FAILURE order: no order"]),
        ([GOOD, Check("order", "WARNING", "no order")], Passes(), ["WARNING order: no order"]),
        ([GOOD, Check("order", "SKIPPED", "no order")], Passes(), ["SKIPPED order: no order"]),
        ([GOOD, Check("order", "INFO", "there is order")], Passes(), []),
        ([GOOD, Check("wire-schema-valid", "FAILURE", "odd")], Passes(), ["FAILURE wire-schema-valid: odd"]),
        ([Check("session", "INFO", "no session"), FORM], Passes(), ["nothing was found to be right"]),
        ([], Passes(), ["nothing was found to be right"]),
        ([GOOD, Check("sampling", "FAILURE", "no sampling")], IMPOSSIBLE, []),
        (
            [GOOD, Check("sampling", "SUCCESS", "sampling")],
            IMPOSSIBLE,
            ["sampling is said to be impossible, and succeeded"],
        ),
        ([GOOD], IMPOSSIBLE, ["sampling is said to be impossible, and was not even tried"]),
        ([Check("audio", "FAILURE", "no audio"), FORM], DoesNotApply("mute"), []),
        ([Check("wire-schema-valid", "FAILURE", "odd")], DoesNotApply("mute"), ["FAILURE wire-schema-valid: odd"]),
    ],
)
def test_checks(checks: list[Check], expected: Expected, found: list[str]) -> None:
    assert faults(checks, [], expected) == found


@pytest.mark.parametrize(
    ("exchanges", "refused", "is_good"),
    [
        ([exchange('"result": {}')], False, True),
        ([exchange('"result": {"isError": false}')], False, True),
        ([exchange('"result": {"isError": true}')], False, False),
        ([exchange('"result": {"isError": true}')], True, True),
        ([exchange('"result": {}')], True, False),
        ([exchange('"error": {"code": -32602}')], False, False),
        ([exchange('"error": {"code": -32602}')], True, False),
        ([exchange('"result": {}', id_=2)], False, False),
        ([exchange('"result": {}', meant="another")], False, False),
        ([exchange('"result": {}'), exchange('"error": {}')], False, False),
        ([], False, False),
    ],
)
def test_what_has_to_be_reached_has_to_answer(exchanges: list[Any], refused: bool, is_good: bool) -> None:
    found = faults([GOOD], exchanges, Passes(reaching="test_tool", refused=refused))
    assert (found == []) is is_good, found
    assert all("test_tool" in fault for fault in found)
