"""What the errors of real libraries prove: never that nothing happened where a server did the work."""

from __future__ import annotations

import asyncio
import http.client
import smtplib
import socket
import urllib.request
import xmlrpc.client
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing, suppress
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx2
import openai
import pytest

from holdfast.model.proof import proves_absence
from tests.engine.effects.till import Till, closed_port

Ask: TypeAlias = Callable[[str, str], Any]
"""Sends a request: method and URL. Returns the answer, or what gives it when it is awaited."""

NOWHERE = ".".join(["nowhere" * 8] * 5) + ".invalid"
"""A name that does not resolve. It is too long to be asked of any server of names."""


def answer(status: int, *headers: str) -> str:
    return "\r\n".join([f"HTTP/1.1 {status} So", "Content-Length: 0", "Connection: close", *headers, "", ""])


# The customers


def plain_socket(_: AsyncExitStack) -> Ask:
    def ask(method: str, url: str) -> bytes:
        host, _, port = urlsplit(url).netloc.partition(":")
        with socket.create_connection((host, int(port or 80)), timeout=30) as connection:
            connection.sendall(f"{method} / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(65536)

    return ask


def streams(_: AsyncExitStack) -> Ask:
    async def ask(method: str, url: str) -> bytes:
        host, _, port = urlsplit(url).netloc.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port or 80))
        try:
            writer.write(f"{method} / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return await reader.read(1)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    return ask


def http_client(stack: AsyncExitStack) -> Ask:
    opened: dict[str, http.client.HTTPConnection] = {}

    def ask(method: str, url: str) -> bytes:
        host = urlsplit(url).netloc
        if host not in opened:
            opened[host] = stack.enter_context(closing(http.client.HTTPConnection(host, timeout=30)))
        opened[host].request(method, "/", body=b"5")
        return opened[host].getresponse().read()

    return ask


def urllib_request(_: AsyncExitStack) -> Ask:
    def ask(method: str, url: str) -> bytes:
        request = urllib.request.Request(url, data=None if method == "GET" else b"5", method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - the till's
            return bytes(response.read())

    return ask


def xml_rpc(stack: AsyncExitStack) -> Ask:
    """Asks again if the connection breaks."""
    server: list[Any] = []

    def ask(method: str, url: str) -> object:
        if method == "GET":
            return None
        server.append(stack.enter_context(xmlrpc.client.ServerProxy(url)))
        return server[-1].charge(5)

    return ask


def httpx_blocking(name: str, **options: object) -> Callable[[AsyncExitStack], Ask]:
    def customer(stack: AsyncExitStack) -> Ask:
        httpx = pytest.importorskip(name)
        transport = httpx.HTTPTransport(retries=1, verify=False)
        client = stack.enter_context(httpx.Client(follow_redirects=True, transport=transport, timeout=30, **options))
        return lambda method, url: client.request(method, url).raise_for_status()

    return customer


def httpx_async(name: str) -> Callable[[AsyncExitStack], Ask]:
    def customer(stack: AsyncExitStack) -> Ask:
        httpx = pytest.importorskip(name)
        client = httpx.AsyncClient(follow_redirects=True, timeout=30, verify=False)
        stack.push_async_callback(client.aclose)

        async def ask(method: str, url: str) -> object:
            async with client.stream(method, url, data=None if method == "GET" else {"amount": "5"}) as response:
                await response.aread()
            return response.raise_for_status()

        return ask

    return customer


def httpx_auth(stack: AsyncExitStack) -> Ask:
    """Asks again with a password, where the server wants one."""
    return httpx_blocking("httpx2", auth=httpx2.DigestAuth("anna", "secret"))(stack)


def httpx_hook(stack: AsyncExitStack) -> Ask:
    """Looks something up after each answer, at a port without a server."""
    client = stack.enter_context(httpx2.Client(timeout=30, verify=False))

    def note(_: httpx2.Response) -> None:
        httpx2.get(f"http://127.0.0.1:{closed_port()}", verify=False)

    client.event_hooks["response"] = [note]
    return client.request


def requests_plain(stack: AsyncExitStack) -> Ask:
    session = stack.enter_context(pytest.importorskip("requests").Session())
    return lambda method, url: session.request(method, url, data=b"5", timeout=30).raise_for_status()


def requests_retrying(stack: AsyncExitStack) -> Ask:
    session = stack.enter_context(pytest.importorskip("requests").Session())
    adapters, urllib3 = pytest.importorskip("requests.adapters"), pytest.importorskip("urllib3")
    retries = urllib3.Retry(3, status_forcelist=[503], allowed_methods=None)
    session.mount("http://", adapters.HTTPAdapter(max_retries=retries))
    return lambda method, url: session.request(method, url, data=b"5", timeout=30).raise_for_status()


def urllib3_plain(stack: AsyncExitStack) -> Ask:
    pool = stack.enter_context(pytest.importorskip("urllib3").PoolManager(retries=False))
    return lambda method, url: pool.request(method, url, body=b"5", timeout=30)


def urllib3_retrying(stack: AsyncExitStack) -> Ask:
    urllib3 = pytest.importorskip("urllib3")
    retries = urllib3.Retry(3, status_forcelist=[503], allowed_methods=None)
    pool = stack.enter_context(urllib3.PoolManager(retries=retries))
    return lambda method, url: pool.request(method, url, body=b"5", timeout=30)


def aiohttp_client(put: str = "POST") -> Callable[[AsyncExitStack], Ask]:
    def customer(stack: AsyncExitStack) -> Ask:
        aiohttp = pytest.importorskip("aiohttp")
        session: list[Any] = []

        async def ask(method: str, url: str) -> object:
            if not session:
                session.append(await stack.enter_async_context(aiohttp.ClientSession(trust_env=True)))
            async with session[0].request(put if method == "POST" else method, url, data=b"5") as response:
                response.raise_for_status()
                return await response.read()

        return ask

    return customer


def openai_client(stack: AsyncExitStack) -> Ask:
    """Asks again by itself, and says of all that is lost only that there was no connection."""

    def ask(method: str, url: str) -> object:
        if method == "GET":
            return None
        http_client = stack.enter_context(openai.DefaultHttpxClient(verify=False))
        client = openai.OpenAI(api_key="-", base_url=url, max_retries=1, timeout=30, http_client=http_client)
        monkey = stack.enter_context(pytest.MonkeyPatch.context())
        monkey.setattr(client, "_calculate_retry_timeout", lambda *_: 0)
        return client.chat.completions.create(model="any", messages=[{"role": "user", "content": "pay"}])

    return ask


def tenacity_retry(stack: AsyncExitStack) -> Ask:
    tenacity = pytest.importorskip("tenacity")
    ask: Ask = tenacity.retry(stop=tenacity.stop_after_attempt(2), reraise=True)(urllib_request(stack))
    return ask


def second_try_by_hand(stack: AsyncExitStack) -> Ask:
    """What authors write: whatever went wrong, once more."""
    once = urllib_request(stack)

    def ask(method: str, url: str) -> object:
        try:
            return once(method, url)
        except OSError:
            return once(method, url)

    return ask


Customer: TypeAlias = Callable[[AsyncExitStack], Ask]

PROVING: dict[str, Customer] = {
    "socket": plain_socket,
    "asyncio": streams,
    "http.client": http_client,
    "urllib": urllib_request,
    "httpx2": httpx_blocking("httpx2"),
    "httpx2 async": httpx_async("httpx2"),
    "httpx2 auth": httpx_auth,
    "httpx": httpx_blocking("httpx"),
    "httpx async": httpx_async("httpx"),
    "requests": requests_plain,
    "urllib3": urllib3_plain,
    "aiohttp": aiohttp_client(),
    "aiohttp put": aiohttp_client("PUT"),
}
"""Where nothing listens, their error is proof."""

DOUBTFUL: dict[str, Customer] = {
    "xmlrpc": xml_rpc,
    "httpx2 hook": httpx_hook,
    "requests retrying": requests_retrying,
    "urllib3 retrying": urllib3_retrying,
    "openai": openai_client,
    "tenacity": tenacity_retry,
    "by hand": second_try_by_hand,
}
"""They may have asked before, and their error does not tell."""


async def error_of(ask: Ask, method: str, url: str) -> Exception | None:
    try:
        given = ask(method, url)
        if isinstance(given, Awaitable):
            await given
    except Exception as error:  # noqa: BLE001 - the subject
        return error
    return None


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", PROVING)
async def test_nothing_listens(name: str) -> None:
    async with AsyncExitStack() as stack:
        ask = PROVING[name](stack)
        for url in (f"http://127.0.0.1:{closed_port()}/", f"http://{NOWHERE}/"):
            error = await error_of(ask, "POST", url)
            assert error is not None
            assert proves_absence(error), (url, error)


def test_no_mail_server_listens() -> None:
    with pytest.raises(ConnectionRefusedError) as caught:
        smtplib.SMTP("127.0.0.1", closed_port())
    assert proves_absence(caught.value)


@pytest.mark.parametrize("name", PROVING | DOUBTFUL)
async def test_what_was_done_is_never_taken_for_undone(name: str) -> None:
    """The server charges, and whatever the library does next finds that nothing listens."""
    places = (f"http://127.0.0.1:{closed_port()}/receipt", f"http://{NOWHERE}/receipt", "weird://receipt")
    answers = {
        f"{status} to {place[:20]}": answer(status, f"Location: {place}")
        for status in (301, 302, 303, 307, 308)
        for place in places
    }
    answers["401"] = answer(401, 'WWW-Authenticate: Digest realm="till", nonce="1", qop="auth", algorithm=MD5')
    answers["503"] = answer(503, "Retry-After: 0")
    answers["200"] = answer(200)
    async with AsyncExitStack() as stack:
        ask = (PROVING | DOUBTFUL)[name](stack)
        for what, given in [*answers.items(), ("a reset", None)]:
            for is_kept in (False, True):
                with Till(given) as till:
                    if is_kept:
                        await error_of(ask, "GET", till.url + "/")
                    error = await error_of(ask, "POST", till.url + "/")
                assert till.charges == 1, what
                assert error is None or not proves_absence(error), (what, is_kept, error)


PROXIED = ("urllib", "httpx async", "httpx2 async", "requests", "requests retrying", "aiohttp")


@pytest.mark.parametrize("name", PROXIED)
async def test_a_proxy_that_passes_the_request_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (answer(303, f"Location: http://127.0.0.1:{closed_port()}/"), answer(503, "Retry-After: 0"), None):
        async with AsyncExitStack() as stack:
            till = stack.enter_context(Till(given))
            monkeypatch.setenv("http_proxy", till.url)
            monkeypatch.setattr(urllib.request, "_opener", None)  # it keeps the proxies that it found first
            error = await error_of((PROVING | DOUBTFUL)[name](stack), "POST", "http://shop.example/charge")
        assert till.charges == 1
        assert error is not None
        assert not proves_absence(error), (given, error)
