"""The URL of a store, shown without its password."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from holdfast.redaction.text import HIDDEN

_SCHEMES = ("memory", "json", "sqlite", "postgresql", "postgres")
_FILES = frozenset({"memory", "json", "sqlite"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_ACCOUNT = re.compile(r"[^/]:[^/]+@")
"""A user and a password in the place of a path."""
_USER = re.compile(r"[\w.%+~-]*")
_HOSTS = re.compile(r"(?:(?:[\w.%-]*|\[[0-9A-Fa-f:.%]*\])(?::\d*)?(?:,|$))*")
_HARMLESS = frozenset(
    """
    application_name channel_binding client_encoding connect_timeout dbname fallback_application_name gssencmode host
    hostaddr keepalives keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts passfile port
    prepare replication require_auth service sslcert sslcrl sslcrldir sslkey sslmode sslnegotiation sslrootcert sslsni
    target_session_attrs tcp_user_timeout user
    """.split()  # noqa: SIM905 - so long a list is easier to read like this
)
"""Options of libpq that hold no secret. ``options`` is not among them: it can set anything."""


def without_password(url: str) -> str:
    """Return the URL with ``***`` for every password in it, and for every part that may be one in a mistyped URL.

    Only what is known to be harmless is shown: the scheme of a store, a path, a user, hosts, a database, and the
    options in ``_HARMLESS``.
    """
    if "://" not in url and not any(sign in url for sign in "@=?#%"):
        return url  # not a URL, but a path or a word
    scheme = next((known for known in _SCHEMES if url.lower().startswith(f"{known}://")), None)
    if scheme is None:
        named = _SCHEME.match(url)
        return f"{named[1]}://{HIDDEN}" if named else HIDDEN
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        return f"{scheme}:{HIDDEN}"  # it cannot be parsed, so any part may be its password
    return _file_without_password(parts) if scheme in _FILES else _database_without_password(parts, query)


def _database_without_password(parts: SplitResult, query: list[tuple[str, str]]) -> str:
    account, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = account.partition(":")
    if (
        "@" in f"{parts.path}{parts.fragment}"  # part of a password that was not escaped, or one slash too many
        or not _USER.fullmatch(user)
        or not _HOSTS.fullmatch(hosts)  # user:password without a host
    ):
        return f"{parts.scheme}://{HIDDEN}"
    place = f"{user}:{HIDDEN}@{hosts}" if colon else f"{user}{at}{hosts}"
    kept = [(name, _shown(name, value)) for name, value in query]
    written = parts.query if kept == query else urlencode(kept, safe="*/:")
    # urlunsplit writes sqlite:/x for sqlite:///x; people recognise what they typed.
    return f"{parts.scheme}://{place}{parts.path}{'?' if written else ''}{written}"


def _file_without_password(parts: SplitResult) -> str:
    """Return the URL of a store in files. It has no password, unless the user meant another kind of store."""
    if "@" in parts.netloc or _ACCOUNT.search(parts.path) is not None:
        return f"{parts.scheme}://{HIDDEN}"
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    return f"{shown}?{HIDDEN}" if parts.query else shown


def _shown(name: str, value: str) -> str:
    """Return the value of an option after '?', hidden unless it is harmless."""
    if name == "listen_url":
        return without_password(value)
    return value if name.lower() in _HARMLESS else HIDDEN
