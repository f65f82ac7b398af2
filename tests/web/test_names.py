"""By which names a server may be called, and from where."""

from __future__ import annotations

import socket

import pytest

from holdfast.model.errors import HoldfastError, InvalidValue
from holdfast.web.address import Address, bound, resolve, url_of
from holdfast.web.names import HostAndPort, HostNames, read_host


def address(host: str, number: str | None = None) -> Address:
    family = socket.AF_INET6 if ":" in (number or host) else socket.AF_INET
    return Address(host, family, (number or host, 8787))


LOOPBACK, SIX = address("127.0.0.1"), address("::1")
INSIDE = address("box.internal", "10.0.0.5")
EVERYWHERE, EVERYWHERE_SIX = address("0.0.0.0"), address("::")  # noqa: S104


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Holdfast.Example.com", HostAndPort("holdfast.example.com")),
        ("holdfast.example.com.:8787", HostAndPort("holdfast.example.com", 8787)),
        ("[::1]:8787", HostAndPort("::1", 8787)),
        ("[0:0:0:0:0:0:0:1]", HostAndPort("::1")),
        ("127.0.0.1:1", HostAndPort("127.0.0.1", 1)),
        *(
            (text, None)
            for text in ["", "a b", "::1", "[::1", "[1]", "host:port", "host:", "me@host", "a/b", "host:1:2"]
        ),
    ],
)
def test_reading_a_host_header(text: str, place: HostAndPort | None) -> None:
    assert read_host(text) == place


@pytest.mark.parametrize(
    ("bound_to", "allowed", "host", "known"),
    [
        (LOOPBACK, (), "127.0.0.1:8787", True),
        (LOOPBACK, (), "localhost:9999", True),
        (LOOPBACK, (), "[::1]:8787", True),
        (LOOPBACK, (), "127.8.8.8", True),
        (LOOPBACK, (), "evil.example", False),
        (LOOPBACK, (), "evil.example:8787", False),
        (LOOPBACK, (), "localhost.evil.example", False),
        (LOOPBACK, (), "127.0.0.1.evil.example", False),
        (LOOPBACK, (), "10.0.0.5", False),
        (LOOPBACK, ("holdfast.example.com",), "HOLDFAST.example.com:443", True),
        (LOOPBACK, ("holdfast.example.com",), "a.holdfast.example.com", False),
        (SIX, (), "localhost", True),
        (INSIDE, (), "box.internal", True),
        (INSIDE, (), "10.0.0.5:8787", True),
        (INSIDE, (), "localhost", False),
        (INSIDE, (), "127.0.0.1", False),
        (EVERYWHERE, (), EVERYWHERE.host, False),
        (EVERYWHERE, (), "localhost", True),
        (EVERYWHERE, (), "10.0.0.5", False),
        (EVERYWHERE, ("10.0.0.5",), "10.0.0.5", True),
        (EVERYWHERE_SIX, ("fd00::5",), "[fd00:0::5]:8787", True),
    ],
)
def test_which_names_are_known(bound_to: Address, allowed: tuple[str, ...], host: str, known: bool) -> None:
    place = read_host(host)
    assert place is not None
    assert HostNames(bound_to, allowed).know(place) is known


@pytest.mark.parametrize(
    ("origin", "host", "allows_origin"),
    [
        ("http://127.0.0.1:8787", "127.0.0.1:8787", True),
        ("HTTP://127.0.0.1:8787", "127.0.0.1:8787", True),
        ("http://localhost:3000", "localhost:8787", False),
        ("http://localhost", "localhost:8787", False),
        ("http://localhost", "localhost", True),
        ("https://localhost", "localhost", True),
        ("https://localhost:443", "localhost", True),
        ("https://holdfast.example.com", "127.0.0.1:8787", True),
        ("https://holdfast.example.com:8443", "127.0.0.1:8787", True),
        ("https://evil.example", "127.0.0.1:8787", False),
        ("https://evil.example", "holdfast.example.com", False),
        ("https://holdfast.example.com@evil.example", "127.0.0.1:8787", False),
        ("https://holdfast.example.com/evil", "127.0.0.1:8787", False),
        ("null", "127.0.0.1:8787", False),
        ("", "127.0.0.1:8787", False),
        ("file://", "127.0.0.1:8787", False),
        ("chrome-extension://holdfast.example.com", "127.0.0.1:8787", False),
    ],
)
def test_which_origins_are_let_in(origin: str, host: str, allows_origin: bool) -> None:
    place = read_host(host)
    assert place is not None
    assert HostNames(LOOPBACK, ["holdfast.example.com"]).allows_origin(origin, place) is allows_origin


@pytest.mark.parametrize("name", ["", "*", "*.example.com", "https://example.com", "example.com:443", "a b", "a/b"])
def test_what_is_not_a_host_name(name: str) -> None:
    with pytest.raises(InvalidValue, match="without scheme, port and wildcards"):
        HostNames(LOOPBACK, [name])


def test_who_is_known_by_localhost_alone() -> None:
    assert not HostNames(EVERYWHERE).is_known_elsewhere
    assert HostNames(EVERYWHERE, ["box"]).is_known_elsewhere
    assert HostNames(LOOPBACK).is_known_elsewhere


@pytest.mark.parametrize(
    ("host", "loopback", "wildcard"),
    [
        ("127.0.0.1", True, False),
        ("localhost", True, False),
        ("::1", True, False),
        ("0.0.0.0", False, True),  # noqa: S104
        ("::", False, True),
        ("192.0.2.1", False, False),
    ],
)
def test_who_can_reach_an_address(host: str, loopback: bool, wildcard: bool) -> None:
    found = resolve(host, 0)
    assert (found.is_loopback, found.is_wildcard) == (loopback, wildcard)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70, "bad host"])
def test_an_unknown_host(host: str) -> None:
    with pytest.raises(InvalidValue, match="cannot be looked up"):
        resolve(host, 0)


def test_an_address_that_cannot_be_taken() -> None:
    with bound(resolve("127.0.0.1", 0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert url_of(taken) == f"http://127.0.0.1:{port}"
        with (
            pytest.raises(HoldfastError, match=f"port {port} of 127.0.0.1 is in use"),
            bound(resolve("127.0.0.1", port)),
        ):
            pass
    with pytest.raises(InvalidValue, match="give --host an address of this machine"), bound(resolve("192.0.2.1", 0)):
        pass


def test_a_port_can_be_taken_again_right_after_it_was_left() -> None:
    with bound(resolve("127.0.0.1", 0)) as first:
        first.listen()
        port = first.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = first.accept()
            accepted.close()  # first, so that the system remembers the connection on our side
            assert client.recv(1) == b""
    with bound(resolve("127.0.0.1", port)) as again:
        assert again.getsockname()[1] == port
