"""scripts/guards.py removes what keeps a promise. That it still finds each of them is checked here, every time."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guards", ROOT / "scripts" / "guards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["guards"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


GUARDS = load().GUARDS


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_stands_where_the_script_looks_for_it(guard: object) -> None:
    text = (ROOT / guard.file).read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert text.count(guard.there) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_its_tests_exist(guard: object) -> None:
    assert (ROOT / guard.tests[0].partition("::")[0]).exists()  # type: ignore[attr-defined]


def test_names_are_names() -> None:
    names = [guard.name for guard in GUARDS]
    assert len(names) == len(set(names))
