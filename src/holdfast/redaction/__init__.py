"""Redaction: replaces the credentials that this process uses in every text that leaves it.

Code that sends a credential registers it first (``know``). Every error, note, reason and log line then passes
``redacted`` before it is stored or shown. The door of the journal is ``Commit.__post_init__`` in ``model/commit.py``,
which calls ``model/remarks.py``. docs/security.md describes what that covers, and what it does not.

Modules:

credentials.py  Finding credentials in a header, a URL, a body, an environment or a command, by their place and name
logs.py         Log records without credentials: those of this package, and those of the libraries that carry
                credentials for it
names.py        Names that mean a credential: of headers, variables, options, and parameters of a URL
text.py         The known credentials, and replacing them in text: by value, so it works for text from any source
urls.py         The URL of a store, shown without its password
"""

from holdfast.redaction.credentials import (
    know_body,
    know_command,
    know_environment,
    know_headers,
    know_proxies,
    know_url,
    read_credentials,
    shown_url,
)
from holdfast.redaction.logs import guard_libraries, make_logger
from holdfast.redaction.text import (
    HIDDEN,
    StreamRedactor,
    cause_of,
    know,
    knows_any,
    redacted,
    redacted_data,
    without_beginning,
)
from holdfast.redaction.urls import without_password

__all__ = [
    "HIDDEN",
    "StreamRedactor",
    "cause_of",
    "guard_libraries",
    "know",
    "know_body",
    "know_command",
    "know_environment",
    "know_headers",
    "know_proxies",
    "know_url",
    "knows_any",
    "make_logger",
    "read_credentials",
    "redacted",
    "redacted_data",
    "shown_url",
    "without_beginning",
    "without_password",
]
