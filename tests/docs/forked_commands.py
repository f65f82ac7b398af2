"""Short commands of a page, forked instead of started: Python takes most of a second to import the command.

The first ``holdfast`` on a page's PATH is a script. It starts what stays or may be killed (a worker, a server) as a
reader's shell does. Anything else it sends to the process of the tests, with its open files, which has it forked
(`tests/forked.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

from tests.forked import start_holdfast

STARTED: Final = ("demo", "init", "mcp", "run", "serve", "worker")
"""Commands that are processes of their own here too: they stay, get signals, or start others."""

_SCRIPT = """\
#!/bin/sh
PATH={path}
case "$1" in
    {started}) exec {holdfast} "$@" ;;
    *) exec {python} -I -S {client} {address} "$@" ;;
esac
"""

_CLIENT = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect(sys.argv[1])
    call = {"pid": os.getpid(), "folder": os.getcwd(), "words": sys.argv[2:], "environment": dict(os.environ)}
    line.sendall(json.dumps(call).encode() + b"\\n")
    with line.makefile("rb") as answer:
        code = int(answer.read())
os.kill(os.getpid(), -code) if code < 0 else sys.exit(code)
"""


class ForkedCommands:
    """Until ``close()``, the commands of one page whose PATH begins with ``folder``."""

    def __init__(self, path: str, longest: float) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-page-"))  # short: a socket's address has 100 letters
        self._longest = longest
        address, client, script = (self.folder / name for name in ("socket", "client.py", "holdfast"))
        client.write_text(_CLIENT, encoding="utf-8")
        words = {
            "path": path,  # without this script: the command looks itself up, to say how to call it
            "holdfast": str(Path(sys.executable).parent / "holdfast"),
            "python": sys.executable,
            "client": str(client),
            "address": str(address),
        }
        quoted = {name: shlex.quote(word) for name, word in words.items()}
        script.write_text(_SCRIPT.format(**quoted, started=" | ".join(STARTED)), encoding="utf-8")
        script.chmod(0o755)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(address))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self._thread.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                line, _ = self._listener.accept()
                threading.Thread(target=_answer, args=(line, self._longest), daemon=True).start()


def available() -> bool:
    """Say whether the files of another process can be opened here, as on Linux."""
    return os.path.exists(f"/proc/{os.getpid()}/fd/0")  # noqa: PTH110 - a pipe is not a path


def _answer(line: socket.socket, longest: float) -> None:
    """Run one command, and answer with its exit code."""
    with line, line.makefile("rb") as said:
        call = json.loads(said.readline())
        process = start_holdfast(
            *call["words"],
            folder=Path(call["folder"]),
            environment=call["environment"],
            files=[f"/proc/{call['pid']}/fd/{number}" for number in range(3)],
        )
        process.join(longest)
        if process.exitcode is None:
            process.kill()
            process.join()
        with contextlib.suppress(OSError):  # the client has ended
            line.sendall(str(process.exitcode).encode())
        process.close()
