"""Log records without credentials: those of this package, and those of the libraries that carry credentials for it."""

from __future__ import annotations

import logging
import traceback
from typing import Final

from holdfast.redaction.text import redacted

_LIBRARIES: Final = ("asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "mcp", "openai", "psycopg", "uvicorn")
"""What logs the URLs it sends requests to, and the errors of code that was sent a credential."""

_BELOW: Final = (
    *(
        f"httpcore{number}.{part}"
        for number in ("", "2")
        for part in ("connection", "http11", "http2", "proxy", "socks")
    ),
    *("mcp.client.sse", "mcp.client.stdio", "mcp.client.streamable_http", "openai._base_client", "psycopg.pool"),
)
"""Those that would log a credential and may be loaded after anybody asked; others are found by then."""


class _Redaction(logging.Filter):
    """Lets every record pass, without credentials. It stands at the logger, so that every handler gets that."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the message, the traceback and the fields of a record."""
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a record whose arguments do not fit; its handler complains about that
            return True
        if (shown := redacted(message)) != message:
            record.msg, record.args = shown, None
        if record.exc_info and record.exc_info[0] is not None and record.exc_text is None:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            if (shown := redacted(text)) != text:
                # The exception itself holds the credential, and handlers format it as they like. So it goes.
                record.exc_info, record.exc_text = None, shown
        for name, value in vars(record).items():
            if isinstance(value, str) and name != "msg" and (shown := redacted(value)) != value:
                setattr(record, name, shown)
        return True


_REDACTION: Final = _Redaction()


def make_logger(name: str) -> logging.Logger:
    """Return the logger of a module, whose records hold no credential. Every module of this package gets its own here.

    A filter of a logger is not asked for the records of those below it: each needs it.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_REDACTION)
    return logger


def guard_libraries() -> None:
    """Redact the records of the libraries that may log a credential. Asked for again after another one was loaded."""
    for name in (*_LIBRARIES, *_BELOW, *list(logging.Logger.manager.loggerDict)):
        if name.partition(".")[0] in _LIBRARIES:
            logging.getLogger(name).addFilter(_REDACTION)
