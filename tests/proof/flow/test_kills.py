"""SIGKILL at each write of the verbs that steer the flow: another process finds all or nothing, and sends it again.

That is tested for every row of the database: what a killed process leaves is compared with what was there, and with
what an undisturbed process makes of it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from holdfast.testing.contract._support import row
from tests.forkserver import CONTEXT, preload
from tests.proof.engine.conditions import until_alone
from tests.proof.flow.life import AtEvent, AtTable, Events, Moment, live
from tests.proof.flow.rows import Rows, change, rows_of
from tests.proof.flow.verbs import VERBS, Verb, application, prepare_all

preload("tests.proof.flow.life", "holdfast.store.sqlite", "holdfast.store.postgres")
LONGEST_LIFE = 120.0


@dataclass(frozen=True)
class Undisturbed:
    """What a verb does where no process is killed."""

    events: list[str]
    changed: tuple[Rows, Rows]
    changed_by_two: tuple[Rows, Rows]
    """Sent twice."""


async def undisturbed(url: str) -> dict[str, Undisturbed]:
    """Send each verb twice, and see that it answers as the table says."""
    found = {}
    await prepare_all(url)
    for verb in VERBS:
        before = rows_of(url)
        events = Events()
        async with application(url) as hold:
            assert await events.watch(hold, verb.send) == verb.first, verb.name
        once = rows_of(url)
        assert once != before, verb.name
        async with application(url) as hold:
            assert await verb.send(hold) == verb.again, verb.name
        found[verb.name] = Undisturbed(events.seen, change(before, once), change(before, rows_of(url)))
    return found


def last_moments(verb: Verb, known: Undisturbed, url: str) -> list[Moment]:
    """Return the last moment at which nothing is stored, and the first one at which all is."""
    if url.startswith("postgresql"):
        return [AtTable(verb.tables[-1], with_session=first, locks_rows=verb.locks_rows) for first in (True, False)]
    backwards = known.events[::-1]
    return [AtEvent(len(backwards) - backwards.index(event)) for event in ("COMMIT", "committed")]


def all_moments(verb: Verb, known: Undisturbed, url: str) -> list[Moment]:
    """Return every statement of SQLite; or every query of PostgreSQL, and every table that it writes."""
    moments: list[Moment] = [AtEvent(number + 1) for number in range(len(known.events))]
    if url.startswith("postgresql"):
        for table in verb.tables:
            moments += [AtTable(table, with_session=first, locks_rows=verb.locks_rows) for first in (True, False)]
    return moments


def is_done_by(moment: Moment, known: Undisturbed, url: str) -> bool | None:
    """Return whether the verb is done at this moment; None: which of its queries does it is not known here."""
    if isinstance(moment, AtTable):
        return not moment.with_session
    if url.startswith("postgresql"):
        return None
    return "committed" in known.events[: moment.number]


def kill_amid(url: str, verb: Verb, moment: Moment) -> None:
    process = CONTEXT.Process(target=live, args=(url, verb.name, moment))
    process.start()
    process.join(LONGEST_LIFE)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("it neither ended nor died")
    assert process.exitcode == -signal.SIGKILL, f"it was to die, and ended with {process.exitcode}"


async def kill_and_look(url: str, verb: Verb, moment: Moment, known: Undisturbed) -> bool:
    """Kill a process amid the verb, and look at what it left; return whether it was done, after sending it again."""
    before = rows_of(url)
    kill_amid(url, verb, moment)
    await until_alone(url)
    left = change(before, rows_of(url))
    is_done = left == known.changed
    assert is_done or left == (Rows(), Rows()), "a part of it is there"
    assert is_done_by(moment, known, url) in {None, is_done}
    if is_done:
        async with application(url) as hold:
            assert await verb.send(hold) == verb.again
        assert change(before, rows_of(url)) == known.changed_by_two
    return is_done


@pytest.mark.parametrize("moments", [last_moments, pytest.param(all_moments, marks=pytest.mark.full)])
async def test_all_or_nothing(
    new_database: Callable[[], str], moments: Callable[[Verb, Undisturbed, str], list[Moment]]
) -> None:
    """Where nothing is left, the database is as it was: the next process, which is killed later, begins it again."""
    url = new_database()
    known = await undisturbed(url)
    left = {verb.name: moments(verb, known[verb.name], url) for verb in VERBS}
    done: dict[str, list[tuple[Moment, bool]]] = {name: [] for name in left}
    while any(left.values()):
        url = new_database()
        await prepare_all(url)
        for verb in VERBS:
            is_done = False
            while left[verb.name] and not is_done:
                moment = left[verb.name].pop(0)
                with row(verb.name, moment):
                    is_done = await kill_and_look(url, verb, moment, known[verb.name])
                done[verb.name].append((moment, is_done))
    for name, found in done.items():
        with row(name):
            assert {is_done for _, is_done in found} == {True, False}  # both ends of it were seen
            in_order = [is_done for moment, is_done in found if isinstance(moment, AtEvent)]
            assert in_order == sorted(in_order)
