"""Effects under kills and freezes: a short run of Holdfast, and a judge that sees what a careless engine does."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import effects_lives, effects_peers, peers
from benchmarks.effects_lives import Contender, Line
from benchmarks.effects_peers import SCENARIOS, Tally, holdfast_contenders, judge, run, table_of
from benchmarks.effects_trials import LANDINGS, Hit, Trial
from benchmarks.peers.errand import CALLS
from benchmarks.processes import SubjectFailed
from holdfast.testing.ledger import Entry, Ledger

CARELESS = Contender(label="careless", python=sys.executable, module="tests.benchmarks.careless_engine")
LINGERING = replace(CARELESS, mode="lingering")


RECONCILED, DECIDED_BY_PEOPLE, *_ = holdfast_contenders()


@pytest.mark.parametrize(
    "ours",
    [
        pytest.param(RECONCILED, id=RECONCILED.mode),
        pytest.param(DECIDED_BY_PEOPLE, id=DECIDED_BY_PEOPLE.mode, marks=pytest.mark.full),
    ],
)
def test_an_effect_of_ours_is_not_doubled_by_a_kill(ours: Contender) -> None:
    tally = run(ours, "killed", hits=3, seed=1)
    assert tally.hits == sum(tally.landed.values()) == 3
    assert tally.orders >= 3
    assert tally.calls == tally.expected == 3 * tally.orders
    assert (tally.doubled, tally.lost, tally.unfinished) == (0, 0, 0)


def test_one_that_remembers_nothing_is_found_out_when_it_is_killed() -> None:
    seed = next(seed for seed in range(100) if random.Random(seed).randint(1, 4) == 2)  # killed in its second call
    tally = run(LINGERING, "killed", hits=1, seed=seed)
    assert tally.hits == 1
    assert tally.doubled >= 1
    assert tally.calls > tally.expected == 3 * tally.orders
    assert (tally.lost, tally.unfinished, tally.doubts) == (0, 0, 0)


def test_one_that_remembers_nothing_is_found_out_when_it_is_frozen(tmp_path: Path) -> None:
    dice = next(random.Random(seed) for seed in range(100) if random.Random(seed).choice(CALLS) == "charge")
    with Ledger.start(tmp_path / "ledger.jsonl") as ledger:
        trial = Trial(LINGERING, tmp_path, ledger, dice, lambda _: None)
        trial.freeze_workers(1)
    tally = judge(trial, "frozen", 0)
    assert (tally.hits, tally.orders, tally.expected, tally.doubled, tally.calls) == (1, 1, 3, 3, 6)
    [hit] = trial.hits
    calls = {(entry.name, entry.caller == hit.pid): entry.at for entry in ledger.entries()}
    assert calls["reserve", True] < hit.at < calls["ship", False] < hit.over < calls["ship", True]


def test_an_order_that_fails_or_hangs_is_given_up_and_a_crash_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects_lives, "SILENCE", 15.0)  # more than a busy machine takes to start a worker
    with Ledger.start(tmp_path / "ledger.jsonl") as ledger:
        trial = trial_of(tmp_path, ledger, mode="troubled")
        with pytest.raises(SubjectFailed, match=r"(?s)ended with 3.*this is how it ends"):
            trial.kill_workers(1)
    assert trial.ends["order-1"] == "ValueError cannot do this one"
    assert "nothing for 15 s" in trial.ends["order-2"]
    assert judge(trial, "killed", 0).unfinished == 2
    assert (tmp_path / "workers.log").read_text().count("this is how it ends") == 1


def test_an_order_is_done_if_any_worker_reports_it(tmp_path: Path) -> None:
    trial = trial_of(tmp_path, Ledger(tmp_path / "ledger.jsonl", port=0))
    trial.note([Line("failed", "order-1", "no"), Line("done", "order-2"), Line("doubt", "order-2.ship")])
    trial.note([Line("done", "order-1"), Line("failed", "order-2", "conflict"), Line("failed", "order-3", "no")])
    assert trial.ends == {"order-1": "done", "order-2": "done", "order-3": "no"}
    assert trial.doubts == {"order-2.ship"}


def trial_of(folder: Path, ledger: Ledger, mode: str = "") -> Trial:
    return Trial(replace(CARELESS, mode=mode), folder, ledger, random.Random(1), lambda _: None)


def write_ledger(folder: Path, *calls: tuple[str, int, float]) -> Ledger:
    entries = [
        Entry(n=number, at=at, effect_id=key, name="", body=None, caller=pid)
        for number, (key, pid, at) in enumerate(calls, 1)
    ]
    ledger = Ledger(folder / "ledger.jsonl", port=0)
    ledger.path.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in entries))
    return ledger


def test_the_judge_compares_what_was_said_with_what_was_seen(tmp_path: Path) -> None:
    twice = [("order-1.charge", 7, 1.0), ("order-1.charge", 8, 2.0), ("order-1.reserve", 7, 0.0)]
    ledger = write_ledger(tmp_path, *twice, ("order-2.reserve", 8, 3.0))
    trial = trial_of(tmp_path, ledger)
    trial.ends = {"order-1": "done", "order-2": "gave up"}
    trial.doubts = {"order-2.charge"}
    tally = judge(trial, "killed", 1.04)
    assert tally == Tally(
        contender="careless",
        scenario="killed",
        hits=0,
        landed=dict.fromkeys(LANDINGS, 0),
        orders=2,
        expected=3,
        calls=4,
        doubled=1,
        lost=1,
        unfinished=1,
        doubts=1,
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("more", "calls", "landed"),
    [
        ([], [], "not sent"),
        ([], [("o.charge", 8, 1.0)], "not sent"),  # of another worker
        ([], [("o.reserve", 7, 1.0)], "not sent"),  # another call
        ([], [("o.charge", 7, 30.0)], "not sent"),  # when it went on
        ([], [("o.charge", 7, 11.0)], "in flight"),
        ([], [("o.charge", 7, 9.0)], "happened"),
        (["answered"], [("o.charge", 7, 9.0)], "answered"),
        (["answered", "enter"], [("o.charge", 7, 9.0)], "later"),
    ],
)
def test_ledger_and_worker_show_where_a_hit_landed(
    tmp_path: Path, more: Sequence[str], calls: Sequence[tuple[str, int, float]], landed: str
) -> None:
    said = [Line("enter", "o", "reserve"), Line("answered", "o", "reserve"), Line("enter", "o", "charge")]
    said += [Line(what, "o", "charge" if what == "answered" else "ship") for what in more]
    hit = Hit(order="o", step="charge", pid=7, at=10.0, over=20.0, said=said)
    assert hit.landed(write_ledger(tmp_path, *calls).entries()) == landed


def test_it_prints_tables_or_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(effects_peers, "holdfast_contenders", lambda: [CARELESS])
    assert effects_peers.main(["--only", "holdfast", "--kills", "1", "--freezes", "1"]) == 0
    printed = capsys.readouterr()
    assert all(title in printed.out for title in effects_peers.TITLES.values())
    assert "careless: 1 of 1 killed" in printed.err
    assert re.search(
        r"^careless, 1 killed: \d+ doubled, 0 lost, 0 unfinished, 0 in doubt, 9 calls due$", printed.err, re.MULTILINE
    )
    assert effects_peers.main(["--only", "holdfast", "--kills", "0", "--freezes", "1", "--json"]) == 0
    [tally] = json.loads(capsys.readouterr().out)
    assert (tally["scenario"], tally["hits"], tally["expected"]) == ("frozen", 1, 3)
    assert table_of("frozen", [Tally(**tally)]).row_count == 1
    with pytest.raises(SystemExit):
        effects_peers.main(["--only", "mystery"])
    assert "unknown: mystery" in capsys.readouterr().err


def test_one_engine_that_breaks_does_not_keep_the_others_from_being_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Contender(label="broken", python=sys.executable, module="tests.benchmarks.no_such_engine")
    monkeypatch.setattr(effects_peers, "holdfast_contenders", lambda: [broken, CARELESS])
    assert effects_peers.main(["--only", "holdfast", "--kills", "0", "--freezes", "1", "--json"]) == 1
    printed = capsys.readouterr()
    assert "No module named tests.benchmarks.no_such_engine" in " ".join(printed.err.split())
    assert [tally["contender"] for tally in json.loads(printed.out)] == ["careless"]


def test_the_drivers_of_the_peers_know_nothing_of_us() -> None:
    for driver in Path(peers.__path__[0]).glob("*.py"):
        assert not re.search(r"^\s*(from|import) holdfast", driver.read_text(encoding="utf-8"), re.MULTILINE), driver


def test_every_scenario_has_a_title() -> None:
    assert effects_peers.TITLES.keys() == SCENARIOS.keys()
