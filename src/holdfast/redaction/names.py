"""Names that mean a credential: of headers, variables, options, and parameters of a URL."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(
    r"auth(?!or(?!i[sz]))|token(?!s)|secret|passw|passphrase|pwd|credential|cookie|sess(?:ion)?[-_.]?id|signature|dsn|jwt"
    r"|(?:^|[-_.])(?:pass|sig)$|^-*key$|(?:api|access|account|auth|encryption|master|private|secret|signing)[-_.]?key$",
    re.IGNORECASE,
)
"""Matches api_key, X-Api-Key, Private-Token, PGPASSWORD, sig and similar names."""

_NO_CREDENTIAL: Final = frozenset({"idempotency-key", "sec-websocket-key"})


def is_credential(name: str) -> bool:
    """Return whether a value with this name is a credential."""
    return _NAME.search(name) is not None and name.lower() not in _NO_CREDENTIAL
