"""An outage is a line in the log when it begins and a line when it is over, however many activities notice it."""

import logging
from types import SimpleNamespace

import pytest

from holdfast import NotAStore, SchemaMismatch, StoreDamaged, StoreReplaced, StoreUnavailable
from holdfast.store.outage import LONGEST_PAUSE, Outage, Streak

AWAY = StoreUnavailable("the database is away")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.levelname} {record.message}".partition(", after")[0] for record in caplog.records]


def test_an_outage_is_said_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    outage = Outage()
    claims, commits, reads = (Streak(what, outage) for what in ("claims", "commits", "reads"))
    begin = "WARNING the store cannot be used now: the database is away; everything waits for it, and goes on by itself"
    end = "WARNING the store can be used again"
    reads.worked()
    assert said(caplog) == []
    for _ in range(3):
        claims.failed(AWAY)
        commits.failed(AWAY)
        reads.worked()  # of a server that can only be read
    assert said(caplog) == [begin]
    claims.worked()
    assert said(caplog) == [begin]
    commits.worked()
    assert said(caplog) == [begin, end]
    claims.failed(AWAY)
    claims.left()  # its task was cancelled, which says nothing about the store
    assert said(caplog) == [begin, end, begin]
    reads.worked()
    assert said(caplog) == [begin, end, begin, end]


def test_an_outage_that_does_not_end_is_said_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage, now = Outage(), 1000.0
    monkeypatch.setattr("holdfast.store.outage.time", SimpleNamespace(monotonic=lambda: now))
    claims, commits = Streak("claims", outage), Streak("commits", outage)
    for now in (1000.0, 1500.0, 1601.0, 1602.0, 2100.0, 2202.0):  # noqa: B007 - the clock looks at it
        claims.failed(AWAY)
        commits.failed(AWAY)
    again = "WARNING the store cannot be used since {} minutes: the database is away"
    assert said(caplog)[1:] == [again.format(10), again.format(20)]


def test_what_does_not_pass_by_itself_is_not_said_to(caplog: pytest.LogCaptureFixture) -> None:
    for error in (
        StoreReplaced("moved; restart it"),
        StoreDamaged("damaged"),
        NotAStore("a text"),
        SchemaMismatch("new"),
    ):
        caplog.clear()
        beats = Streak("the heartbeat", Outage())
        for _ in range(3):
            beats.failed(error)
        assert said(caplog) == [f"ERROR the store cannot be used here any more: {error}"]


def test_an_unknown_error_is_said_once_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    streak = Streak("the heartbeat")
    pauses = [streak.failed(KeyError("a defect")) for _ in range(10)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] == LONGEST_PAUSE
    [record] = caplog.records
    assert (record.levelno, record.exc_info is not None) == (logging.ERROR, True)
    streak.worked()
    streak.worked()
    assert [record.message for record in caplog.records[1:]] == ["the heartbeat works again, after 10 failures"]
    assert streak.failed(KeyError("a defect")) == pauses[0]
