"""Running the scenarios of the conformance suites."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.mcp.conformance.programs import COMING, RELEASED, Package, node

PATIENCE: Final = 120.0
"""Seconds for a scenario, on a busy machine; the suites have shorter limits of their own for single requests."""

LISTED: Final = re.compile(r"^  - (?P<name>\S+) \[(?P<revisions>\S+)\]$", re.MULTILINE)
REVISIONS: Final = ("2025-11-25", "2026-07-28")
"""The last revision of each era. The suites have a set of requirements for these two."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario of a suite, at one revision of the protocol."""

    suite: Package
    name: str
    revision: str | None
    """Empty: the suite, or the extension that the scenario is about, has only one way to be run."""

    def __str__(self) -> str:
        return "-".join(part for part in (self.name, self.suite.version, self.revision) if part)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a scenario looked at."""

    id: str
    status: str
    """SUCCESS, FAILURE, WARNING, SKIPPED or INFO."""
    words: str

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Check:
        return cls(data["id"], data["status"], data.get("errorMessage") or data["description"])

    def __str__(self) -> str:
        return f"{self.status} {self.id}: {self.words}"


def scenarios(home: Path) -> Iterator[Scenario]:
    """Ask the suites what they have."""
    for name, _ in _listed(RELEASED, home):
        yield Scenario(RELEASED, name, None)
    for name, revisions in _listed(COMING, home):
        known: list[str | None] = [revision for revision in REVISIONS if revision in revisions]
        for revision in known or [None]:
            yield Scenario(COMING, name, revision)


def run(scenario: Scenario, url: str, folder: Path) -> list[Check]:
    """Run a scenario against a server."""
    arguments = ["server", "--url", url, "--scenario", scenario.name, "--output-dir", str(folder)]
    if scenario.revision is not None:
        arguments += ["--spec-version", scenario.revision]
    ended = node(scenario.suite, *arguments, home=folder, timeout=PATIENCE)
    results = list(folder.glob("*/checks.json"))
    assert len(results) == 1, f"{scenario} left no result, exit code {ended.returncode}:\n{ended.stdout}{ended.stderr}"
    return [Check.read(data) for data in json.loads(results[0].read_text(encoding="utf-8"))]


def _listed(suite: Package, home: Path) -> list[tuple[str, list[str]]]:
    ended = node(suite, "list", "--server", home=home, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    found = [(match["name"], match["revisions"].split(",")) for match in LISTED.finditer(ended.stdout)]
    # A line that is not understood would be a scenario that is never run.
    assert len(found) == ended.stdout.count("\n  - "), ended.stdout
    return found
