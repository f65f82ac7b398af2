"""SIGKILL in the middle of commits: everything acknowledged is there, and nothing is torn."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast import open_store
from tests.store import killed_process


@pytest.mark.parametrize("kind", ["sqlite", "json"])
async def test_no_acknowledged_commit_is_lost(kind: str, seeds: Sequence[int], tmp_path: Path) -> None:
    for seed in seeds:
        url = f"{kind}:///{tmp_path}/{kind}-{seed}"
        acknowledged = killed_after(random.Random(seed).uniform(0.005, 0.1), url)
        async with open_store(url) as store:
            steps = await store.steps("victim")
            task = await store.get("victim")
        assert task is not None
        assert len(steps) >= acknowledged > 0
        assert [step.position for step in steps] == list(range(1, len(steps) + 1))
        assert all(step.output == b'"%d"' % step.position for step in steps)
        assert task.sequence == len(steps)


def killed_after(seconds: float, url: str) -> int:
    """Let the process commit for a while, kill it, and return the last commit it saw acknowledged."""
    process = subprocess.Popen([sys.executable, killed_process.__file__, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        first = process.stdout.readline()
        time.sleep(seconds)
        process.kill()
        rest = process.stdout.read()
    assert process.returncode == -9  # the fault fired
    # The last line may have been cut by the kill itself.
    output = first + rest
    return len(output.splitlines()) - (not output.endswith("\n"))
