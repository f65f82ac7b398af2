"""What is known is replaced, in every way it may be written; what only looks like it stays."""

from __future__ import annotations

import base64
import json
import logging
import sys
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.engine.runtime import log
from holdfast.model.approval import ApprovalState
from holdfast.model.commit import Commit, Expect
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.failure import Failure, storable
from holdfast.model.operations import (
    ApplyPatch,
    Decide,
    Move,
    Operation,
    ReopenChild,
    RequestCancel,
    SetAsideCheckpoint,
    WriteEffect,
    WriteOutcome,
    WriteStep,
)
from holdfast.model.step import Step, StepState
from holdfast.model.transitions import TaskState
from holdfast.redaction import (
    StreamRedactor,
    cause_of,
    guard_libraries,
    know,
    know_command,
    know_environment,
    know_headers,
    know_url,
    make_logger,
    redacted,
    redacted_data,
    shown_url,
)
from holdfast.redaction.credentials import read_credentials
from holdfast.redaction.names import is_credential
from holdfast.redaction.text import MOST, SHORTEST, without_beginning

KEY = 'sk-"live"/SECRET+canary é'


def test_a_password_that_is_a_word_is_replaced_only_where_it_stands_as_one() -> None:
    """Or the names of databases, of errors and of modules would go, and the arguments that a model writes."""
    know_url("postgresql://me:postgres@db/postgres")
    know("holdfast")
    kept = (
        "a postgresql database named postgres",
        "holdfast.TaskFailed",
        '{"database": "postgres"}',
        "dbname=postgres",
    )
    assert [redacted(text) for text in kept] == list(kept)
    assert redacted("at postgresql://me:postgres@db/postgres") == "at postgresql://***@db/postgres"
    assert redacted("host=db password=postgres") == "host=db password=***"
    assert redacted("Authorization: Bearer holdfast") == "Authorization: Bearer ***"


def test_a_value_that_may_be_a_word_is_replaced_where_it_stands_in_a_url() -> None:
    """Libraries log the URLs that they send requests to."""
    for value in ("SECRETpw", "pw", "a b"):
        written = quote(value)
        for name in ("key", "api_key", "access_token"):
            know_url(f"https://host/mcp?page=2&{name}={written}")
            for logged in (f"https://host/mcp?page=2&{name}={written}", f"'http://host/?{name}={written}&b=pw'"):
                shown = redacted(f"Connecting to {logged} again")
                assert f"{name}={written}" not in shown, (name, value)
                assert shown == f"Connecting to {logged.replace(f'{name}={written}', f'{name}=***')} again"
        know_url(f"https://user:{written}@host/mcp")
        assert redacted(f"at https://user:{written}@host/mcp") in {
            "at https://***@host/mcp",
            "at https://user:***@host/mcp",
        }
    innocent = ("see https://host/?q=pw&key=other", "a key=pw of a map", "at 12:pw@noon", "https://host/a:pw@b")
    assert [redacted(text) for text in innocent] == list(innocent)


def test_a_known_value_is_replaced_however_it_is_written() -> None:
    know(KEY)
    written = [
        KEY,
        json.dumps(KEY),
        json.dumps(KEY, ensure_ascii=False),
        repr(KEY),
        quote(KEY, safe=""),
        base64.b64encode(KEY.encode()).decode(),
        KEY.replace('"', "&quot;"),
    ]
    for form in written:
        assert "canary" not in redacted(f"<{form}>"), form
        assert redacted(f"<{form}>").count("***") == 1, form


def test_innocent_text_is_left_alone() -> None:
    """A short value may be part of any word, or stand for a key where none is needed."""
    know("a", "abc", "none", "x" * (SHORTEST - 1), "", None, "       ")
    know_url("postgresql://u:abc@host/db?sslmode=require&application_name=warehouse-7")
    know_headers({"Content-Type": "application/json", "Idempotency-Key": "effect-0123456789", "Accept": "text/html"})
    know_environment({"PATH": "/usr/local/bin", "LANG": "en_US.UTF-8"})
    know_command(["uvx", "some-server", "--verbose", "--folder=/srv/a-long-folder"])
    innocent = (
        "abc none xxxxxxx application/json effect-0123456789 /usr/local/bin en_US.UTF-8 require warehouse-7 "
        "uvx some-server /srv/a-long-folder"
    )
    assert redacted(innocent) == innocent
    assert storable(innocent) == innocent


def test_what_is_known_is_bounded_and_shared_by_threads() -> None:
    know("the-oldest-of-them")
    threads = [threading.Thread(target=know, args=[f"value-number-{n:05}"]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(redacted(f"value-number-{n:05}") == "***" for n in range(8))
    know(*(f"other-number-{n:05}" for n in range(MOST)))
    assert redacted("the-oldest-of-them") == "the-oldest-of-them"


def test_credentials_are_found_where_they_stand() -> None:
    know_headers(
        {"Authorization": "Bearer bearer-canary", "X-Api-Key": "header-canary", "Private-Token": "pt-canary-1"}
    )
    know_headers([("Proxy-Authorization", "Basic " + base64.b64encode(b"me:basic-canary").decode())])
    know_headers({"Cookie": "a=1; sid=cookie-canary"})
    know_url("https://user:url-canary@host/path?api_key=query-canary&sig=signed-canary&page=2")
    know_url("postgresql://h/d?listen_url=postgresql%3A%2F%2Fu%3Ainner-canary%40h%2Fd")
    know_environment(
        {"GITHUB_TOKEN": "env-canary-1", "DATABASE_URL": "mysql://u:env-canary-2@h/d", "PGPASSWORD": "env-canary-3"}
    )
    know_command(["server", "--token", "word-canary-1", "--api-key=word-canary-2", "http://u:word-canary-3@h"])
    for one in (
        *("bearer-canary", "header-canary", "pt-canary-1", "basic-canary", "cookie-canary"),
        *("url-canary", "query-canary", "signed-canary", "inner-canary"),
        *("env-canary-1", "env-canary-2", "env-canary-3", "word-canary-1", "word-canary-2", "word-canary-3"),
    ):
        assert redacted(f"({one})") == "(***)", one


def test_a_url_is_shown_without_account_and_query() -> None:
    for url, shown in (
        ("https://u:p@host:8443/path?key=x#y", "host:8443/path"),
        ("http://[::1]:80/mcp", "[::1]:80/mcp"),
        ("http://u:p@ss@host/x", "host/x"),
        ("http://host:secret/x", "(a URL that cannot be read)"),
        ("http:u:p@host", "(a URL that cannot be read)"),
    ):
        assert shown_url(url) == shown
    assert shown_url("https://hooks.example/services/T0/B0/XXXX", path=False) == "hooks.example"


def test_a_text_is_redacted_before_it_is_cut() -> None:
    """Half of a credential would not be recognised."""
    know("0123456789-canary-0123456789")
    for length in range(60, 140):
        assert "canar" not in storable("." * 40 + "0123456789-canary-0123456789" + "." * 90, length)


def test_a_stream_shows_no_part_of_a_credential() -> None:
    know("sk-live-canary-0123")
    for size in range(1, 25):
        curtain, text, shown = StreamRedactor(), "so sk-live-canary-0123, sk-live-other, s", []
        for start in range(0, len(text), size):
            shown.append(curtain.take(text[start : start + size]))
            assert "sk-live-c" not in "".join(shown)
        assert "".join([*shown, curtain.end()]) == "so ***, sk-live-other, s"
    assert without_beginning("ends in sk-li") == "ends in "


def test_only_what_cannot_be_anything_else_is_replaced_in_data() -> None:
    """An order whose number is also a password must stay that order: whether it was paid is looked up by it."""
    weak = ("holdfast-2026", "12345678", "postgres", "2026-11-16", "0000000000000000")
    know(*weak)
    for value in weak:
        assert redacted(value, in_data=True) == redacted_data(value) == value
    data = {"a": ["sk-canary-0123456789", 1, None], "sk-canary-0123456789": {"b": "x sk-canary-0123456789"}}
    assert redacted_data(data) == data
    know("sk-canary-0123456789")
    assert redacted_data(data) == {"a": ["***", 1, None], "***": {"b": "x ***"}}


def test_a_failure_keeps_the_names_that_code_goes_by() -> None:
    """Its steps are begun again by their keys, and its types decide whether it is tried again."""
    know("holdfast1")
    failure = Failure(
        type_name="holdfast1.Error",
        type_names=("holdfast1.Error",),
        message="at holdfast1",
        steps=("charge-holdfast1",),
    )
    [moved] = Commit(
        task_id="t", guard=Expect(), operations=(Move(to=TaskState.FAILED, reason="", error=failure.to_json()),)
    ).operations
    assert isinstance(moved, Move)
    kept = Failure.from_json(moved.error)
    assert (kept.type_names, kept.steps, kept.message) == (("holdfast1.Error",), ("charge-holdfast1",), "at ***")


def test_names_and_addresses_that_hold_no_credential() -> None:
    innocent = ("sort_key", "cache_key", "country_code", "max_tokens", "monkey", "error_code", "X-Idempotency-Key")
    assert not any(map(is_credential, innocent))
    assert all(map(is_credential, ("api_key", "X-Api-Key", "key", "Private-Token", "PGPASSWORD", "sig", "secret_key")))
    for url in (
        "https://api.example.com:8443/v1/users/@me",
        "https://crm.example/u?email=bob.smith@example.com",
        "https://shop.example/cart?promo_code=SUMMER-2026",
    ):
        assert read_credentials(url) == []
    assert read_credentials("https://me:a-password@crm.example/@x") == ["me:a-password", "a-password"]


def test_a_cause_with_a_credential_in_it_is_dropped() -> None:
    know("canary-value")
    guilty = ValueError("innocent")
    guilty.__cause__ = KeyError("canary-value")
    assert cause_of(guilty) is None
    assert cause_of(other := ValueError("innocent")) is other


def test_no_failure_holds_a_credential() -> None:
    know("canary-value")
    try:
        try:
            raise KeyError("canary-value")  # noqa: TRY301
        except KeyError as cause:
            raise ExceptionGroup("canary-value", [ValueError("canary-value"), OSError("x canary-value")]) from cause
    except ExceptionGroup as error:
        failure = Failure.of(error)
    assert "canary" not in str(failure.to_json())
    assert failure.message.count("***") == 2


def test_no_remark_passes_the_door_of_the_journal() -> None:
    """Every field of an operation that says what went wrong, or why; and no data."""
    know("canary-value")
    body = b'{"message":"canary-value"}'
    step = Step(key="a", position=1, state=StepState.FAILED, kind="step", output=b'"canary-value"', error=body)
    effect = Effect(
        effect_id="e",
        step_key="a",
        effect_class=EffectClass.ONCE,
        state=EffectState.IN_DOUBT,
        arguments=b'["canary-value"]',
        note="x canary-value",
    )
    operations: tuple[Operation, ...] = (
        WriteStep(step),
        WriteEffect(effect),
        ApplyPatch(body=b"{}", author="a", reason="canary-value"),
        SetAsideCheckpoint(number=1, why="canary-value"),
        Decide(approval_id="a", state=ApprovalState.APPROVED, by="me", note="canary-value"),
        ReopenChild(
            child_id="c", revision=1, reason="canary-value", feedback="canary-value", new_round=True, lines=(step,)
        ),
        RequestCancel(reason="canary-value"),
        WriteOutcome(error={"message": "canary-value"}),
        Move(to=TaskState.FAILED, reason="canary-value", error={"a": ["canary-value"]}, feedback="canary-value"),
    )
    commit = Commit(task_id="t", guard=Expect(), operations=operations)
    kept = [one for one in map(str, commit.operations) if "canary" in one]
    assert len(kept) == 3, kept  # what a step returned, and what a call was given: data
    for text in kept:
        assert text.count("canary") == 1, text
    same = (WriteStep(Step(key="a", position=1, state=StepState.COMPLETED, kind="step", output=b'"canary-value"')),)
    assert Commit(task_id="t", guard=Expect(), operations=same).operations is same


def test_log_records_hold_no_credential(caplog: pytest.LogCaptureFixture) -> None:
    know("canary-value")
    logger = make_logger("holdfast.some.module")
    guard_libraries()
    with caplog.at_level(logging.DEBUG):
        logger.info("asked %s", "http://u:canary-value@h", extra={"reason": "canary-value", "task_id": "t"})
        try:
            raise ValueError("canary-value")  # noqa: TRY301
        except ValueError:
            logger.exception("failed")
            logging.getLogger("httpx2").exception("HTTP Request: POST %s", "http://h?key=canary-value")
        logger.info("innocent", exc_info=sys.exc_info())
    assert "canary" not in caplog.text
    assert not any("canary" in str(vars(record)) for record in caplog.records)
    assert caplog.text.count("ValueError: ***") == 2
    assert caplog.records[0].__dict__["reason"] == "***"


def test_a_log_line_is_redacted_before_it_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    know("canary-value")
    with caplog.at_level(logging.INFO):
        for before in range(480, 510):
            log.moved_by_hand("t", TaskState.FAILED, f"{'.' * before}canary-value and more")
    assert len(caplog.records) > 1
    assert "can" not in caplog.text


def test_every_module_has_its_logger_from_the_one_place() -> None:
    source = Path(__file__).parents[2] / "src" / "holdfast"
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.parent.name != "redaction" and "getLogger(" in text:
            # To choose what is shown, and where; nothing is logged by these.
            assert path.relative_to(source).as_posix() == "cli/logs.py", path
