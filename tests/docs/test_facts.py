"""Tables and pictures in the docs that follow the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from holdfast.model.effect import EFFECT_MOVES, EffectState
from holdfast.model.transitions import MOVES, TaskState
from holdfast.store.jsonfile import JsonStore
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.simple import SimpleInterface
from holdfast.store.sqlite import SqliteStore
from scripts import diagrams
from tests.docs.pages import README, ROOT


def test_the_capabilities_in_the_docs_are_those_of_the_stores() -> None:
    text = (ROOT / "docs/scaling-out.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+):.*?` \| (\w+) \| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$", text, re.MULTILINE)
    stores: dict[str, type[SimpleInterface]] = {
        "memory": MemoryStore,
        "json": JsonStore,
        "sqlite": SqliteStore,
        "postgresql": PostgresStore,
    }
    assert [row[0] for row in rows] == list(stores)
    for scheme, *said in rows:
        has = stores[scheme].capabilities
        assert [word == "yes" for word in said] == [
            has.durable,
            has.multi_process,
            has.multi_machine,
            has.precise_hints,
            has.transactions,
        ]


def test_the_diagrams_are_drawn_from_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert diagrams.main(["--check"]) == 0, f"{capsys.readouterr().err}run `make docs`"


def test_a_diagram_shows_every_state_and_move_of_its_table() -> None:
    effect_arrows = sum(len(targets) for source, targets in EFFECT_MOVES.items() if source is not None)
    task_arrows = sum(target is not TaskState.CANCELLED for targets in MOVES.values() for target in targets)
    assert diagrams.effect_states().count('class="edge"') == effect_arrows
    assert diagrams.task_life().count('class="edge"') == task_arrows
    assert all(f">{state}</text>" in diagrams.effect_states() for state in EffectState)


def test_the_picture_of_the_layers_has_those_that_are_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [one for one in settings["tool"]["importlinter"]["contracts"] if one["id"] == "layers"]
    checked = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    assert [re.findall(r"\w+", names) for names, _ in diagrams.LAYERS] == checked


def test_what_was_counted_is_the_same_in_the_comparison_and_the_readme() -> None:
    """The README leaves out columns and rows; the rest is as in the comparison."""

    def counted(page: Path, columns: tuple[int, ...]) -> dict[str, list[str]]:
        (table,) = re.findall(r"^\| \| calls.*\n(?:\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE)
        rows = [line.strip("|").split("|") for line in str(table).splitlines()[2:]]
        return {row[0].strip(): [re.split(r"[, ]", row[column].strip())[0] for column in columns] for row in rows}

    shown, whole = counted(README, (1, 2, 3)), counted(ROOT / "docs/comparison.md", (1, 2, 4))
    assert shown
    assert shown == {name: whole[name] for name in shown}


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) < 1_200
