"""``holdfast demo``: a worker process is really killed in step 8 of 10, and another one finishes the deployment.

Everything printed at the end is read back from the store and from the ledger the workers wrote. The kill comes in the
middle of a step; a kill between an effect and its record is what the effect protocol is for, and not shown here.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from holdfast.cli.demo_worker import FATAL_STEP, STEPS
from holdfast.model.errors import InvalidValue
from holdfast.model.ids import new_id
from holdfast.model.task import NewTask
from holdfast.model.transitions import TaskState
from holdfast.store import StateStore, open_store

_PATIENCE = 30.0


def run_demo(database_url: str | None, *, as_json: bool) -> int:
    """Run the demo; the exit code says whether the task was finished with nothing done twice."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = database_url or f"sqlite:///{folder}/demo.db"
        facts = asyncio.run(_demo(url, Path(folder) / "ledger.txt", Console(stderr=True, quiet=as_json)))
    if as_json:
        sys.stdout.write(json.dumps(facts, indent=1) + "\n")
    return 0 if facts["state"] == TaskState.COMPLETED and not facts["done_twice"] else 1


async def _demo(url: str, ledger: Path, console: Console) -> dict[str, Any]:
    async with open_store(url) as store:
        if not store.capabilities.multi_process:
            raise InvalidValue("the demo runs two worker processes; give it a sqlite: or postgresql: URL")
        task = NewTask(name=f"demo-{new_id()}", user_input="Deploy billing to production")  # a name nobody else claims
        (submitted,) = await store.submit([task])
        console.print(f"[bold]Submitted[/] task {submitted.task_id}: ten steps, stored in {url.split(':', 1)[0]}")

        first = _start_worker(url, task.name, ledger)
        console.print(f"Worker [cyan]{first.pid}[/] claims it and begins")
        await _until(ledger, f"began {FATAL_STEP}", first)
        first.kill()
        first.wait()
        done = [step.key for step in await store.steps(submitted.task_id)]
        console.print(
            f"[bold red]SIGKILL[/] to worker {first.pid} in step 8, [italic]{FATAL_STEP}[/]; "
            f"the journal holds {len(done)} completed steps"
        )

        second = _start_worker(url, task.name, ledger)
        console.print(f"Worker [cyan]{second.pid}[/] starts; it takes the task over when the dead one's lease is up")
        code = await asyncio.to_thread(second.wait, _PATIENCE)
        if code != 0:
            raise RuntimeError(f"the second worker ended with code {code}")
        facts = await _facts(store, submitted.task_id, ledger)
        facts["kills"] = [first.returncode, second.returncode].count(-signal.SIGKILL)
        await _show(store, facts, console)
        return facts


def _start_worker(url: str, name: str, ledger: Path) -> subprocess.Popen[bytes]:
    # The URL may hold a password: it travels in the environment, not where `ps` shows it.
    environment = os.environ | {"HOLDFAST_DATABASE_URL": url}
    command = [sys.executable, "-m", "holdfast.cli.demo_worker", name, str(ledger)]
    return subprocess.Popen(command, env=environment)  # noqa: S603


async def _until(ledger: Path, line: str, worker: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + _PATIENCE
    while line not in _lines(ledger):
        if worker.poll() is not None or time.monotonic() > give_up:
            worker.kill()
            raise RuntimeError(f"the worker never got to: {line}")
        await asyncio.sleep(0.01)


def _lines(ledger: Path) -> Counter[str]:
    """Count the lines the workers wrote; none as long as there is no ledger."""
    return Counter(ledger.read_text(encoding="utf-8").splitlines()) if ledger.exists() else Counter()


async def _facts(store: StateStore, task_id: str, ledger: Path) -> dict[str, Any]:
    task = await store.get(task_id)
    if task is None:
        raise RuntimeError(f"task {task_id} is gone")
    lines = _lines(ledger)
    did = {name: lines[f"did {name}"] for name in STEPS}
    return {
        "task_id": task.id,
        "state": task.state,
        "result": task.result,
        "takeovers": task.deaths,
        "fence": task.fence,
        "steps": {step.key: step.fence for step in await store.steps(task_id)},
        "effects": did,
        "done_twice": [name for name, count in did.items() if count > 1],
    }


async def _show(store: StateStore, facts: dict[str, Any], console: Console) -> None:
    history = Table("from", "to", "why", "fence", title="What the store logged", title_justify="left")
    for move in await store.history(facts["task_id"]):
        history.add_row(move.from_state or "", move.to_state, move.reason, str(move.fence))
    console.print(history)

    journal = Table("step", "journaled under fence", "times done, by the ledger", title_justify="left")
    journal.title = "What really happened"
    for name, fence in facts["steps"].items():
        journal.add_row(name, str(fence), str(facts["effects"][name]))
    console.print(journal)
    console.print(
        f"[bold green]{facts['state']}[/]: {facts['result']}. "
        f"Kills: {facts['kills']}, take-overs: {facts['takeovers']}, steps done twice: {len(facts['done_twice'])}."
    )
