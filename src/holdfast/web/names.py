"""The names a server is known by.

A page in somebody's browser can make its own name lead to a server of that machine (DNS rebinding), and the browser
then takes the two for one. What gives it away is the name in the Host header, which is the page's and not ours.
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
    """A host and, where it was said, a port."""

    host: str
    port: int | None = None


class HostNames:
    """What the server may be called."""

    def __init__(self, address: Address, allowed: Iterable[str] = ()) -> None:
        """``allowed`` are the names somebody gave it beside those of its address."""
        self._allowed = frozenset(_read_name(name) for name in allowed)
        self._loopback = address.is_loopback or address.is_wildcard
        own = () if address.is_wildcard else (address.host, address.number)
        self._own = frozenset(place.host for text in own if (place := read_host(_bracketed(text))))

    @property
    def is_known_elsewhere(self) -> bool:
        """Say whether it has any name but those by which its own machine reaches itself."""
        return bool(self._allowed or self._own)

    def know(self, host: HostAndPort) -> bool:
        """Say whether this is one of its names. The port may be any: a proxy's is another one than ours."""
        return host.host in self._allowed | self._own or (self._loopback and is_loopback(host.host))

    def let_in(self, origin: str, host: HostAndPort) -> bool:
        """Say whether a page of this origin may call a server that it reached as ``host``."""
        read = _ORIGIN.fullmatch(origin)
        place = read_host(read["host"]) if read else None
        if read is None or place is None:  # "null", as sandboxed pages and files have it, is nobody's
            return False
        usual = _PORTS[read["scheme"].lower()]
        is_same = (place.host, place.port or usual) == (host.host, host.port or usual)
        return is_same or place.host in self._allowed


def read_host(text: str) -> HostAndPort | None:
    """Read a Host header; None where it means nothing."""
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
            f"{given!r} is no name of a host; give it as clients type it, without scheme, port and wildcards: "
            "holdfast.example.com"
        )
    return place.host


def _bracketed(host: str) -> str:
    """Return an IPv6 address as headers and URLs have it."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
