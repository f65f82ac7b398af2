"""The transport to a server that is started: one JSON message a line, over its stdin and stdout.

The SDK has one too. It stops reading for good at the first byte that is not UTF-8, and goes on writing calls. It keeps
a line of any length. It does not report that a server has ended, and does not end its children then.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import anyio
from anyio.abc import Process, TaskGroup
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.os.win32 import utilities as windows
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from holdfast.mcp.client.dispatch import sending_of
from holdfast.mcp.client.health import Health
from holdfast.mcp.client.servers import Command
from holdfast.redaction import make_logger, redacted

LONGEST_LINE = 32 * 1024 * 1024
"""Bytes of one line, and so of one answer."""

GRACE = 2.0
"""Seconds for a server to end after its stdin was closed; as many again after SIGTERM, and for a kill to be seen."""

_POLL = 0.01
_SHOWN = 80
_BROKEN = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)
_log = make_logger(__name__)


@asynccontextmanager
async def pipe_to(server: Command, health: Health) -> AsyncIterator[tuple[Any, Any]]:
    """Start a server, and yield the SDK's streams. Leaving the block ends it, with all of its process group."""
    log = sys.__stderr__ or _nowhere()
    try:
        process = await _start(server, log)
    finally:
        if log is not sys.__stderr__:
            log.close()
    # No await before the try: a cancellation there would leave the process running.
    writer, reader = anyio.create_memory_object_stream[SessionMessage](0)
    pipe = _Pipe(server.label, process, writer, health)
    health.has_exited = pipe.has_exited
    async with anyio.create_task_group() as group:
        group.start_soon(pipe.read)
        try:
            yield reader, pipe
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process, reader, group)


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


async def _start(server: Command, log: TextIO) -> Process:
    environment = get_default_environment() | dict(server.environment)
    words = list(server.words)
    if sys.platform == "win32":  # pragma: no cover
        name = windows.get_windows_executable_command(words[0])
        started: Any = await windows.create_windows_process(name, words[1:], environment, log, server.folder)
        return started  # type: ignore[no-any-return] # it has every part of a Process that is used here
    return await anyio.open_process(words, env=environment, stderr=log, cwd=server.folder, start_new_session=True)


async def _end(process: Process, reader: MemoryObjectReceiveStream[SessionMessage], group: TaskGroup) -> None:
    """Close its stdin, wait, then end all of its process group: a server that ended may have left children."""
    reader.close()  # what it still writes is read and dropped: a full pipe would keep it from ending
    await _close(process.stdin)
    try:
        await _has_ended(process)
        await _terminate(process)
    except asyncio.CancelledError:
        # The loop ends, and anyio's shield does not stop that: there is no time left to wait.
        _kill(process)
        raise
    finally:
        if not await _has_ended(process):
            _log.warning("the MCP server with process id %d cannot be ended", process.pid)
        await _close(process.stdout)
        # asyncio keeps it open while a descendant that left its group holds an end of a pipe. It has no public name.
        transport = getattr(getattr(process, "_process", None), "_transport", None)
        if callable(close := getattr(transport, "close", None)):
            with suppress(PermissionError):
                close()
        await checkpoint()
        group.cancel_scope.cancel()


async def _terminate(process: Process) -> None:
    if sys.platform == "win32":  # pragma: no cover
        await windows.terminate_windows_process_tree(process)
        windows.close_process_job(process)
    else:
        await terminate_posix_process_tree(process, GRACE)


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":  # pragma: no cover
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


async def _has_ended(process: Process) -> bool:
    """Wait for its end. Not process.wait(): that also waits for children that inherited its pipes."""
    with anyio.move_on_after(GRACE):
        while process.returncode is None:  # noqa: ASYNC110 - nothing else says it
            await anyio.sleep(_POLL)
    return process.returncode is not None


async def _close(stream: Any) -> None:  # noqa: ANN401 - either end
    with suppress(*_BROKEN):
        await stream.aclose()


class _Pipe:
    """Reads answers into a stream, and is the stream that requests are written to."""

    def __init__(
        self, label: str, process: Process, writer: MemoryObjectSendStream[SessionMessage], health: Health
    ) -> None:
        self._label, self._process, self._writer, self._health = label, process, writer, health
        self._lines = Lines(label)

    def has_exited(self) -> bool:
        """Ask the system, not asyncio: asyncio learns it later, and meanwhile a call would go to a dead process."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):  # pragma: no cover - Windows, macOS before Python 3.13
            return False
        try:
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT  # asyncio has to find it, too
            return os.waitid(os.P_PID, self._process.pid, how) is not None
        except ChildProcessError:
            return True

    async def read(self) -> None:
        """Read what the server writes until its output ends. A line that is not a message is logged and skipped."""
        output: Any = self._process.stdout
        try:
            with self._writer, suppress(*_BROKEN):
                async for part in output:
                    for line in self._lines.whole(part):
                        if (message := self._lines.parsed(line)) is not None:
                            await self._hand_on(message)
        finally:
            self._health.ended.set()

    async def _hand_on(self, message: SessionMessage) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session is over: read on, drop it
            await self._writer.send(message)

    async def send(self, item: SessionMessage) -> None:
        """Write one message. Raises ClosedResourceError, with nothing written, where the server's output has ended."""
        if self._health.ended.is_set():
            raise anyio.ClosedResourceError
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        sending_of(
            getattr(item.message, "method", None)
        ).is_sent = True  # from here on the server may have read a part of it
        pipe: Any = self._process.stdin
        try:
            await pipe.send(data)
        except _BROKEN:
            self._health.ended.set()
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        """Do nothing: the pipe is closed with the server."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Lines:
    """Splits what a server writes into lines of bounded length, and reads each as a message."""

    def __init__(self, label: str) -> None:
        """``label`` names the server in the log."""
        self._label = label
        self._begun = bytearray()
        self._is_lost = False
        """The line being read has become too long; the rest of it is dropped."""
        self._skipped = 0

    def whole(self, part: bytes) -> Iterator[bytes]:
        """Yield each line that ends in ``part``, without its end."""
        *ends, rest = part.split(b"\n")
        for end in ends:
            self._add(end)
            if not self._is_lost:
                yield bytes(self._begun)
            self._begun.clear()
            self._is_lost = False
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if self._is_lost:
            return
        self._begun += part
        if len(self._begun) > LONGEST_LINE:
            self._begun.clear()
            self._is_lost = True
            _log.warning("the MCP server %s wrote a line of more than %d bytes; it is lost", self._label, LONGEST_LINE)

    def parsed(self, line: bytes) -> SessionMessage | None:
        """Return the message in a line; None if it is not a message."""
        if not line.strip():
            return None
        try:
            line.decode()
        except UnicodeDecodeError as error:
            # Kept but for these bytes: it may be the answer to a call, which would be in doubt without it.
            self._complain("bytes that are not UTF-8, which are replaced", line, error)
            line = line.decode(errors="replace").encode()
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(_without_halves(line), by_name=False))
        except (ValueError, RecursionError) as error:
            self._complain("a line that is not a message, which is skipped", line, error)
            return None

    def _complain(self, what: str, line: bytes, error: Exception) -> None:
        # Only once as a warning: a server that logs to stdout would fill our log.
        level = logging.DEBUG if self._skipped else logging.WARNING
        self._skipped += 1
        shown = redacted(line.decode(errors="backslashreplace"))[:_SHOWN]
        _log.log(level, "the MCP server %s wrote %s: %r (%s)", self._label, what, shown, type(error).__name__)


def _without_halves(line: bytes) -> bytes:
    r"""Replace halves of characters (``"\ud83d"``): a server that cuts a text in JavaScript writes them."""
    if b"\\ud" not in line.lower():
        return line
    return json.dumps(json.loads(line), ensure_ascii=False).encode(errors="replace")
