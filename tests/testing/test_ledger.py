"""The ledger: it records what really happened, whatever happens to its callers, and to itself."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from holdfast.testing.ledger import Entry, Ledger

PATIENCE = 60.0
A_MINUTE = 60_000

CALLER = """
import http.client, sys
from pathlib import Path
from holdfast.testing.ledger import Ledger

class Connection(http.client.HTTPConnection):
    def getresponse(self):
        print("sent", flush=True)
        return super().getresponse()

http.client.HTTPConnection = Connection
path, port, milliseconds = sys.argv[1:]
Ledger(Path(path), int(port)).call("pay", "charge", delay_after_ms=int(milliseconds))
print("answered", flush=True)
"""

STARTER = """
import sys
from pathlib import Path
from holdfast.testing.ledger import Ledger

with Ledger.start(Path(sys.argv[1])) as ledger:
    print(ledger.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.start(tmp_path / "calls.jsonl") as ledger:
        yield ledger


def until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def get(ledger: Ledger, path: str) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", ledger.port)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


def test_a_call_is_recorded_with_who_made_it_and_when(ledger: Ledger) -> None:
    before = time.time()
    entry = ledger.call("pay/1 ä?", "charge", body={"euros": 5})
    assert entry == Entry(n=1, at=entry.at, effect_id="pay/1 ä?", name="charge", body={"euros": 5}, caller=os.getpid())
    assert before <= entry.at <= time.time()
    assert ledger.seen("pay/1 ä?") == ledger.entries() == [entry]
    assert ledger.seen("pay") == []


async def test_it_counts_and_never_deduplicates(ledger: Ledger) -> None:
    first = ledger.call("pay", "charge")
    second = await ledger.call_async("pay", "charge", body=[1])
    other = await ledger.call_async("ship", "ship")
    assert (first.n, second.n, other.n) == (1, 2, 3)
    assert ledger.seen("pay") == [first, second]
    assert ledger.entries() == [first, second, other]
    assert ledger.duplicates() == {"pay": 2}


def test_it_speaks_plain_http(ledger: Ledger) -> None:
    entry = ledger.call("pay", "charge")
    assert f'"at": {entry.at}' in get(ledger, "/calls")[1].decode()
    assert get(ledger, "/calls/nothing") == (200, b"[]")
    assert get(ledger, "/elsewhere/pay")[0] == 404
    with pytest.raises(ValueError, match="404"):
        ledger.call("", "charge")


async def test_many_call_at_once(ledger: Ledger) -> None:
    def call_often(caller: int) -> None:
        for number in range(10):
            ledger.call(f"{caller}-{number}", "blocking")

    with ThreadPoolExecutor(8) as threads:
        blocking = [asyncio.wrap_future(threads.submit(call_often, caller)) for caller in range(8)]
        await asyncio.gather(*(ledger.call_async("same", "async", delay_before_ms=1) for _ in range(100)))
        await asyncio.gather(*blocking)
    entries = ledger.entries()
    assert [entry.n for entry in entries] == list(range(1, 181))
    assert ledger.duplicates() == {"same": 100}
    assert {entry.effect_id for entry in entries} == {"same", *(f"{i}-{j}" for i in range(8) for j in range(10))}


def test_a_call_waits_before_it_is_recorded_or_before_it_is_answered(ledger: Ledger) -> None:
    began = time.time()
    assert ledger.call("late", "charge", delay_before_ms=300).at >= began + 0.3
    began = time.time()
    kept_back = ledger.call("kept-back", "charge", delay_after_ms=300)
    assert kept_back.at <= time.time() - 0.3


async def test_without_an_answer_a_caller_cannot_tell_whether_it_happened(ledger: Ledger) -> None:
    with pytest.raises(ConnectionError):
        ledger.call("unanswered", "charge", answer="none")
    with pytest.raises(ConnectionError):
        await ledger.call_async("unanswered", "charge", answer="none")
    with pytest.raises(ConnectionError):
        ledger.call("refused", "charge", refuse=True)
    with pytest.raises(ConnectionError):
        await ledger.call_async("refused", "charge", refuse=True)
    assert len(ledger.seen("unanswered")) == 2
    assert ledger.seen("refused") == []


def test_a_call_is_recorded_after_its_caller_was_killed(ledger: Ledger) -> None:
    assert ledger.pid is not None
    os.kill(ledger.pid, signal.SIGSTOP)
    with calling(ledger) as caller:
        assert said(caller) == "sent"
        caller.kill()
        assert said(caller) == ""
    killed_at = time.time()
    os.kill(ledger.pid, signal.SIGCONT)
    until(lambda: ledger.seen("pay") != [])
    [entry] = ledger.entries()
    assert entry.caller == caller.pid
    assert entry.at > killed_at
    assert ledger.call("next", "charge").n == 2


def test_a_call_stays_recorded_when_its_caller_is_killed(ledger: Ledger) -> None:
    with calling(ledger, delay_after_ms=A_MINUTE) as caller:
        assert said(caller) == "sent"
        until(lambda: ledger.seen("pay") != [])
        caller.kill()
        assert said(caller) == ""  # not "answered"
    assert [entry.caller for entry in ledger.entries()] == [caller.pid]
    assert ledger.call("next", "charge").n == 2


def calling(ledger: Ledger, delay_after_ms: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CALLER, str(ledger.path), str(ledger.port), str(delay_after_ms)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def said(caller: subprocess.Popen[str]) -> str:
    assert caller.stdout is not None
    return caller.stdout.readline().strip()


def test_a_caller_that_is_gone_is_not_worth_a_word(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Ledger.start(tmp_path / "calls.jsonl") as ledger:
        with socket.create_connection(("127.0.0.1", ledger.port)) as caller:
            body = b'{"name": "charge", "body": null, "caller": 1}'
            caller.sendall(
                b"POST /calls/pay?delay_after_ms=300 HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            until(lambda: ledger.seen("pay") != [])
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed with a reset
        ledger.call("next", "charge", delay_after_ms=600)  # by then it has tried to answer
    assert capfd.readouterr() == ("", "")


def test_an_incomplete_call_does_not_count(ledger: Ledger) -> None:
    with socket.create_connection(("127.0.0.1", ledger.port)) as caller:
        caller.sendall(b'POST /calls/pay HTTP/1.0\r\nContent-Length: 99\r\n\r\n{"name": "", "body": 0, "caller": 1}')
        caller.shutdown(socket.SHUT_WR)
        assert caller.recv(1) == b""
    assert ledger.entries() == []


async def test_to_cancel_a_call_is_to_hang_up_and_does_not_undo_it(ledger: Ledger) -> None:
    call = asyncio.create_task(ledger.call_async("pay", "charge", delay_after_ms=A_MINUTE))
    await asyncio.to_thread(until, lambda: ledger.seen("pay") != [])
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [entry.effect_id for entry in ledger.entries()] == ["pay"]


def test_a_restart_keeps_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with Ledger.start(path) as ledger:
        first = ledger.call("pay", "charge")
        assert ledger.pid is not None
        os.kill(ledger.pid, signal.SIGKILL)
        until(lambda: not is_up(ledger))
        with pytest.raises(ConnectionRefusedError):
            ledger.call("pay", "charge")
        assert ledger.entries() == [first]
        with path.open("ab") as file:
            file.write(b'{"n": 2, "at"')  # as a power cut leaves it
        assert ledger.entries() == [first]
        with Ledger.start(path, port=ledger.port) as again:
            assert again.port == ledger.port
            second = ledger.call("pay", "charge")
            assert second.n == 2
            assert ledger.seen("pay") == ledger.entries() == [first, second]
            assert ledger.duplicates() == {"pay": 2}


def is_up(ledger: Ledger) -> bool:
    try:
        ledger.seen("")
    except ConnectionError:
        return False
    return True


def test_it_is_durable_before_it_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at from inside: which of the two comes first cannot be seen from outside."""
    from holdfast.testing import ledger as module  # noqa: PLC0415

    happened: list[str] = []
    fsync = os.fsync
    answer = module._Handler._answer

    def sync(file: int) -> None:
        happened.append("synced: " + (tmp_path / "calls.jsonl").read_text()[:7])
        fsync(file)

    def tell(handler: module._Handler, value: object) -> None:
        happened.append("answered")
        answer(handler, value)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(module._Handler, "_answer", tell)
    with module._Server(0, module._Book(tmp_path / "calls.jsonl")) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        Ledger(tmp_path / "calls.jsonl", server.server_address[1]).call("pay", "charge")
        thread.join()
    assert happened == ['synced: {"n": 1', "answered"]


def test_it_ends_with_its_block_and_with_its_starter(tmp_path: Path) -> None:
    with Ledger.start(tmp_path / "calls.jsonl") as ledger:
        assert psutil.pid_exists(ledger.pid or 0)
    assert not psutil.pid_exists(ledger.pid or 0)
    command = [sys.executable, "-c", STARTER, str(tmp_path / "orphan.jsonl")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        orphan = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    until(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)


def test_a_ledger_that_cannot_start_raises(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="did not start"), Ledger.start(tmp_path / "missing" / "calls.jsonl"):
        pass
    assert "No such file" in capfd.readouterr().err
