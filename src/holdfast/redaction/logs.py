"""Log records without credentials: those of this package, and those of the libraries that carry credentials for it."""

from __future__ import annotations

import logging
import traceback
from typing import Final

from holdfast.redaction.text import redacted

_LIBRARIES: Final = ("asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "mcp", "openai", "psycopg", "uvicorn")
"""Libraries that log URLs they send requests to, or errors of code that uses a credential."""

_BELOW: Final = (
    *(
        f"httpcore{number}.{part}"
        for number in ("", "2")
        for part in ("connection", "http11", "http2", "proxy", "socks")
    ),
    *("mcp.client.sse", "mcp.client.stdio", "mcp.client.streamable_http", "openai._base_client", "psycopg.pool"),
)
"""Loggers that may log a credential and may be created after ``guard_libraries`` ran; it finds the others itself."""


class _Redaction(logging.Filter):
    """Removes credentials from every record. It is a filter of the logger, so it works for every handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the message, the traceback and the fields of a record."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - arguments that do not fit the message; the handler reports that
            return True
        if (shown := redacted(message)) != message:
            record.msg, record.args = shown, None
        if record.exc_info and record.exc_info[0] is not None and record.exc_text is None:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            if (shown := redacted(text)) != text:
                # The exception holds the credential, and handlers format it themselves. So it is removed.
                record.exc_info, record.exc_text = None, shown
        for name, value in vars(record).items():
            if isinstance(value, str) and name != "msg" and (shown := redacted(value)) != value:
                setattr(record, name, shown)
        return True


_REDACTION: Final = _Redaction()


def make_logger(name: str) -> logging.Logger:
    """Return the logger of a module; its records hold no credential. Every module of this package gets its logger here.

    A logger's filter does not see the records of its child loggers, so each logger needs the filter.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_REDACTION)
    return logger


def guard_libraries() -> None:
    """Redact the records of the libraries that may log a credential. Called again after another library was loaded."""
    for name in (*_LIBRARIES, *_BELOW, *list(logging.Logger.manager.loggerDict)):
        if name.partition(".")[0] in _LIBRARIES:
            logging.getLogger(name).addFilter(_REDACTION)
