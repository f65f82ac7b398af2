"""Whether anything waits for a person."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.service.diagnosis.evidence import A_DAY, Inside
from holdfast.service.diagnosis.finding import Finding, Level
from holdfast.service.diagnosis.workers import counted


def check_approvals(seen: Inside) -> Iterator[Finding]:
    """Find requests that were open for too long."""
    ages = [seen.now - approval.created_at for approval in seen.approvals if approval.created_at is not None]
    old = [age for age in ages if age > A_DAY]
    if old:
        count = counted(len(old), "request", at_least="approvals" in seen.cut)
        words = f"{count} open for more than a day, the oldest for {max(old) / A_DAY:.1f} days"
        yield Finding("approvals", Level.WARNING, words, "holdfast approvals")
    elif seen.approvals:
        count = counted(len(seen.approvals), "request", at_least="approvals" in seen.cut)
        words = f"{count} open, none for longer than a day"
        yield Finding("approvals", Level.NOTE, words, "holdfast approvals")


def check_doubts(seen: Inside) -> Iterator[Finding]:
    """Find effects whose outcome only a person can find out."""
    undecided = [doubt for doubt in seen.doubts if doubt.decisions]
    if undecided:
        count = counted(len(undecided), "effect", at_least="doubts" in seen.cut)
        words = f"{count} in doubt: whether it happened is not known, and its task waits"
        yield Finding("doubts", Level.WARNING, words, "find out, then decide: holdfast doubts, holdfast resolve")
