"""Which errors prove that nothing happened."""

from __future__ import annotations

import socket
import urllib.error
from typing import Any

import pytest

from holdfast.model.errors import DeadlineExceeded, NotHappened
from holdfast.model.proof import proves_absence


def foreign(name: str, base: type[Exception] = Exception) -> type[Exception]:
    """Make a class as another library has it."""
    module, _, own = name.rpartition(".")
    return type(own, (base,), {"__module__": module})


class Declined(Exception):
    pass


class CardDeclined(Declined):
    pass


class Wrapping(Exception):
    """A retrying client's: its last try failed for this reason; what became of the earlier ones is unknown."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


@pytest.mark.parametrize(
    "error",
    [
        NotHappened("no"),
        type("Refused", (NotHappened,), {})("no"),
        ConnectionRefusedError("closed"),
        socket.gaierror("no such host"),
        foreign("httpx.ConnectError")("closed"),
        foreign("httpx.ConnectTimeout")("refused"),
        foreign("httpx.UnsupportedProtocol")("ftp"),
        foreign("httpx2.ConnectError")("closed"),
        foreign("requests.exceptions.ConnectTimeout")("refused"),
        foreign("aiohttp.client_exceptions.ClientConnectorError")("closed"),
        foreign("lib.Own", foreign("httpx.ConnectError"))("closed"),
        urllib.error.URLError(ConnectionRefusedError("closed")),
        urllib.error.URLError(socket.gaierror("no such host")),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_nothing_was_sent(error: Exception) -> None:
    assert proves_absence(error)


@pytest.mark.parametrize(
    "error",
    [
        Exception("?"),
        ValueError("?"),
        TimeoutError("slow"),
        DeadlineExceeded("slow"),
        ConnectionError("?"),
        ConnectionResetError("reset"),
        ConnectionAbortedError("aborted"),
        BrokenPipeError("broken"),
        OSError("?"),
        EOFError("no answer"),
        KeyboardInterrupt(),
        foreign("httpx.ReadTimeout")("slow"),
        foreign("httpx.ReadError")("reset"),
        foreign("httpx.RemoteProtocolError")("no answer"),
        foreign("requests.exceptions.ConnectionError")("?"),
        foreign("own.ConnectError")("of whom?"),
        urllib.error.URLError("unknown url type"),
        urllib.error.URLError(TimeoutError("slow")),
        urllib.error.URLError(ConnectionResetError("reset")),
        Wrapping(ConnectionRefusedError("the last try")),
        Declined("not declared"),
        ExceptionGroup("several", [NotHappened("one of them")]),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_it_may_have_happened(error: BaseException) -> None:
    assert not proves_absence(error)


@pytest.mark.parametrize("how", ["cause", "context"])
def test_what_is_behind_an_error_proves_nothing(how: str) -> None:
    """It may be that of an earlier try of the same call."""
    error = ValueError("the second try")
    setattr(error, f"__{how}__", ConnectionRefusedError("the first try"))
    assert not proves_absence(error)


@pytest.mark.parametrize("how", ["cause", "context"])
def test_what_came_before_it_may_have_happened(how: str) -> None:
    """A refused connection while an error of an earlier try is handled, by the same code."""
    for earlier in (ConnectionResetError("reset"), TimeoutError("slow"), foreign("httpx.ReadTimeout")("slow")):
        error = ConnectionRefusedError("the second try")
        setattr(error, f"__{how}__", earlier)
        assert not proves_absence(error)
        assert not proves_absence(urllib.error.URLError(error))


def test_code_that_may_have_tried_before() -> None:
    """A library that is not known may try again by itself, so its author's error proves nothing."""

    def raised(module: str, file: str) -> Exception:
        names: dict[str, Any] = {"__name__": module, "__file__": file}
        exec("def post():\n    raise ConnectionRefusedError", names)  # noqa: S102
        with pytest.raises(ConnectionRefusedError) as caught:
            names["post"]()
        return caught.value

    installed = "/somewhere/site-packages/retrier/core.py"
    assert not proves_absence(raised("retrier.core", installed))
    assert not proves_absence(raised("retrier.core", installed), author="app.tasks")
    assert proves_absence(raised("retrier.core", installed), (ConnectionRefusedError,))
    assert proves_absence(raised("retrier.core", installed), author="retrier.tasks"), "it is the author's own package"
    assert not proves_absence(raised("xmlrpc.client", "/usr/lib/python3/xmlrpc/client.py"), author="xmlrpc")
    assert proves_absence(raised("app.payments", "/home/app/payments.py"))


@pytest.mark.parametrize(
    ("error", "declared", "proven"),
    [
        (Declined(), (Declined,), True),
        (CardDeclined(), (Declined,), True),
        (Declined(), (CardDeclined,), False),
        (Declined(), (f"{__name__}.Declined",), True),
        (CardDeclined(), (f"{__name__}.Declined",), True),
        (Declined(), ("Declined",), False),
        (ValueError(), ("ValueError",), True),
        (ValueError(), (KeyError, "ValueError"), True),
        (KeyError(), ("LookupError",), True),
        (ConnectionRefusedError(), (ValueError,), True),
        (urllib.error.URLError(Declined()), (Declined,), False),
        (urllib.error.URLError("no such thing"), (urllib.error.URLError,), True),
    ],
)
def test_its_author_may_know_more(error: Exception, declared: tuple[type[Exception] | str, ...], proven: bool) -> None:
    assert proves_absence(error, declared) is proven
