"""Tokens: what they allow, what is refused, and that no message holds a secret."""

from __future__ import annotations

import hmac

import pytest

from holdfast.model.errors import InvalidValue
from holdfast.service.access import EVERYTHING, AccessScope, Caller
from holdfast.settings import unknown_variables
from holdfast.web import tokens as module
from holdfast.web.tokens import MAKE_ONE, TOKEN_PREFIX, TOKEN_VARIABLE, Tokens, make_token, read_tokens
from tests.web.support import OTHER, SECRET


def test_the_one_without_a_name_may_do_what_agents_may() -> None:
    tokens = read_tokens({"HOLDFAST_API_TOKEN": SECRET, "HOLDFAST_USER": "anna"})
    assert len(tokens) == 1
    assert tokens.caller_of(SECRET.encode()) == Caller("api", EVERYTHING)
    assert str(tokens) == "api (read+work+submit; HOLDFAST_API_TOKEN)"


def test_one_with_a_name_may_do_what_its_scopes_say() -> None:
    tokens = read_tokens({"HOLDFAST_API_TOKEN_CI": f"read+submit:{SECRET}", "HOLDFAST_API_TOKEN_EYES": f"read:{OTHER}"})
    assert tokens.caller_of(SECRET.encode()) == Caller("ci", frozenset({AccessScope.READ, AccessScope.SUBMIT}))
    assert tokens.caller_of(OTHER.encode()) == Caller("eyes", frozenset({AccessScope.READ}))
    assert str(tokens) == "ci (read+submit; HOLDFAST_API_TOKEN_CI), eyes (read; HOLDFAST_API_TOKEN_EYES)"


@pytest.mark.parametrize(
    "guess", [b"", SECRET[:-1].encode(), f"{SECRET}x".encode(), f"read:{SECRET}".encode(), b"\xff"]
)
def test_other_callers_are_refused(guess: bytes) -> None:
    assert read_tokens({"HOLDFAST_API_TOKEN_CI": f"read:{SECRET}"}).caller_of(guess) is None


def test_a_secret_may_have_colons_and_the_line_break_of_its_file() -> None:
    tokens = read_tokens({"HOLDFAST_API_TOKEN": f"{SECRET}:x\n", "HOLDFAST_API_TOKEN_CI": f" read:{OTHER}:read:x\n"})
    assert tokens.caller_of(f"{SECRET}:x".encode()) == Caller("api")
    assert tokens.caller_of(f"{OTHER}:read:x".encode()) == Caller("ci", frozenset({AccessScope.READ}))


@pytest.mark.parametrize("environment", [{}, {"HOLDFAST_API_TOKEN": ""}, {"HOLDFAST_API_TOKEN_CI": " "}])
def test_an_empty_variable_is_not_a_token(environment: dict[str, str]) -> None:
    assert not read_tokens(environment)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {"HOLDFAST_API_TOKEN": "tiny-secret-abc"},
            f"16 are the least; make a good one: {MAKE_ONE}",
        ),
        ({"HOLDFAST_API_TOKEN_CI": "read:tiny-secret"}, "the secret in HOLDFAST_API_TOKEN_CI has 11 characters"),
        ({"HOLDFAST_API_TOKEN": f"{SECRET} {SECRET}"}, "characters that a header cannot carry"),
        ({"HOLDFAST_API_TOKEN": f"{SECRET}ü"}, "characters that a header cannot carry"),
        ({"HOLDFAST_API_TOKEN": f"read+work:{SECRET}"}, "HOLDFAST_API_TOKEN takes no scopes; give the token a name"),
        ({"HOLDFAST_API_TOKEN_CI": SECRET}, "HOLDFAST_API_TOKEN_CI does not begin with scopes"),
        ({"HOLDFAST_API_TOKEN_CI": f"{SECRET}:{SECRET}"}, "does not begin with scopes; write read+work:SECRET"),
        ({"HOLDFAST_API_TOKEN_CI": f"read+approve:{SECRET}"}, "with some of read, work, submit"),
        ({"HOLDFAST_API_TOKEN_CI": f":{SECRET}"}, "does not begin with scopes"),
        ({"HOLDFAST_API_TOKEN_": f"read:{SECRET}"}, "gives its token no name; call it HOLDFAST_API_TOKEN_<NAME>"),
        (
            {"HOLDFAST_API_TOKEN": SECRET, "HOLDFAST_API_TOKEN_CI": f"read:{SECRET}"},
            "HOLDFAST_API_TOKEN and HOLDFAST_API_TOKEN_CI hold the same secret",
        ),
        (
            {"HOLDFAST_API_TOKEN": SECRET, "HOLDFAST_API_TOKEN_API": f"read:{OTHER}"},
            "HOLDFAST_API_TOKEN and HOLDFAST_API_TOKEN_API both name the token 'api'; rename one",
        ),
    ],
)
def test_what_is_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_tokens(environment)
    assert words in str(refused.value)
    assert not any(secret in str(refused.value) for secret in (SECRET, OTHER, "tiny-secret"))


def test_a_token_for_this_run_is_new_each_time() -> None:
    (tokens, secret), (_, other) = make_token(), make_token()
    assert len(secret) > 40
    assert secret != other
    assert tokens.caller_of(secret.encode()) == Caller("local")
    assert str(tokens) == "local (read+work+submit; made for this run)"


def test_every_secret_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(module, "hmac", type("_Hmac", (), {"compare_digest": staticmethod(compare)}))
    tokens = read_tokens({"HOLDFAST_API_TOKEN": SECRET, "HOLDFAST_API_TOKEN_CI": f"read:{OTHER}"})
    assert tokens.caller_of(SECRET.encode()) == Caller("api")
    assert len(compared) == 2, "the first that fits must not end it"
    assert all(len(one) == len(other) == 32 for one, other in compared), "hashes, which are all of one length"


def test_no_secret_is_kept_or_shown() -> None:
    tokens = read_tokens({"HOLDFAST_API_TOKEN": SECRET})
    (token,) = tokens._tokens
    assert SECRET not in repr(token)
    assert repr(token.digest) not in repr(token)
    assert SECRET.encode() != token.digest
    assert isinstance(tokens, Tokens)


def test_no_warning_about_tokens_that_are_read() -> None:
    assert unknown_variables({TOKEN_VARIABLE: SECRET, f"{TOKEN_PREFIX}CI": f"read:{OTHER}"}) == {}
