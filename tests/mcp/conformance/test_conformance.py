"""The public conformance suites of MCP against `holdfast serve`, for `make test-mcp-conformance`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.mcp.conformance import suites
from tests.mcp.conformance.expectations import EXPECTED
from tests.mcp.conformance.judging import faults
from tests.mcp.conformance.programs import COMING, RELEASED, Package, skip_unless_wanted
from tests.mcp.conformance.proxy import Proxy
from tests.mcp.conformance.suites import Scenario

skip_unless_wanted()

with tempfile.TemporaryDirectory() as home:
    SCENARIOS = list(suites.scenarios(Path(home)))


@pytest.mark.usefixtures("server", "worker")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_scenario(scenario: Scenario, proxy: Proxy, proxied: str, tmp_path: Path) -> None:
    expected = EXPECTED.get(scenario.name)
    assert expected is not None, f"{scenario} is new: say in expectations.py what is expected of it"
    proxy.exchanges.clear()
    checks = suites.run(scenario, f"{proxied}/mcp", tmp_path)
    assert faults(checks, proxy.exchanges, expected) == []


def test_every_expected_scenario_exists_in_a_suite() -> None:
    assert {scenario.suite.version for scenario in SCENARIOS} == {"0.1.16", "0.2.0-alpha.12"}
    assert {scenario.revision for scenario in SCENARIOS} == {None, "2025-11-25", "2026-07-28"}
    assert sorted(EXPECTED.keys() - {scenario.name for scenario in SCENARIOS}) == []


@pytest.mark.parametrize("suite", [RELEASED, COMING], ids=lambda suite: suite.version)
def test_the_scenario_of_subscriptions_subscribes(suite: Package, proxy: Proxy, proxied: str, tmp_path: Path) -> None:
    """What comes of a subscription is tested elsewhere; the suites do not wait for it."""
    proxy.exchanges.clear()
    suites.run(Scenario(suite, "resources-subscribe", None), f"{proxied}/mcp", tmp_path)
    [asked] = [one for one in proxy.exchanges if one.asked.get("method") == "resources/subscribe"]
    assert asked.asked["params"]["uri"] == "task://queue"
    assert asked.answer is not None
    assert asked.answer["result"] == {}
