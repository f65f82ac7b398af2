"""ChatServer: the endpoint that tests clients follows the protocol itself."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
import pytest

from holdfast.agent.model import ModelError
from holdfast.agent.openai_model import OpenAIModel
from holdfast.agent.scripted import call
from holdfast.testing.chat_script import read_script
from holdfast.testing.chat_server import Answer, ChatServer, read_log
from tests.agent.model.support import PATIENT, converse, ignore, model_of, user


def ask(
    base_url: str,
    *,
    said: int = 0,
    key: str = "",
    path: str = "/v1/chat/completions",
    **parameters: object,
) -> tuple[int, bytes]:
    """Ask as the ``said + 1``-th question of a conversation."""
    messages = [{"role": "user", "content": "go"}, *({"role": "assistant", "content": "."} for _ in range(said))]
    body = json.dumps({"model": "small", "messages": messages, **parameters})
    with closing(http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=PATIENT)) as connection:
        connection.request("POST", path, body, {"Idempotency-Key": key} if key else {})
        response = connection.getresponse()
        return response.status, response.read()


def test_an_answer_that_is_not_streamed() -> None:
    with ChatServer([["It rains.", call("now", zone="UTC")]]) as server:
        status, body = ask(server.base_url)
    assert status == 200
    answered = json.loads(body)
    assert answered["choices"] == [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "It rains.",
                "tool_calls": [
                    {
                        "id": "call_0_0",
                        "type": "function",
                        "function": {"name": "now", "arguments": '{"zone": "UTC"}'},
                    }
                ],
            },
        }
    ]
    assert answered["usage"] == {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}


def test_usage_is_streamed_to_those_who_ask_for_it() -> None:
    with ChatServer(["Hi."]) as server:
        _, without = ask(server.base_url, stream=True)
        _, with_usage = ask(server.base_url, stream=True, stream_options={"include_usage": True})
    assert b"usage" not in without
    assert b"completion_tokens" in with_usage


def test_the_turn_is_in_the_conversation() -> None:
    with ChatServer(["first", "second"]) as server:
        for said, text in [(1, b"second"), (0, b"first"), (1, b"second")]:
            assert text in ask(server.base_url, said=said)[1]
        status, body = ask(server.base_url, said=2)
    assert (status, b"this conversation has had 2" in body) == (400, True)
    assert [exchange.turn for exchange in server.requests] == [1, 0, 1, 2]
    assert [exchange.outcome for exchange in server.requests] == ["completed"] * 3 + ["refused"]
    assert server.completed == 3


def test_a_failure_is_given_once_to_each_request() -> None:
    with ChatServer([Answer(status=503, retry_after="2"), "fine"]) as server:
        assert [ask(server.base_url, key=key)[0] for key in ("a", "a", "b", "a", "b")] == [503, 200, 503, 200, 200]
        assert [ask(server.base_url)[0] for _ in range(2)] == [503, 200]


def test_what_is_not_served_is_not_found() -> None:
    with ChatServer([]) as server:
        assert ask(server.base_url, path="/v1/embeddings")[0] == 404


@pytest.mark.parametrize("cut_at", [0, 1, 100])
@pytest.mark.parametrize("stream", [True, False])
def test_a_cut_comes_after_exactly_so_many_bytes(stream: bool, cut_at: int) -> None:
    with ChatServer([Answer(text="one two three", cut_at=cut_at, framing="until_close")]) as server:
        assert len(ask(server.base_url, stream=stream)[1]) == cut_at
        assert server.requests[0].outcome == "broken"


def test_a_cut_of_a_chunked_body_shows() -> None:
    with ChatServer([Answer(text="one two three", cut_at=100)]) as server, pytest.raises(http.client.IncompleteRead):
        ask(server.base_url, stream=True)


def test_a_cut_beyond_the_end_has_no_effect() -> None:
    with ChatServer([Answer(text="one", cut_at=100_000)]) as server:
        assert ask(server.base_url, stream=True)[1].endswith(b"[DONE]\n\n")
        assert server.completed == 1


def test_a_reset_is_one() -> None:
    with ChatServer([Answer(text="one two three", cut_at=10, reset=True, framing="until_close")]) as server:
        with pytest.raises(ConnectionResetError):
            ask(server.base_url, stream=True)
        assert server.requests[0].outcome == "broken"


@pytest.mark.parametrize("hang", ["before_headers", "mid_stream"])
def test_it_closes_while_clients_hang_and_leaves_no_thread(hang: Literal["before_headers", "mid_stream"]) -> None:
    before = set(threading.enumerate())
    failed: list[Exception] = []

    def wait_in_vain(base_url: str) -> None:
        try:
            ask(base_url, stream=True)
        except (OSError, http.client.HTTPException) as error:
            failed.append(error)

    with ChatServer([Answer(text="one two", hang=hang)]) as server:
        client = threading.Thread(target=wait_in_vain, args=(server.base_url,))
        client.start()
        server.wait_until(lambda log: len(log) == 1)
    client.join(PATIENT)
    assert len(failed) == 1
    assert set(threading.enumerate()) <= before


def test_a_client_that_dies_in_a_request_disturbs_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    with ChatServer(["Hi."]) as server:
        with closing(http.client.HTTPConnection(urlsplit(server.base_url).netloc)) as connection:
            connection.putrequest("POST", "/v1/chat/completions")
            connection.putheader("Content-Length", "1000")
            connection.endheaders(b'{"mess')
        assert ask(server.base_url)[0] == 200
        assert len(server.requests) == 1
    assert capfd.readouterr().err == ""  # no thread of the server failed over it


def test_waiting_in_vain_says_what_was_seen() -> None:
    with ChatServer([]) as server, pytest.raises(TimeoutError, match=r"waited 0\.01 s; the chat server"):
        server.wait_until(lambda log: len(log) == 1, timeout=0.01)


def test_it_starts_in_well_under_a_second() -> None:
    """The best of many, so that a busy machine proves nothing."""

    def start() -> float:
        began = time.perf_counter()
        with ChatServer([]):
            return time.perf_counter() - began

    assert any(start() < 0.5 for _ in range(50))


def test_a_script_is_read_from_json() -> None:
    script = read_script(
        b'["Hi.", {"calls": [{"name": "now"}, {"name": "weather", "arguments": {"town": "Ulm"}}]}, {"status": 503}]'
    )
    assert script == [
        Answer(text="Hi."),
        Answer(calls=(call("now"), call("weather", town="Ulm"))),
        Answer(status=503),
    ]


def test_a_misspelled_field_of_a_script_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="retry_afer"):
        read_script(b'[{"status": 429, "retry_afer": "3"}]')


async def test_as_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "answers.json"
    script.write_text(json.dumps([{"status": 429, "retry_after": "0"}, {"calls": [{"name": "now"}]}, "done"]))
    command = [sys.executable, "-m", "holdfast.testing.chat_server", "--script", str(script), "--until-stdin-closes"]
    with subprocess.Popen(
        [*command, "--refuse", "stream_options"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            base_url = process.stdout.readline().strip()
            with pytest.raises(ModelError):
                await OpenAIModel("small", base_url=base_url).complete(user("go"), ignore)
            # Another client, which knows nothing of the first, goes on where the conversation is.
            replies = await converse(OpenAIModel("small", base_url=base_url), 2)
            assert [reply.content for reply in replies] == ["", "done"]
            log = await asyncio.to_thread(read_log, base_url)
            process.stdin.close()
            assert process.wait(PATIENT) == 0
        finally:
            process.kill()
    assert [exchange.outcome for exchange in log] == ["refused", "refused", "refused", "completed", "completed"]
    assert [exchange.turn for exchange in log] == [0, 0, 0, 0, 1]
    assert "stream_options" in log[0].body


async def test_the_log_over_http_is_the_log() -> None:
    with ChatServer(["Hi."]) as server:
        await model_of(server).complete(user("Hi.", effect_id="e"), ignore)
        assert await asyncio.to_thread(read_log, server.base_url) == server.requests
        assert server.requests[0].headers["idempotency-key"] == "e"
