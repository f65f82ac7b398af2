"""Tokens: who holds which, and what each of them allows.

They come from the environment, never from a file or an option, which other users can read. A secret is hashed as soon
as it is read, and no message repeats any part of a variable that may hold one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.model.errors import InvalidValue
from holdfast.redaction import know
from holdfast.service.access import AccessScope, Caller, read_scopes
from holdfast.web.address import Address

TOKEN_VARIABLE: Final = "HOLDFAST_API_TOKEN"  # noqa: S105 - where a secret is, not the secret
TOKEN_PREFIX: Final = "HOLDFAST_API_TOKEN_"  # noqa: S105 - as above
"""The name of a token follows: HOLDFAST_API_TOKEN_CI."""

SHORTEST = 16
"""Characters. Nothing slows guessing down, so a secret has to be long enough."""
MAKE_ONE = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'
FOR_THIS_RUN = "made for this run"

_SCOPES = ", ".join(AccessScope)


@dataclass(frozen=True, slots=True)
class Token:
    """A secret that lets a caller in."""

    caller: Caller
    origin: str
    """The variable that holds it, or that it was made for this run."""
    digest: bytes = field(repr=False)


class Tokens:
    """All tokens of a server."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        """Refuse names and secrets that do not tell one caller from another."""
        self._tokens = tuple(tokens)
        names: dict[str, str] = {}
        digests: dict[bytes, str] = {}
        for token in self._tokens:
            if (other := names.setdefault(token.caller.name, token.origin)) != token.origin:
                raise InvalidValue(f"{other} and {token.origin} both name the token {token.caller.name!r}; rename one")
            if (other := digests.setdefault(token.digest, token.origin)) != token.origin:
                raise InvalidValue(
                    f"{other} and {token.origin} hold the same secret, so the server could not tell the two apart; "
                    f"make another: {MAKE_ONE}"
                )

    @property
    def callers(self) -> list[str]:
        """The names of their callers."""
        return [token.caller.name for token in self._tokens]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._tokens)

    def __str__(self) -> str:
        """Name them with their scopes and origins, for people."""
        return ", ".join(f"{token.caller.name} ({_scopes_of(token)}; {token.origin})" for token in self._tokens)

    def caller_of(self, secret: bytes) -> Caller | None:
        """Return the caller with this secret; None if there is none.

        All hashes are compared, so that the time it takes does not show how close a guess came.
        """
        digest = _digest(secret)
        found: Caller | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token.caller
        return found


def read_tokens(environment: Mapping[str, str]) -> Tokens:
    """Read HOLDFAST_API_TOKEN and HOLDFAST_API_TOKEN_<NAME>. Raises InvalidValue; an empty variable counts as unset."""
    tokens = []
    for variable in sorted(environment):
        value = environment[variable].strip()  # a secret that was kept in a file often ends in a line break
        if value and variable == TOKEN_VARIABLE:
            tokens.append(_unnamed(variable, value))
        elif value and variable.startswith(TOKEN_PREFIX):
            tokens.append(_named(variable, value))
    return Tokens(tokens)


def find_tokens(environment: Mapping[str, str], address: Address) -> tuple[Tokens, str | None]:
    """Return the tokens of a server, and the secret of one that had to be made. There is always at least one."""
    tokens = read_tokens(environment)
    if tokens:
        return tokens, None
    if not address.is_loopback:
        raise InvalidValue(
            f"others can reach {address.host}, and there is no token; set {TOKEN_VARIABLE} to what this prints: "
            f"{MAKE_ONE}"
        )
    return make_token()


def introduction(tokens: Tokens, secret: str | None) -> list[str]:
    """Return the lines about tokens that are printed when the server starts."""
    if secret is None:
        return [f"tokens: {tokens}"]
    return [f"{TOKEN_VARIABLE} is not set; this token holds for this run:", f"Authorization: Bearer {secret}"]


def make_token() -> tuple[Tokens, str]:
    """Return one new token for this run, and its secret."""
    secret = secrets.token_urlsafe(32)
    return Tokens([Token(Caller("local"), FOR_THIS_RUN, _digest(secret.encode()))]), secret


def _unnamed(variable: str, value: str) -> Token:
    if _begins_with_scopes(value):
        raise InvalidValue(f"{variable} takes no scopes; give the token a name: {TOKEN_PREFIX}<NAME>=read+work:SECRET")
    return Token(Caller("api"), variable, _checked_digest(variable, value))


def _named(variable: str, value: str) -> Token:
    name = variable.removeprefix(TOKEN_PREFIX).lower()
    if not name:
        raise InvalidValue(f"{variable} gives its token no name; call it {TOKEN_PREFIX}<NAME>")
    if not _begins_with_scopes(value):
        # Not even the part before the colon is shown: without scopes it would be the beginning of the secret.
        raise InvalidValue(f"{variable} does not begin with scopes; write read+work:SECRET, with some of {_SCOPES}")
    words, _, secret = value.partition(":")
    return Token(Caller(name, read_scopes(words.split("+"))), variable, _checked_digest(variable, secret))


def _begins_with_scopes(value: str) -> bool:
    words, colon, _ = value.partition(":")
    return bool(colon) and all(word.strip() in set(AccessScope) for word in words.split("+"))


def _checked_digest(variable: str, secret: str) -> bytes:
    know(secret)
    if len(secret) < SHORTEST:
        raise InvalidValue(
            f"the secret in {variable} has {len(secret)} characters, and {SHORTEST} are the least; "
            f"make a good one: {MAKE_ONE}"
        )
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InvalidValue(
            f"the secret in {variable} has characters that a header cannot carry; make another: {MAKE_ONE}"
        )
    return _digest(secret.encode())


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def _scopes_of(token: Token) -> str:
    return "+".join(scope for scope in AccessScope if token.caller.may(scope))
