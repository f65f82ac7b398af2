"""A server on loopback that does what it is asked, and goes away with its last answer, or without one."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

PATIENCE = 60.0


def closed_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Till:
    """Answers GET and keeps the connection. At anything else it charges and gives the next of its answers.

    It stops listening before it gives the last one. None instead of an answer resets the connection.
    """

    def __init__(self, *answers: str | None) -> None:
        self.charges = 0
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_stopping.set()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            pass  # wakes it, in case it waits for a customer
        self._thread.join(PATIENCE)
        self._listener.close()

    def _work(self) -> None:
        is_open = True
        while is_open:
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(PATIENCE)
                is_open = self._serve(connection)

    def _serve(self, connection: socket.socket) -> bool:
        """Answer the requests of one connection; say whether to take another one."""
        received = b""
        while True:
            while b"\r\n\r\n" not in received:
                part = connection.recv(65536)
                if not part:
                    return not self._is_stopping.is_set()
                received += part
            head, _, received = received.partition(b"\r\n\r\n")
            lines = head.decode().lower().split("\r\n")
            length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
            while len(received) < length:
                received += connection.recv(65536)
            received = received[length:]
            if not lines[0].startswith("get "):
                return self._charge(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def _charge(self, connection: socket.socket) -> bool:
        answer = self._answers[self.charges]
        self.charges += 1
        is_last = self.charges == len(self._answers)
        if is_last:
            self._listener.close()  # before the answer: what the customer does next meets a closed port
        if answer is None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.sendall(answer.encode())
        return not is_last
