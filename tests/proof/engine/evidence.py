"""An append-only log that all processes of a test write to: what they did to the world, and what was acknowledged.

One line, one ``write`` on a file opened for appending: a SIGKILL tears none, and lines stand in the order in which they
happened. The lines:

    ran TASK ROUND KEY                 a step's function was entered
    durable TASK ROUND KEY DIGEST      the store acknowledged the step as completed, with this output
    submitted TASK                     the store acknowledged the submission
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from holdfast import StateStore, Step, StepState
from holdfast.model.commit import Commit, Verdict
from holdfast.model.operations import WriteStep

StepId: TypeAlias = tuple[str, int, str]
"""Task, round, key."""


class Line(NamedTuple):
    pid: int
    what: str
    words: tuple[str, ...]

    @property
    def step(self) -> StepId:
        task_id, round_, key = self.words[:3]
        return task_id, int(round_), key


class Evidence:
    """The log of one test."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # Writing, in the processes under test

    def ran(self, task_id: str, round_: int, key: str) -> None:
        self._write("ran", task_id, round_, key)

    def submitted(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            self._write("submitted", task_id)

    def acknowledged(self, commits: Sequence[Commit], verdicts: Sequence[Verdict]) -> None:
        """Note the completed steps among Commits that the store just answered."""
        for commit, verdict in zip(commits, verdicts, strict=True):
            if not verdict.applied:
                continue
            for operation in commit.operations:
                if isinstance(operation, WriteStep) and operation.step.state is StepState.COMPLETED:
                    step = operation.step
                    self._write("durable", commit.task_id, step.round, step.key, digest(step))

    def _write(self, what: str, *words: object) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(file, " ".join(map(str, (os.getpid(), what, *words, "\n"))).encode())
        finally:
            os.close(file)

    # Reading

    def lines(self, what: str | None = None) -> list[Line]:
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # of a line that is just being written, a reader may see a part
        split = [line.split() for line in whole.splitlines()]
        return [Line(int(pid), kind, tuple(words)) for pid, kind, *words in split if what in {None, kind}]

    def runs(self) -> Counter[StepId]:
        """How often each step's function was entered."""
        return Counter(line.step for line in self.lines("ran"))

    def check_nothing_ran_again(self) -> None:
        """No step ran after it was acknowledged, and none was acknowledged twice."""
        durable: set[StepId] = set()
        for line in self.lines():
            if line.what == "ran":
                assert line.step not in durable, f"{line.step} ran again in {line.pid}, though it was acknowledged"
            elif line.what == "durable":
                assert line.step not in durable, f"{line.step} was completed a second time, by {line.pid}"
                durable.add(line.step)


def note_acknowledgements(store: StateStore, evidence: Evidence) -> None:
    """Have a store that is not in use yet note every completed step it acknowledges."""
    commit = store.commit

    async def commit_and_note(commits: Sequence[Commit]) -> list[Verdict]:
        verdicts = await commit(commits)
        evidence.acknowledged(commits, verdicts)
        return verdicts

    vars(store)["commit"] = commit_and_note


def digest(step: Step) -> str:
    return hashlib.sha256(step.output or b"").hexdigest()[:16]
