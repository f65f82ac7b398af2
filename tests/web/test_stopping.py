"""How the server ends: gracefully with streams open, at once on a second signal; and how it outlives an outage."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.cli.project.support import PATIENCE, holdfast
from tests.postgres_server import PostgresServer, ServerUnavailable, start_postgres
from tests.web.support import SECRET, Served, bearer, make_store, serving

SECONDS = 30.0
"""Far more than a stop takes, and far less than for ever, on a machine busy with other tests."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return make_store(tmp_path)


def stream(served: Served) -> httpx2.Request:
    return httpx2.Request("GET", f"{served.url}/mcp", headers=bearer(SECRET) | {"x-do": "stream"})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_and_the_server(tmp_path: Path, url: str, number: signal.Signals) -> None:
    with serving(tmp_path, url, HOLDFAST_API_TOKEN=SECRET) as served, httpx2.Client(timeout=PATIENCE) as client:
        open_stream = client.send(stream(served), stream=True)
        parts = open_stream.iter_text()
        assert next(parts) == "data: first\n\n"
        host, _, port = served.url.removeprefix("http://").partition(":")
        began = time.monotonic()
        assert served.stop(number) == 0
        assert time.monotonic() - began < SECONDS
        assert list(parts) == [], "the stream ends; a client that is cut off would see an error"
        assert f"holdfast: {number.name}: stopping" in served.said
        assert served.said.splitlines()[-1] == "the endpoint is closed"
        assert "Traceback" not in served.said
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), 1)


def test_a_call_under_way_is_answered(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url, "--verbose", HOLDFAST_API_TOKEN=SECRET) as served:
        answers: list[httpx2.Response] = []
        calling = threading.Thread(target=lambda: answers.append(served.call(**{"x-do": "dawdle"})))
        calling.start()
        served.until(lambda: "dawdle begins" in served.said)
        assert served.stop(signal.SIGTERM) == 0
        calling.join(PATIENCE)
        assert [answer.json() for answer in answers] == ["done"]


def test_a_call_that_hangs_does_not_hold_it_up(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url, HOLDFAST_API_TOKEN=SECRET) as served:
        answers: list[httpx2.Response] = []
        calling = threading.Thread(target=lambda: answers.append(served.call(**{"x-do": "hang"})))
        calling.start()
        served.until(lambda: "hang begins" in served.said)
        began = time.monotonic()
        assert served.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < SECONDS
        calling.join(PATIENCE)
        assert [answer.status_code for answer in answers] == [503]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(tmp_path: Path, url: str, second: signal.Signals) -> None:
    with serving(tmp_path, url, HOLDFAST_API_TOKEN=SECRET) as served:
        calling = threading.Thread(target=_call_and_lose, args=(served,))
        calling.start()
        served.until(lambda: "hang begins" in served.said)
        served.process.send_signal(signal.SIGTERM)
        served.until(lambda: "stopping" in served.said)
        assert served.stop(second) == 128 + second
        calling.join(PATIENCE)
        assert served.said.splitlines()[-1] == f"holdfast: {second.name}: leaving now"
    assert holdfast(tmp_path, "list", HOLDFAST_DATABASE_URL=url).returncode == 0


def test_nothing_is_left_running(tmp_path: Path, url: str) -> None:
    with serving(tmp_path, url, HOLDFAST_API_TOKEN=SECRET) as served:
        assert served.call().status_code == 200
        children = psutil.Process(served.process.pid).children(recursive=True)
        assert served.stop(signal.SIGTERM) == 0
        assert not any(child.is_running() for child in children)


# A store that goes away


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, to be stopped and started."""
    try:
        started = start_postgres(18)
    except ServerUnavailable as missing:
        if "18" in os.environ.get("HOLDFAST_REQUIRE_POSTGRES", "").split():
            raise
        pytest.skip(str(missing))
    with started:
        yield started


def test_an_outage_is_reported_to_probes_and_survived(tmp_path: Path, server: PostgresServer) -> None:
    url = server.create_database()
    assert holdfast(tmp_path, "migrate", HOLDFAST_DATABASE_URL=url).returncode == 0
    with serving(tmp_path, url, HOLDFAST_API_TOKEN=SECRET) as served:
        assert served.get("/readyz").status_code == 200
        server.stop("immediate")
        served.until(lambda: served.get("/readyz").status_code == 503)
        answer = served.get("/readyz")
        assert answer.json() == {"status": "unavailable", "reason": "the store does not answer"}
        assert served.get("/healthz").status_code == 200
        server.start()
        served.until(lambda: served.get("/readyz").status_code == 200)
        assert served.said.count("not ready: ") == 1
        assert served.said.count("the store is ready again") == 1
        server.stop("immediate")
        served.until(lambda: served.get("/readyz").status_code == 503)
        began = time.monotonic()
        assert served.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < SECONDS
    server.start()


def _call_and_lose(served: Served) -> None:
    with pytest.raises(httpx2.HTTPError):
        served.call(**{"x-do": "hang"})
