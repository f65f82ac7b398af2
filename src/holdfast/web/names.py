"""The names a server is known by.

A page in a user's browser can make its own name lead to a server on the user's machine (DNS rebinding), and the browser
then takes the two for one. The Host header shows it: there is the name of the page, not of this server.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.model.errors import InvalidValue
from holdfast.web.address import Address, is_loopback

_HOST: Final = re.compile(r"(?:\[(?P<number>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#@]+)", re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HostAndPort:
    """A host, and a port where one was given."""

    host: str
    port: int | None = None


class HostNames:
    """The names of the server."""

    def __init__(self, address: Address, allowed: Iterable[str] = ()) -> None:
        """``allowed`` are the names that the operator gave it, beside those of its address."""
        self._allowed = frozenset(_read_name(name) for name in allowed)
        self._loopback = address.is_loopback or address.is_wildcard
        own = () if address.is_wildcard else (address.host, address.number)
        self._own = frozenset(place.host for text in own if (place := read_host(_bracketed(text))))

    @property
    def is_known_elsewhere(self) -> bool:
        """Return whether it has a name that other machines can use."""
        return bool(self._allowed or self._own)

    def know(self, host: HostAndPort) -> bool:
        """Return whether this is one of its names. The port is not compared: a proxy has another one."""
        return host.host in self._allowed | self._own or (self._loopback and is_loopback(host.host))

    def allows_origin(self, origin: str, host: HostAndPort) -> bool:
        """Return whether a page of this origin may call a server that it reached as ``host``."""
        read = _ORIGIN.fullmatch(origin)
        place = read_host(read["host"]) if read else None
        if read is None or place is None:  # "null", which sandboxed pages and files send, names no page
            return False
        usual = _PORTS[read["scheme"].lower()]
        is_same = (place.host, place.port or usual) == (host.host, host.port or usual)
        return is_same or place.host in self._allowed


def read_host(text: str) -> HostAndPort | None:
    """Read a Host header; None if it is not valid."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = int(found["port"]) if found["port"] else None
    if found["number"] is None:
        return HostAndPort(found["name"].lower().removesuffix("."), port)
    try:
        return HostAndPort(str(ipaddress.IPv6Address(found["number"])), port)
    except ValueError:
        return None


def _read_name(given: str) -> str:
    place = read_host(_bracketed(given.strip()))
    if place is None or place.port is not None:
        raise InvalidValue(
            f"{given!r} is not the name of a host; give it as clients type it, without scheme, port and wildcards: "
            "holdfast.example.com"
        )
    return place.host


def _bracketed(host: str) -> str:
    """Return an IPv6 address as headers and URLs have it."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
