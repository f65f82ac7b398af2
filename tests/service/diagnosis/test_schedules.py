"""What a diagnosis says about schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast import CatchUp, Holdfast, Overlap, Schedule
from holdfast.service.diagnosis.evidence_collector import gather
from holdfast.service.diagnosis.finding import Finding, Level
from holdfast.service.diagnosis.workers import check_schedules
from holdfast.testing.contract._support import row
from tests.service.diagnosis.test_checks import NOW, inside, worker

FINE = Schedule(
    name="nightly",
    task="backup",
    cron="0 3 * * *",
    every=None,
    timezone="UTC",
    jitter=NOW - NOW,
    overlap=Overlap.SKIP,
    catch_up=CatchUp.LAST,
    queue="default",
    priority=0,
    next=(NOW,),
    declared=False,
    declared_by=(),
    paused_at=None,
    last_tick_at=None,
    last_task_id=None,
    last_state=None,
    fired_at=None,
    skipped_at=None,
    created_at=NOW,
)


def findings(*schedules: Schedule, **more: Any) -> list[Finding]:  # noqa: ANN401
    return list(check_schedules(inside(schedules=schedules, **{"workers": (worker(),), **more})))


def test_what_fires_nothing_is_named_with_a_remedy() -> None:
    for name, schedule, level, words, remedy in (
        ("trouble", replace(FINE, trouble="timezone 'X' is not known"), Level.ERROR, "timezone 'X'", "schedules"),
        ("gone", replace(FINE, declared=True), Level.WARNING, "no living worker declares it", "delete nightly"),
        ("paused", replace(FINE, paused_at=NOW), Level.NOTE, "is paused", "unpause schedule:nightly"),
    ):
        with row(name):
            [found] = findings(schedule)
            assert (found.level, found.check) == (level, "schedules")
            assert words in found.words
            assert remedy in (found.remedy or "")


def test_schedules_need_workers() -> None:
    declared = replace(FINE, name="other", declared=True, declared_by=("w1",))
    [fine] = findings(FINE, declared)
    assert (fine.level, fine.words) == (Level.OK, "2 schedules ready to fire")
    [alone] = findings(FINE, workers=())
    assert (alone.level, "1 schedule cannot fire" in alone.words) == (Level.WARNING, True)
    assert findings() == []


async def test_schedules_are_gathered(database_url: str) -> None:
    hold = Holdfast(database_url)

    @hold.task
    async def backup(ctx: object) -> None: ...

    async with hold:
        await hold.schedule("nightly", backup, cron="0 3 * * *")
    seen = await gather(database_url)
    assert seen.inside is not None
    assert [one.name for one in seen.inside.schedules] == ["nightly"]
