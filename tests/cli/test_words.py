"""What the command line says and answers, as tables."""

from __future__ import annotations

import pytest

from holdfast import (
    CodecError,
    DeadlineExceeded,
    Failure,
    HoldfastError,
    InvalidURL,
    KeyConflict,
    NotFound,
    StoreUnavailable,
    TaskCancelled,
    TaskFailed,
)
from holdfast.cli.exits import exit_code
from holdfast.redaction import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///agents.db", "sqlite:///agents.db"),
        ("sqlite:////var/lib/my agents.db", "sqlite:////var/lib/my agents.db"),
        ("json:///folder", "json:///folder"),
        ("postgresql://me@host/database", "postgresql://me@host/database"),
        ("postgresql://me:secret@host:5433/database", "postgresql://me:***@host:5433/database"),
        ("postgresql://me:se:cr@et@one,two:1/database", "postgresql://me:***@one,two:1/database"),
        ("postgresql:///d?host=/run&password=secret", "postgresql:///d?host=/run&password=***"),
        ("postgresql://h/d?sslPassword=secret&a=b", "postgresql://h/d?sslPassword=***&a=***"),
        ("postgresql://me:secret@[::1/d", "postgresql:***"),
        ("postgresql://h/d?secret", "postgresql:***"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidURL("x"), 2),
        (CodecError("x"), 2),
        (NotFound("task", "x"), 3),
        (KeyConflict("name", "key", "x"), 4),
        (TaskFailed("x", Failure(type_name="x", message="x")), 5),
        (TaskCancelled("x", "x"), 5),
        (DeadlineExceeded("x"), 124),
        (StoreUnavailable("x"), 1),
        (HoldfastError("x"), 1),
    ],
)
def test_an_error_has_an_exit_code(error: HoldfastError, code: int) -> None:
    assert exit_code(error) == code
