"""Where to listen, and whether only this machine can reach it."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.model.errors import HoldfastError, InvalidValue


@dataclass(frozen=True, slots=True)
class Address:
    """One address of this machine. A name is looked up once: the address that was checked is the one that is bound."""

    host: str
    """As it was given."""
    family: socket.AddressFamily
    numbers: tuple[Any, ...]
    """As sockets have it: the address in digits, the port, and two more for IPv6."""

    @property
    def number(self) -> str:
        """The address in digits."""
        return str(self.numbers[0])

    @property
    def is_loopback(self) -> bool:
        """Only this machine reaches it."""
        return is_loopback(self.number)

    @property
    def is_wildcard(self) -> bool:
        """It means all addresses of this machine."""
        return ipaddress.ip_address(self.number.partition("%")[0]).is_unspecified


def resolve(host: str, port: int) -> Address:
    """Look up where to listen. Raises InvalidValue."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or error
        raise InvalidValue(
            f"the host {host!r} cannot be looked up ({said}); give --host an address of this machine, such as 127.0.0.1"
        ) from None
    family, _, _, _, numbers = found[0]
    return Address(host, family, numbers)


@contextmanager
def bound(address: Address) -> Iterator[socket.socket]:
    """Take the address, for as long as the block lasts, without listening yet. Raises HoldfastError."""
    with socket.socket(address.family, socket.SOCK_STREAM) as made:
        if (
            os.name == "posix"
        ):  # or the port stays taken for a minute after a restart; on Windows another program could steal the port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(address.numbers)
        except OSError as error:
            raise _in_words(error, address) from None
        yield made


def url_of(listener: socket.socket) -> str:
    """Return the URL of a bound socket, with the port that was chosen."""
    number, port, *_ = listener.getsockname()
    return f"http://[{number}]:{port}" if ":" in number else f"http://{number}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host, by name or in digits, is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _in_words(error: OSError, address: Address) -> HoldfastError:
    port = address.numbers[1]
    match error.errno:
        case errno.EADDRINUSE:
            return HoldfastError(
                f"port {port} of {address.host} is in use; stop what listens there, or choose another with --port"
            )
        case errno.EACCES:
            return InvalidValue(f"port {port} needs rights you do not have; choose one above 1023 with --port")
        case _:
            return InvalidValue(
                f"the host {address.host!r} cannot be listened on ({error.strerror}); give --host an address of this "
                "machine"
            )
