"""`make test-all`: which interpreters it finds, and what it says about those it does not."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def test_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, on a machine with no interpreter."""
    spec = importlib.util.spec_from_file_location("test_all_script", ROOT / "scripts" / "test_all.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return script


def provide(python: Path, text: str) -> None:
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(text)
    python.chmod(0o755)


def test_an_interpreter_has_to_run_and_be_of_its_version(test_all: ModuleType, tmp_path: Path) -> None:
    assert test_all.find_python(VERSION) is None
    provide(tmp_path / "bin" / f"python{VERSION}", "#!/bin/sh\nexit 127\n")  # as pyenv has for what is switched off
    provide(tmp_path / "pyenv" / "versions" / f"{VERSION}.9" / "bin" / "python", "#!/bin/sh\necho 2.7\n")
    assert test_all.find_python(VERSION) is None
    real = tmp_path / "pyenv" / "versions" / f"{VERSION}.1" / "bin" / "python"
    provide(real, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    assert test_all.find_python(VERSION) == real


def test_what_is_missing_is_named_and_what_fails_counts(
    test_all: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert test_all.main([]) == 1, "nothing was run"
    provide(tmp_path / "bin" / f"python{VERSION}", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for trouble, code in ((None, 0), ("tests failed", 1)):
        monkeypatch.setattr(test_all, "run_suite", lambda *_, trouble=trouble: trouble)
        assert test_all.main([], ["2.0", VERSION]) == code
        said = capsys.readouterr().err
        assert "Python 2.0: SKIPPED: not on this machine" in said
        assert f"Python {VERSION}: {trouble or 'passed'}" in said
