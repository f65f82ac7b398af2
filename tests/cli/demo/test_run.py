"""`holdfast demo` as a process: the kill, the take-over, the doubt and the approval are real, and nothing ran twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import EffectState, Holdfast
from holdfast.cli.demo.application import STEPS
from holdfast.cli.demo.ledger import What, read
from holdfast.model.approval import ApprovalState
from holdfast.model.transitions import TaskState
from tests.cli.demo.support import COMMAND, PATIENCE, environment
from tests.forked import run_holdfast
from tests.postgres_server import PostgresServer

ONCE = {"backup_database", "migrate_schema", "apply_changes", "switch_traffic"}


@dataclass(frozen=True)
class Run:
    """A demo that is over, beside a task of another user."""

    url: str
    facts: dict[str, Any]
    kept: Path
    neighbour: str


async def test_the_demo_on_sqlite(tmp_path: Path) -> None:
    await check_demo(tmp_path, f"sqlite:///{tmp_path}/shared.db")


async def test_the_demo_on_postgresql(tmp_path: Path, postgres18: PostgresServer) -> None:
    url = postgres18.create_database()
    await check_demo(tmp_path, url)
    postgres18.drop_database(url)


async def check_demo(folder: Path, url: str) -> None:
    async with Holdfast(url) as hold:
        neighbour = (await hold.submit("deploy", "not the demo's", queue="default")).id
    answer = demo(folder, "--json", "--database-url", url, "--keep", str(folder / "kept"))
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr
    run = Run(url, json.loads(answer.stdout), folder / "kept", neighbour)
    check_facts(run.facts)
    check_ledger(run)
    check_workers(run)
    async with Holdfast(url) as hold:
        await check_store(run, hold)
        await check_neighbour(run, hold)


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment(folder),
        timeout=PATIENCE,
    )


def check_facts(facts: dict[str, Any]) -> None:
    assert (facts["state"], facts["result"]) == ("completed", "billing 1.2 is live.")
    assert (facts["kills"], facts["duplicates"]) == (1, 0)
    assert facts["takeovers"] >= 1
    assert facts["complaints"] == []
    assert facts["workers"]["killed"] != facts["workers"]["finisher"]
    (approval,) = facts["approvals"]
    assert approval["question"] == 'May the agent call switch_traffic(service="billing", version="1.2")?'
    assert (approval["state"], approval["decided_by"]) == ("approved", "the demo's script")
    (doubt,) = facts["doubts"]
    assert (doubt["outcome"], doubt["settled_by"]) == ("happened", "reconcile")
    effects = {effect["step"]: effect for effect in facts["effects"]}
    assert tuple(effects) == STEPS
    assert doubt["effect_id"] == effects["apply_changes"]["effect_id"]
    assert [effect["count_in_ledger"] for effect in effects.values()] == [1] * 10
    assert [effect["workers"] for effect in effects.values()] == [["worker-1"]] * 8 + [["worker-2"]] * 2
    assert {name for name, effect in effects.items() if effect["state"] == "done"} == ONCE
    assert len({effect["effect_id"] for effect in effects.values()}) == 10
    assert facts["budget"]["steps"] == {"limit": 30, "spent": 23}
    assert 0 < facts["budget"]["llm_tokens"]["spent"] < facts["budget"]["llm_tokens"]["limit"]
    assert facts["seconds"] > 0


def check_ledger(run: Run) -> None:
    workers = run.facts["workers"]
    entries = read(run.kept / "ledger.txt").entries
    did = [(entry.step, entry.pid) for entry in entries if entry.what is What.DID]
    assert did == [(name, workers["killed"] if name in STEPS[:8] else workers["finisher"]) for name in STEPS]
    (asked,) = [entry for entry in entries if entry.what is What.ASKED]
    assert (asked.pid, asked.effect_id) == (workers["finisher"], run.facts["doubts"][0]["effect_id"])


async def check_store(run: Run, hold: Holdfast) -> None:
    task_id = run.facts["task_id"]
    moves = [move.reason for move in await hold.store.history(task_id)]
    assert [moves[0], moves[-1]] == ["submitted", "work done"]
    assert "its worker died" in moves
    state = await hold.state(task_id)
    assert len(state.plan) == 10
    assert state.completed_steps == state.plan
    effects = await hold.store.effects(task_id=task_id)
    assert {effect.state for effect in effects} == {EffectState.DONE}
    (recorded,) = [effect for effect in effects if effect.result is not None]
    assert recorded.step_key == "apply_changes:9.0"
    assert recorded.fence < (await hold.handle(task_id).task()).fence
    (approval,) = await hold.approvals(task_id, states=[ApprovalState.APPROVED])
    assert approval.consumed_by == run.facts["effects"][-1]["effect_id"]


async def check_neighbour(run: Run, hold: Holdfast) -> None:
    neighbour = await hold.handle(run.neighbour).task()
    assert (neighbour.state, neighbour.fence, neighbour.owner) == (TaskState.PENDING, 0, None)
    assert sum((await hold.store.count()).values()) == 2


def check_workers(run: Run) -> None:
    """They are gone, and had nothing to complain about but a machine that gave them no time."""
    for pid in run.facts["workers"].values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIG_DFL)
    said = [line for number in (1, 2) for line in (run.kept / f"worker-{number}.txt").read_text().splitlines()]
    assert [line for line in said if not re.search(r"the event loop of worker worker-\d was blocked for", line)] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--keep", "full"), "not empty; name a new folder"),
        (("--svg", "nowhere/demo.svg"), "make it first"),
        (("--database-url", "memory://"), "two worker processes"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    answer = run_holdfast("demo", *options, folder=tmp_path, environment=environment(tmp_path), timeout=PATIENCE)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert words in answer.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "mine.txt"]
