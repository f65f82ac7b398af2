"""Proof that a process is gone, which alone makes "absent" believable of a call in one of its threads."""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.engine.worker import liveness
from holdfast.engine.worker.liveness import PROCESS, is_gone, this_process
from holdfast.model.worker import Worker, WorkerState

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is ever proven")

BOOT = "this boot"


def worker(process: Any, **options: Any) -> Worker:  # noqa: ANN401
    made = Worker(
        id="w",
        label="worker",
        state=WorkerState.DEAD,
        lease=30.0,
        claims=0,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        seen_at=datetime(2026, 1, 1, tzinfo=UTC),
        details={} if process is None else {PROCESS: process},
    )
    return replace(made, **options)


def gone(*workers: Worker, one_machine: bool = True, boot: str = BOOT) -> bool:
    return is_gone("w", workers, boot, one_machine=one_machine)


def test_a_process_that_runs_is_not_gone_whatever_became_of_its_lease() -> None:
    assert not gone(worker(this_process(BOOT)))


def test_a_process_that_has_ended_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = {**this_process(BOOT), "pid": child.pid, "started": liveness._started(child.pid)}
        assert process["started"] is not None
        assert not gone(worker(process))
        child.communicate(b"\n")
    assert gone(worker(process))


def test_another_process_under_the_same_number_is_another_process() -> None:
    own = this_process(BOOT)
    assert gone(worker({**own, "started": own["started"] - 1}))


def test_a_machine_that_was_booted_since_has_none_of_its_processes() -> None:
    """If there is only one machine: another one has another boot too."""
    process = {**this_process(BOOT), "boot": "another boot"}
    assert gone(worker(process), one_machine=True)
    assert not gone(worker(process), one_machine=False)


@pytest.mark.parametrize(
    "process",
    [
        None,
        "a text",
        {},
        {"boot": BOOT},
        {"boot": BOOT, "namespace": "pid:[1]", "pid": 1, "started": None},
        {"boot": BOOT, "namespace": "another container", "pid": 2**22 + 1, "started": 1},
        {"boot": BOOT, "namespace": None, "pid": 2**22 + 1, "started": 1},
    ],
    ids=["none", "text", "empty", "too little", "no start", "container", "no namespace"],
)
def test_what_is_not_known_is_not_proven(process: Any) -> None:  # noqa: ANN401
    assert not gone(worker(process))


def test_an_unknown_worker_is_not_proven_to_be_gone() -> None:
    assert not gone()
    assert not gone(worker(this_process(BOOT), id="another"))
