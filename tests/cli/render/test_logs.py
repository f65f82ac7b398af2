"""``holdfast worker --json``: its log, for machines."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.logs import JsonFormatter, SafeFormatter
from tests.cli.render.support import APPLICATION, FOLDER, PATIENCE, command, holdfast, surroundings, until

RECORD = logging.LogRecord("holdfast", logging.WARNING, "x.py", 1, "it %s \x1b[31m", ("failed",), None)


def test_a_record_is_one_object_with_the_fields_it_has() -> None:
    parsed = json.loads(JsonFormatter().format(RECORD))
    assert parsed.pop("time").endswith("+00:00")
    assert parsed == {"level": "WARNING", "logger": "holdfast", "message": "it failed \x1b[31m"}
    try:
        raise ValueError("boom")  # noqa: TRY301
    except ValueError:
        failed = logging.LogRecord("app", logging.ERROR, "x.py", 1, "no", (), sys.exc_info())
    failed.task_id, failed.from_state, failed.to_state, failed.reason = "t", None, "failed", "why"
    parsed = json.loads(JsonFormatter().format(failed))
    assert (parsed["task_id"], parsed["to_state"], parsed["reason"]) == ("t", "failed", "why")
    assert "from_state" not in parsed
    assert parsed["traceback"].endswith("ValueError: boom")
    assert "\n" not in JsonFormatter().format(failed)


def test_lines_for_people_do_not_move_the_cursor() -> None:
    assert SafeFormatter("%(message)s").format(RECORD) == "it failed �[31m"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot send SIGTERM")
def test_a_worker_speaks_json(tmp_path: Path) -> None:
    url, said = f"sqlite:///{tmp_path}/hold.db", tmp_path / "said"
    task_id = holdfast("submit", APPLICATION, "greet", "-i", "you", url=url).stdout.strip()
    with said.open("w") as file:
        process = subprocess.Popen(
            command("worker", APPLICATION, "--json"), stderr=file, text=True, cwd=FOLDER, env=surroundings(url)
        )
        with process:
            try:
                until(lambda: '"to_state": "completed"' in said.read_text(), process)
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()
    parsed = [json.loads(line) for line in said.read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in parsed)
    assert " works on " in parsed[0]["message"]
    moves = [line for line in parsed if "to_state" in line]
    assert [(one["task_id"], one["from_state"], one["to_state"]) for one in moves] == [
        (task_id, "pending", "running"),
        (task_id, "running", "completed"),
    ]
    assert "stopping" in parsed[-1]["message"]
