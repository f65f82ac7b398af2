"""The checks of a diagnosis: evidence in, findings out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from holdfast import InvalidURL, MissingExtra, NotAStore, SchemaMismatch, StoreBusy, StoreDamaged, StoreUnavailable
from holdfast.model.approval import Approval
from holdfast.model.doubt import Decision, Doubt
from holdfast.model.effect import Effect, EffectClass, EffectState
from holdfast.model.errors import HoldfastError
from holdfast.model.queries import QueueCounts, Vitals
from holdfast.model.task import Task
from holdfast.model.transitions import TaskState
from holdfast.model.worker import Worker, WorkerState
from holdfast.service.diagnosis import durability, growth, reachability, surroundings
from holdfast.service.diagnosis import workers as working
from holdfast.service.diagnosis.evidence import Inside, NamedApplication, StoreEvidence
from holdfast.service.diagnosis.evidence_collector import file_system_in, file_system_of
from holdfast.service.diagnosis.finding import Finding, Level, worst
from holdfast.service.diagnosis.report import diagnose

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
SQLITE = Vitals(
    backend="SQLite",
    version="3.54.1",
    schema=1,
    bytes=4096,
    rows={"tasks": 3, "steps": 7},
    exact_rows=True,
    settings={"journal_mode": "wal", "synchronous": "full", "wal_bytes": "0"},
)
POSTGRES = replace(
    SQLITE,
    backend="PostgreSQL",
    version="18.1",
    exact_rows=False,
    settings={"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "in_recovery": "off"},
)


def inside(vitals: Vitals = SQLITE, **more: Any) -> Inside:  # noqa: ANN401
    given: dict[str, Any] = {"vitals": vitals, "now": NOW, "local": NOW, "workers": ()}
    return Inside(**(given | more))


def evidence(vitals: Vitals = SQLITE, **more: Any) -> StoreEvidence:  # noqa: ANN401
    given: dict[str, Any] = {"url": "sqlite:///a.db", "inside": inside(vitals)}
    return StoreEvidence(**(given | more))


def worker(name: str = "w1", *, silent_for: float = 1.0, lease: float = 30.0, **more: Any) -> Worker:  # noqa: ANN401
    given: dict[str, Any] = {
        "id": name,
        "label": "worker",
        "lease": lease,
        "state": WorkerState.LIVE,
        "claims": 0,
        "details": {"queues": ["default"], "tasks": ["work"]},
        "started_at": NOW,
        "seen_at": NOW - timedelta(seconds=silent_for),
    }
    return Worker(**(given | more))


def task(**more: Any) -> Task:  # noqa: ANN401
    given: dict[str, Any] = {
        "id": "t1",
        "name": "work",
        "state": TaskState.PENDING,
        "queue": "default",
        "created_at": NOW,
        "updated_at": NOW,
    }
    return Task(**(given | more))


def queue(name: str = "default", ready: int = 1) -> QueueCounts:
    return QueueCounts(name=name, ready=ready, delayed=0, running=0, waiting=0, review=0, oldest_ready_at=NOW)


def levels(findings: Iterator[Finding] | Sequence[Finding]) -> list[tuple[str, Level]]:
    listed = list(findings)
    for finding in listed:
        assert finding.words
        assert (finding.level is Level.OK) == (finding.remedy is None), finding
        assert "\n" not in f"{finding.words}{finding.remedy}"
    return [(finding.check, finding.level) for finding in listed]


@pytest.mark.parametrize(
    ("error", "check", "level", "remedy"),
    [
        (StoreUnavailable("cannot connect to x: refused"), "store", Level.ERROR, "holdfast config"),
        (NotAStore("x is a file; choose another path"), "store", Level.ERROR, "choose another path; `holdfast config`"),
        (StoreDamaged("x is damaged; restore a backup"), "store", Level.ERROR, "restore a backup; stop the workers"),
        (StoreBusy("x is open in process 7"), "store", Level.WARNING, "holdfast doctor"),
        (SchemaMismatch("x is older; run `holdfast migrate`"), "schema", Level.ERROR, "run `holdfast migrate`"),
        (SchemaMismatch("x is newer; upgrade holdfast"), "schema", Level.ERROR, "holdfast --version"),
        (InvalidURL("x names no store; use y"), "store", Level.ERROR, "holdfast config"),
        (MissingExtra("postgres", "PostgreSQL"), "store", Level.ERROR, "pip install 'holdfast[postgres]'"),
        (HoldfastError("something else"), "store", Level.ERROR, "holdfast config"),
    ],
)
def test_a_store_that_cannot_be_opened(error: HoldfastError, check: str, level: Level, remedy: str) -> None:
    seen = evidence(inside=None, failure=error)
    assert levels(reachability.check_store(seen)) == [(check, level)]
    (finding,) = reachability.check_store(seen)
    assert remedy in str(finding.remedy)
    assert list(reachability.check_schema(seen)) == []


@pytest.mark.parametrize(
    ("schema", "level", "remedy"),
    [
        ((1, 1), Level.OK, "None"),
        ((0, 1), Level.ERROR, "holdfast migrate --database-url sqlite:///a.db"),
        ((1, 2), Level.ERROR, "holdfast migrate --database-url sqlite:///a.db"),
        ((3, 2), Level.ERROR, "pip install --upgrade holdfast"),
        (None, Level.OK, "None"),
    ],
)
def test_the_schema(schema: tuple[int, int] | None, level: Level, remedy: str) -> None:
    seen = evidence(schema=schema)
    assert levels(reachability.check_schema(seen)) == [("schema", level)]
    assert remedy in str(next(reachability.check_schema(seen)).remedy)


@pytest.mark.parametrize(
    ("vitals", "expected"),
    [
        (SQLITE, [Level.OK]),
        (replace(SQLITE, settings={"journal_mode": "wal", "synchronous": "extra"}), [Level.OK]),
        (replace(SQLITE, settings={"journal_mode": "wal", "synchronous": "normal"}), [Level.ERROR]),
        (replace(SQLITE, settings={"journal_mode": "delete", "synchronous": "full"}), [Level.ERROR]),
        (POSTGRES, [Level.OK]),
        (replace(POSTGRES, settings={}), [Level.NOTE]),
        (replace(POSTGRES, settings={**POSTGRES.settings, "fsync": "off"}), [Level.ERROR]),
        (replace(POSTGRES, settings={**POSTGRES.settings, "full_page_writes": "off"}), [Level.ERROR]),
        (replace(POSTGRES, settings={**POSTGRES.settings, "synchronous_commit": "off"}), [Level.ERROR]),
        (replace(POSTGRES, settings={**POSTGRES.settings, "synchronous_commit": "remote_apply"}), [Level.OK]),
        (replace(POSTGRES, settings={**POSTGRES.settings, "in_recovery": "on"}), [Level.ERROR]),
        (replace(SQLITE, backend="memory", settings={}), [Level.WARNING]),
        (replace(SQLITE, backend="JSON files", settings={}), []),
    ],
)
def test_durability(vitals: Vitals, expected: list[Level]) -> None:
    assert [level for _, level in levels(durability.check_settings(evidence(vitals)))] == expected


def test_a_journal_that_was_edited_is_named_and_left() -> None:
    assert levels(durability.check_settings(evidence(inside=None, is_wal=False, schema=(1, 1)))) == [
        ("durability", Level.WARNING)
    ]
    assert levels(durability.check_settings(evidence(inside=None, is_wal=False, schema=(0, 1)))) == []


@pytest.mark.parametrize(("version", "bad"), [("3.51.2", True), ("3.40.1", True), ("3.51.3", False), ("3.54", False)])
def test_versions_of_sqlite_that_corrupt(version: str, bad: bool) -> None:
    found = levels(durability.check_version(evidence(replace(SQLITE, version=version))))
    assert found == ([("version", Level.ERROR)] if bad else [])
    assert levels(durability.check_version(evidence(replace(POSTGRES, version="16.1")))) == []


def test_damage_is_reported() -> None:
    seen = evidence(replace(SQLITE, problems=("row 3 missing\nfrom index", "another")))
    assert levels(durability.check_damage(seen)) == [("damage", Level.ERROR)] * 2
    assert levels(durability.check_damage(evidence())) == []


@pytest.mark.parametrize(
    ("url", "kind", "bad"),
    [
        ("sqlite:///a.db", "nfs4", True),
        ("sqlite:///a.db", "fuse.sshfs", True),
        ("sqlite:///a.db", "ext4", False),
        ("sqlite:///a.db", None, False),
        ("json:///a", "nfs4", False),
    ],
)
def test_network_file_systems(url: str, kind: str | None, bad: bool) -> None:
    seen = evidence(url=url, file=Path("a.db"), file_system=kind)
    assert levels(durability.check_file_system(seen)) == ([("file system", Level.ERROR)] if bad else [])


MOUNTS = r"""
22 1 0:20 / / rw shared:1 - ext4 /dev/root rw
30 22 0:40 / /mnt rw - tmpfs none rw
31 30 0:41 / /mnt/far\040away rw,relatime shared:2 master:3 - nfs4 server:/x rw
32 30 0:42 / /mnt/twice rw - ext4 /dev/x rw
33 32 0:43 / /mnt/twice rw - cifs //server/x rw
a line that means nothing
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/a.db", "ext4"),
        ("/mnt/a.db", "tmpfs"),
        ("/mnt/far away/a.db", "nfs4"),
        ("/mnt/far away too/a.db", "tmpfs"),
        ("/mnt/twice/a.db", "cifs"),
        ("relative", None),
    ],
)
def test_the_innermost_and_last_mount_counts(path: str, kind: str | None) -> None:
    assert file_system_in(MOUNTS, PurePosixPath(path)) == kind


def test_this_machine_tells_or_does_not(tmp_path: Path) -> None:
    assert file_system_of(tmp_path) != "" if Path("/proc/self/mountinfo").exists() else file_system_of(tmp_path) is None


@pytest.mark.parametrize(("megabytes", "expected"), [(0, []), (256, []), (257, [("wal", Level.WARNING)])])
def test_a_large_wal(megabytes: int, expected: list[tuple[str, Level]]) -> None:
    settings = {**SQLITE.settings, "wal_bytes": str(megabytes * 1024**2)}
    assert levels(durability.check_wal(evidence(replace(SQLITE, settings=settings)))) == expected


@pytest.mark.parametrize(
    ("seconds", "level"), [(0, Level.OK), (1.9, Level.OK), (-3, Level.NOTE), (59, Level.NOTE), (-61, Level.WARNING)]
)
def test_clocks_that_differ(seconds: float, level: Level) -> None:
    there = inside(POSTGRES, local=NOW + timedelta(seconds=seconds))
    assert levels(durability.check_clock(evidence(inside=there))) == [("clock", level)]
    here = inside(SQLITE, local=NOW + timedelta(seconds=seconds))
    assert levels(durability.check_clock(evidence(inside=here))) == []


def test_workers_that_are_silent() -> None:
    live, gone = worker("live"), worker("gone", silent_for=31)
    assert levels(working.check_workers(inside(workers=()))) == []
    assert levels(working.check_workers(inside(workers=[live]))) == [("workers", Level.OK)]
    alone = inside(workers=[gone], held_by_silent={"gone": 2})
    assert levels(working.check_workers(alone)) == [("leases", Level.ERROR)]
    assert "no other worker is there" in next(working.check_workers(alone)).words
    beside = inside(workers=[gone, live], held_by_silent={"gone": 2})
    assert levels(working.check_workers(beside)) == [("workers", Level.OK), ("leases", Level.NOTE)]
    assert levels(working.check_workers(inside(workers=[gone], held_by_silent={}))) == [("leases", Level.NOTE)]
    # One that drains claims nothing, and so takes nothing back.
    draining = inside(workers=[gone, replace(live, state=WorkerState.DRAINING)], held_by_silent={"gone": 1})
    assert levels(working.check_workers(draining)) == [("leases", Level.ERROR)]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, Level.OK),
        ({"queues": [queue()], "workers": [worker()]}, Level.OK),
        ({"queues": [queue(ready=0)]}, Level.OK),
        ({"queues": [queue()]}, Level.WARNING),
        ({"queues": [queue("deploys")], "workers": [worker()]}, Level.WARNING),
        ({"queues": [queue()], "workers": [worker(silent_for=31)]}, Level.WARNING),
        ({"queues": [queue()], "workers": [worker(state=WorkerState.DRAINING)]}, Level.WARNING),
        ({"queues": [queue()], "workers": [worker()], "pending": [task()]}, Level.OK),
        ({"queues": [queue()], "workers": [worker()], "pending": [task(name="other")]}, Level.WARNING),
        ({"queues": [queue()], "workers": [worker(details={"queues": ["default"]})], "pending": [task()]}, Level.OK),
    ],
)
def test_tasks_that_no_worker_will_take(more: dict[str, Any], expected: Level) -> None:
    assert levels(working.check_queues(inside(**more))) == [("queues", expected)]


@pytest.mark.parametrize("workers", [[], [worker()]])
def test_tasks_for_agents_outside_need_no_worker(workers: list[Worker]) -> None:
    seen = inside(queues=[queue()], workers=workers, pending=[task(name="handover")], outside={"default": 1})
    assert levels(working.check_queues(seen)) == [("queues", Level.NOTE), ("queues", Level.OK)]
    by_hand = inside(queues=[queue()], workers=workers, pending=[task(name="manual")], by_hand={"default": 1})
    assert levels(working.check_queues(by_hand)) == [("queues", Level.NOTE), ("queues", Level.OK)]


def test_an_agent_outside_is_not_a_worker_and_no_worker_takes_over_from_it() -> None:
    agent = worker("agent", silent_for=31, label="claude", details={"queues": [], "tasks": []})
    assert inside(workers=[replace(agent, seen_at=NOW)]).at_work == []
    (finding,) = working.check_workers(inside(workers=[agent], held_by_silent={"agent": 1}))
    assert finding.level is Level.WARNING
    assert "agent claude" in finding.words
    assert "holdfast mcp" in (finding.remedy or "")
    assert "holdfast worker" not in (finding.remedy or "")


def test_a_count_of_which_not_all_was_looked_at_is_marked() -> None:
    old = Approval(id="a", task_id="t1", step_key="ask", question="?", created_at=NOW - timedelta(hours=30))
    young = replace(old, created_at=NOW)
    lost = task(state=TaskState.RUNNING, owner=None)
    effect = Effect(
        effect_id="e1", task_id="t1", step_key="pay", effect_class=EffectClass.ONCE, state=EffectState.NEEDS_HUMAN
    )
    doubt = Doubt(effect=effect, task_name="work", question="?", arguments=None, decisions=(Decision.HAPPENED,))
    strange: dict[str, Any] = {"queues": [queue()], "workers": [worker()], "pending": [task(name="other")]}
    for check, cut, more in (
        (working.check_approvals, "approvals", {"approvals": [old]}),
        (working.check_approvals, "approvals", {"approvals": [young]}),
        (working.check_doubts, "doubts", {"doubts": [doubt]}),
        (working.check_owners, "running", {"running": [lost]}),
        (working.check_suspects, "pending", {"pending": [task(deaths=2)]}),
        (working.check_suspects, "failed", {"poisoned": 1}),
        (working.check_queues, "pending", strange),
    ):
        assert "at least" not in next(check(inside(**more))).words
        assert "at least 1 " in next(check(inside(cut={cut}, **more))).words, cut
    some = strange | {"pending": [task()]}
    assert next(working.check_queues(inside(cut={"pending"}, **some))).words.endswith("as far as the 1 oldest tell")


def test_the_remedy_names_the_queues() -> None:
    seen = inside(queues=[queue("deploys", 2), queue("mail", 1)])
    (finding,) = working.check_queues(seen)
    assert finding.words == "3 tasks ready in deploys (2), mail (1), which no worker serves"
    assert finding.remedy == "holdfast worker MODULE:HOLDFAST --queues deploys,mail"


def test_running_tasks_without_a_holder() -> None:
    held = task(state=TaskState.RUNNING, owner="w1")
    assert levels(working.check_owners(inside(workers=[worker("w1")], running=[held]))) == []
    for lost in (replace(held, owner=None), replace(held, owner="dead")):
        assert levels(working.check_owners(inside(running=[lost]))) == [("owners", Level.ERROR)]
        assert levels(working.check_owners(inside(workers=[worker()], running=[lost]))) == [("owners", Level.NOTE)]


def test_tasks_that_kill_their_workers() -> None:
    assert levels(working.check_suspects(inside(pending=[task(deaths=1)]))) == []
    assert levels(working.check_suspects(inside(pending=[task(deaths=2)]))) == [("suspects", Level.WARNING)]
    assert levels(working.check_suspects(inside(running=[task(deaths=3)]))) == [("suspects", Level.WARNING)]
    assert levels(working.check_suspects(inside(poisoned=1))) == [("poison", Level.WARNING)]


def test_what_failed_today() -> None:
    assert levels(working.check_failed(inside())) == []
    assert levels(working.check_failed(inside(failed_today=2))) == [("failed", Level.NOTE)]


@pytest.mark.parametrize(
    ("hours", "expected"), [([], []), ([1], [Level.NOTE]), ([25], [Level.WARNING]), ([1, 72], [Level.WARNING])]
)
def test_people_who_keep_tasks_waiting(hours: list[int], expected: list[Level]) -> None:
    approvals = [
        Approval(id=str(age), task_id="t1", step_key="ask", question="?", created_at=NOW - timedelta(hours=age))
        for age in hours
    ]
    assert [level for _, level in levels(working.check_approvals(inside(approvals=approvals)))] == expected


def test_doubts_that_only_a_person_can_end() -> None:
    effect = Effect(
        effect_id="e1",
        task_id="t1",
        step_key="pay",
        effect_class=EffectClass.ONCE,
        state=EffectState.NEEDS_HUMAN,
    )
    doubt = Doubt(effect=effect, task_name="work", question="?", arguments=None, decisions=(Decision.HAPPENED,))
    assert levels(working.check_doubts(inside(doubts=[doubt]))) == [("doubts", Level.WARNING)]
    assert levels(working.check_doubts(inside(doubts=[replace(doubt, decisions=())]))) == []


def test_growth() -> None:
    assert levels(growth.check_size(inside(prunable=999))) == [("growth", Level.OK)]
    assert levels(growth.check_size(inside(prunable=1000))) == [("growth", Level.NOTE)]
    assert next(growth.check_size(inside())).words == "4 kB, 3 tasks and 7 steps"
    assert next(growth.check_size(inside(POSTGRES))).words == "4 kB, about 3 tasks and 7 steps"
    for seconds, expected in ((None, []), (3600.0, []), (3601.0, [("vacuum", Level.WARNING)])):
        seen = inside(replace(POSTGRES, oldest_snapshot_seconds=seconds))
        assert levels(growth.check_snapshot(seen)) == expected


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (999, "999 bytes"), (1e6, "1 MB"), (3.4e9, "3 GB"), (5e15, "5,000 TB")]
)
def test_sizes(size: float, words: str) -> None:
    assert growth.in_bytes(size) == words


def test_settings() -> None:
    assert levels(surroundings.check_settings(evidence())) == []
    seen = evidence(
        settings_error="x is not valid TOML: y", unknown_variables={"HOLDFAST_A": None, "HOLDFAST_B": "HOLDFAST_C"}
    )
    assert levels(surroundings.check_settings(seen)) == [
        ("settings", Level.ERROR),
        ("settings", Level.WARNING),
        ("settings", Level.WARNING),
    ]
    remedies = [finding.remedy for finding in surroundings.check_settings(seen)]
    assert remedies[1] == "unset HOLDFAST_A"
    assert "HOLDFAST_C" in str(remedies[2])


@pytest.mark.parametrize(
    ("ours", "theirs", "level"),
    [
        ("sqlite:///a.db", "sqlite:///a.db", Level.OK),
        ("sqlite:///a.db", "sqlite:///./x/../a.db", Level.OK),
        ("sqlite:///a.db", f"sqlite:///{Path.cwd()}/a.db", Level.OK),
        ("sqlite:///a.db", "sqlite:///b.db", Level.WARNING),
        ("sqlite:///a", "json:///a", Level.WARNING),
        ("postgresql://anna:x@here/one", "postgres://here:5432/one", Level.OK),
        ("postgresql://anna:x@here/one", "postgresql://anna:x@here/two", Level.WARNING),
        ("postgresql://anna:x@here/one", "postgresql://anna:x@there/one", Level.WARNING),
    ],
)
def test_whether_the_application_uses_the_same_store(ours: str, theirs: str, level: Level) -> None:
    seen = evidence(url=ours, application=NamedApplication(target="shop:hold", url=theirs))
    assert levels(surroundings.check_application(seen)) == [("application", level)]
    assert ":x@" not in str(list(surroundings.check_application(seen)))


def test_an_application_that_cannot_be_used() -> None:
    seen = evidence(application=NamedApplication(target="shop:hold", error="there is no module 'shop'"))
    assert levels(surroundings.check_application(seen)) == [("application", Level.ERROR)]
    assert levels(surroundings.check_application(evidence())) == []


def test_extras() -> None:
    assert levels(surroundings.check_extras(evidence(extras={"mcp": True}))) == [("extras", Level.OK)]
    assert levels(surroundings.check_extras(evidence(extras={"mcp": False}))) == [("extras", Level.NOTE)]


def test_a_remedy_names_the_application_where_it_is_known() -> None:
    seen = evidence(
        inside=inside(queues=[queue()]), application=NamedApplication(target="shop:hold", url="sqlite:///a.db")
    )
    remedies = {finding.check: finding.remedy for finding in diagnose(seen)}
    assert remedies["queues"] == "holdfast worker shop:hold --queues default"
    broken = replace(seen, application=NamedApplication(target="shop:hold", error="there is no module 'shop'"))
    remedies = {finding.check: finding.remedy for finding in diagnose(broken)}
    assert remedies["queues"] == "holdfast worker MODULE:HOLDFAST --queues default"


def test_a_remedy_names_no_application_that_would_not_help() -> None:
    strange = inside(queues=[queue()], pending=[task(name="mail")])
    shop = NamedApplication(target="shop:hold", url="sqlite:///a.db", tasks=["work"])
    remedies = {one.check: one.remedy for one in diagnose(evidence(inside=strange, application=shop))}
    assert remedies["queues"] == ("holdfast worker MODULE:HOLDFAST --queues default; shop:hold does not define mail")
    post = replace(shop, tasks=["mail"])
    remedies = {one.check: one.remedy for one in diagnose(evidence(inside=strange, application=post))}
    assert remedies["queues"] == "holdfast worker shop:hold --queues default"


def test_the_worst_counts() -> None:
    assert worst([]) is Level.OK
    found = [Finding("x", level, "y") for level in (Level.NOTE, Level.ERROR, Level.WARNING)]
    assert worst(found) is Level.ERROR
    assert worst(found[:1]) is Level.NOTE


def test_a_store_that_was_not_opened_is_not_judged_by_its_tasks() -> None:
    found = levels(diagnose(evidence(inside=None, failure=StoreUnavailable("away"))))
    assert found == [("store", Level.ERROR), ("machine", Level.OK)]
