"""What the types of ``submit`` and ``step`` accept and refuse, asked of both type checkers."""

import json
import os
import subprocess
import sys
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]
CODE = Path(__file__).with_name("api.py").relative_to(ROOT)


def test_mypy_accepts_right_calls_and_refuses_wrong_ones() -> None:
    # --strict also reports an ignore that is not needed: a wrong call that is accepted.
    said, complaints, code = api.run(["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(ROOT / CODE)])
    assert (code, complaints) == (0, ""), said


def test_pyright_accepts_right_calls_and_refuses_wrong_ones(tmp_path: Path) -> None:
    config = tmp_path / "pyrightconfig.json"
    settings = {
        "include": [os.path.relpath(ROOT / CODE, tmp_path)],
        "extraPaths": [str(ROOT / "src")],
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", str(config)]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "0 errors" in asked.stdout
