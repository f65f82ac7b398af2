"""The endpoint: a chat server as a process of its own, which is never killed, and which records what has to be paid."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from holdfast.agent.transcript import model_key
from holdfast.engine.steps.call import effect_id
from holdfast.model.message import Usage
from holdfast.testing.chat_server import Answer, Exchange, read_log


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A chat server that runs. It chooses its answers by the conversation it is sent, and so forgets nothing."""

    base_url: str
    script: Sequence[Answer]

    @classmethod
    @contextmanager
    def start(cls, script: Sequence[Answer], folder: Path) -> Iterator[Self]:
        """Start the process and wait until it listens; it ends with the block, or with its parent process."""
        path = folder / "script.json"
        path.write_bytes(msgspec.json.encode(list(script)))
        command = [sys.executable, "-m", "holdfast.testing.chat_server", "--script", str(path), "--until-stdin-closes"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                base_url = process.stdout.readline().strip()
                assert base_url, f"the endpoint did not start: exit code {process.wait()}"
                yield cls(base_url, script)
            finally:
                process.kill()

    def asked(self, task_id: str) -> list[Exchange]:
        """Return what the agent of a task asked, each try by itself."""
        own = [effect_id(task_id, 1, model_key(turn)) for turn in range(1, len(self.script) + 1)]
        return read_log(self.base_url, keys=own)

    def usage(self, exchange: Exchange) -> Usage:
        """Return what the server said that it took."""
        answers = [answer for answer in self.script if not answer.is_failure]
        answer = answers[exchange.turn]
        return Usage(input_tokens=10, output_tokens=len(answer.text.split()) + len(answer.calls))
