"""Every example runs, as a person would run it, and prints what it promises."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PRINTED = {
    "disk_space": ["AI: The disk was full of logs. I freed 20GB.", "  clean_logs:2.0   completed"],
    "deploy": [
        '  May the agent call apply_changes(service="billing", version="1.2")?',
        "billing runs 1.2.",
        "  rolled back billing 1.1",
        "failed: the health check fails: version 1.1 is known to be bad",
    ],
    "approvals": [
        "Which customer? The task is waiting and holds no worker.",
        "I have written to Acme.",
        "sent: ['acme@example.com: Your order is on its way.']",
        "known: [('Which customer?', 'Acme', 'human:ann')]",
    ],
    "research_team": ["SQLite for one machine, PostgreSQL for many.", "  steps: 10 of 40, the researchers' included"],
    "loop_by_hand": [
        "Executing tool: check_disk",
        "Executing tool: clean_logs",
        "AI: The disk was full of logs. I freed 20GB.",
        "known: ['check_disk', 'clean_logs']",
        "checkpoints: 2",
        "steps of the budget: 3 of 20",
    ],
    "loop_with_steps": [
        "Executing tool: check_disk",
        "Executing tool: clean_logs",
        "AI: The disk was full of logs. I freed 20GB.",
        "known: ['check_disk', 'clean_logs']",
        "steps of the budget: 3",
    ],
    "forked": [
        "first:  Add an index.",
        "second: Cache the result: the database is read-only.",
        "measured 1 time",
    ],
    "course/retry": [
        "by hand: ok [1, 2]",
        "by hand: failed after 3 retries: no answer",
        "as a policy: pauses of [1, 2, 4]",
        "as a policy: ok",
        "as a policy: 4 tries",
    ],
    "course/idempotency": ["by hand: Freed 20GB.", "with a key: Freed 20GB.", "done: ['by hand', 'with a key']"],
    "course/resume": [
        "first process: step 7",
        "first process: step 8",
        "second process: step 8",
        "second process: step 9",
        "billing is deployed",
        "  running -> pending: its worker died",
    ],
    "course/deadlines": [
        "the step was stopped: holdfast.DeadlineExceeded",
        "the run was stopped: holdfast.DeadlineExceeded",
    ],
    "course/checkpoints": [
        "every_step: 3",
        "every_iteration: 2",
        "on_state_change: 1",
        "another trigger saves None",
        "rotated away, all but 2",
        "too old: the world may have changed meanwhile",
        "accepted: pending, 1 fact known",
        "It is up.",
    ],
    "course/context_slice": ["  | replicas: 3", "--- 1 of 2 artifacts, 2 of 100 facts; the freshest is 'probe 100'"],
    "course/shared_state": [
        "agent A wrote to state://agents/ops/tasks",
        "agent B reads: pending ['look', 'clean'] done: ['look']",
        "agent B ends it: completed",
    ],
    "course/two_workers": ["the hotfix did not wait: True", "tasks for each worker: [2, 2]"],
    "course/state_machine": [
        "completed: {'attempts': 1, 'result': 'a report with sources'}",
        "  review -> pending back to the queue",
        "  review -> completed verified",
    ],
    "course/review": [
        "a report, because: it names no sources",
        "  review -> pending: rejected: it names no sources",
        "given up after 2 attempts",
        "  failed -> pending: user",
    ],
    "course/memory": [
        "now: done",
        "before: ['in_progress', 'done']",
        "Ada owns billing.",
        "in conflict: ['Ada', 'Grace']",
        "settled: ['Grace']",
    ],
}


DIE = '__import__("os")._exit(7)'


def environment() -> dict[str, str]:
    mine = ("HOLDFAST_", "OPENAI_")
    return {name: value for name, value in os.environ.items() if not name.startswith(mine)}


def run(name: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_all_of_them_are_run_and_listed() -> None:
    there = {str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.py")}
    assert there == set(PRINTED)
    listed = re.findall(r"^\| `([\w/]+)\.py` ", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(listed) == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_it_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    printed = run(name, tmp_path)
    places = [printed.index(line) for line in PRINTED[name]]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["loop_by_hand", "loop_with_steps"])
def test_a_loop_that_stopped_in_the_middle_goes_on_there(name: str, tmp_path: Path) -> None:
    """The second tool ends the process; the next run does not begin with the first tool again."""
    deaths = [('lambda: "Logs cleaned. Freed 20GB."', f"(lambda: {DIE})")]
    if name == "loop_by_hand":  # before that it dies when the task is stored, and its budget and its goal are not
        deaths.insert(0, ("    if task.version == 0:", f"    {DIE}\n    if task.version == 0:"))
    whole = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").replace("hold.worker()", "hold.worker(lease=1)")
    for alive, dead in deaths:
        assert alive in whole
        (tmp_path / "dying.py").write_text(whole.replace(alive, dead), encoding="utf-8")
        first = subprocess.run(
            [sys.executable, "dying.py"], cwd=tmp_path, env=environment(), capture_output=True, check=False, timeout=120
        )
        assert first.returncode == 7, first.stderr
    printed = run(name, tmp_path)
    assert printed.count("AI: The disk was full of logs. I freed 20GB.") == 1
    assert "known: ['check_disk', 'clean_logs']" in printed
    if name == "loop_by_hand":
        assert printed[0] == "Executing tool: clean_logs", "the conversation was saved after the first iteration"
        assert "steps of the budget: 4 of 20" in printed, "the limit is there, and what the crash cost is counted"
    else:
        assert "steps of the budget: 3" in printed, "no step is counted twice"


def test_an_example_that_was_killed_goes_on(tmp_path: Path) -> None:
    """Killed as soon as the first answer is there; the second run must not ask for it again."""
    slow = (EXAMPLES / "disk_space.py").read_text(encoding="utf-8")
    slow = slow.replace(
        'return "Disk Usage', 'print("looking", flush=True); __import__("time").sleep(60); return "Disk Usage'
    )
    slow = slow.replace("hold.worker()", "hold.worker(lease=1)")
    (tmp_path / "slow.py").write_text(slow, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "slow.py"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "looking\n"
        finally:
            first.kill()
    assert first.returncode == -signal.SIGKILL
    began = time.monotonic()
    printed = run("disk_space", tmp_path)
    assert printed[0] == "AI: The disk was full of logs. I freed 20GB."
    assert time.monotonic() - began < 100
