"""Processes that measure something and print the result."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LONGEST = 900.0
"""The timeout of a process, in seconds."""


class SubjectFailed(Exception):
    """A process ended without an answer; the message is its error output."""


def subject(name: str, url: str) -> list[str | Path]:
    """Return the command that measures one thing of ours."""
    return [sys.executable, "-m", "benchmarks.subject", name, url]


def answer_of(command: Sequence[str | Path], sizes: Mapping[str, object]) -> Any:  # noqa: ANN401 - what it measured
    """Run it, and return the JSON value of its last line."""
    done = subprocess.run(  # noqa: S603 - our own programs
        [*command, json.dumps(sizes)], cwd=ROOT, capture_output=True, text=True, timeout=LONGEST, check=False
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise SubjectFailed(f"{command[-2]} failed:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])


def measure(name: str, url: str, **sizes: object) -> list[float]:
    """Measure one thing of ours; see `benchmarks.subject` for the result."""
    answer: list[float] = answer_of(subject(name, url), sizes)
    return answer


def latencies(url: str, samples: int) -> list[float]:
    """Submit tasks in one process and start them in another; return the milliseconds in between, sorted."""
    sizes = json.dumps({"samples": samples})
    worker = subprocess.Popen(  # noqa: S603 - our own program
        [*subject("latency_worker", url), sizes], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with worker:
        try:
            assert worker.stdout is not None  # noqa: S101 - a pipe
            if worker.stdout.readline().strip() != "ready":
                raise SubjectFailed("the worker did not start")
            command = [*subject("latency_submitter", url), sizes]
            subprocess.run(command, cwd=ROOT, timeout=LONGEST, check=True)  # noqa: S603 - our own program
            printed, _ = worker.communicate(timeout=30)
        finally:
            worker.kill()
    return sorted(map(float, printed.split()))
