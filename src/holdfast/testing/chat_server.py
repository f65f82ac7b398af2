"""ChatServer: a real HTTP server on loopback that answers in the chat-completions protocol, from a script.

    with ChatServer(["Hello.", Answer(status=429, retry_after="1"), "Bye."]) as server:
        model = OpenAIModel("any", base_url=server.base_url)

It chooses like a ScriptedModel: the n-th answer of the script is for a conversation with n - 1 messages of the
assistant, so that neither side has to remember anything over a crash. Failures before an answer in the script are sent
first, once to each request, which is recognised by its Idempotency-Key.

    python -m holdfast.testing.chat_server --script answers.json --port 0

is the same in a separate process, for tests that kill everything else. It prints its base URL. The script is a JSON
list of texts, and of objects with the fields of Answer.

    POST /v1/chat/completions   the next answer, streamed or not
    GET  /log                   the requests so far, and their outcomes; ``read_log`` reads it
    GET  /log?key=...           only requests with this Idempotency-Key; may be repeated
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from holdfast.agent.script import Script
from holdfast.testing.chat_http import HOST, HttpServer
from holdfast.testing.chat_log import ChatLog, Exchange, read_log
from holdfast.testing.chat_script import Answer, Line, as_answer, read_script

__all__ = ["Answer", "ChatServer", "Exchange", "read_log"]

_NOTICE_STOP_WITHIN = 0.02


class ChatServer:
    """The server, in its own thread until its ``with`` block ends.

    ``script`` is a list of answers, or a function that gets the body of each request and returns the answer.
    ``refuses`` names parameters that are answered with 400, as by an endpoint that does not support them.
    """

    def __init__(
        self, script: Sequence[Line] | Callable[[dict[str, Any]], Line], *, port: int = 0, refuses: Collection[str] = ()
    ) -> None:
        self._script = script if callable(script) else Script(map(as_answer, script), lambda line: line.is_failure)
        self._refuses = refuses
        self._log = ChatLog()
        self._server = HttpServer(port, self._log, self._choose)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_NOTICE_STOP_WITHIN,), name="chat-server", daemon=True
        )

    @property
    def base_url(self) -> str:
        """The value for OpenAIModel's ``base_url`` or for OPENAI_BASE_URL."""
        return f"http://{HOST}:{self._server.server_address[1]}/v1"

    @property
    def requests(self) -> list[Exchange]:
        """The requests so far."""
        return self._log.exchanges()

    @property
    def completed(self) -> int:
        """How many answers were sent in full: a real endpoint would charge for these."""
        return sum(exchange.outcome == "completed" for exchange in self.requests)

    def wait_until(self, seen: Callable[[list[Exchange]], bool], *, timeout: float = 60.0) -> None:
        """Block until ``seen`` returns true for the exchanges."""
        self._log.wait_until(seen, timeout)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    def _choose(self, turn: int, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        for name in self._refuses:
            if name in body:
                return Answer(status=HTTPStatus.BAD_REQUEST, text=f"Unrecognized request argument supplied: {name}")
        if not isinstance(self._script, Script):
            return as_answer(self._script(body))
        asked_by = headers.get("idempotency-key") or json.dumps(body["messages"])
        return self._script.line(turn, asked_by) or Answer(
            status=HTTPStatus.BAD_REQUEST,
            text=f"the script has {self._script.answers} answers, and this conversation has had {turn}",
        )


def main(arguments: Sequence[str]) -> None:
    """Serve until the process ends."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.chat_server", description="Answer from a script.")
    parser.add_argument("--script", type=Path, required=True, help="a JSON list of answers")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--refuse", action="append", default=[], help="a parameter to answer with 400; may be repeated")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when the process that started it ends")
    asked = parser.parse_args(arguments)
    with ChatServer(read_script(asked.script.read_bytes()), port=asked.port, refuses=asked.refuse) as server:
        print(server.base_url, flush=True)  # noqa: T201 - read by the process that started it
        if asked.until_stdin_closes:
            sys.stdin.buffer.read()
        else:
            threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
