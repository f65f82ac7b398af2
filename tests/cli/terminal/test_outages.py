"""A store that is away, read-only, or on a full disk: reported at once, and again when it is over."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Handle, Holdfast
from holdfast.cli.commands.run import _left
from holdfast.cli.logs import ProblemPrinter
from holdfast.engine.worker.liveness import PROCESS, this_process
from holdfast.model.errors import StoreClosed
from holdfast.model.worker import NewWorker
from holdfast.service.diagnosis.evidence_collector import gather
from holdfast.service.diagnosis.finding import Level
from holdfast.service.diagnosis.report import diagnose
from holdfast.service.service import Service
from tests.cli.project.support import refusal
from tests.cli.render.support import FOLDER, PATIENCE, Terminal, command, surroundings, until
from tests.cli.terminal.support import holdfast, submit
from tests.postgres_server import PostgresServer, ServerUnavailable, start_postgres

AWAY = "the store does not answer"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, to be stopped and started."""
    try:
        started = start_postgres(18)
    except ServerUnavailable as missing:
        if "18" in os.environ.get("HOLDFAST_REQUIRE_POSTGRES", "").split():
            raise
        pytest.skip(str(missing))
    with started:
        yield started


@pytest.fixture
def database(server: PostgresServer) -> str:
    if not server.running:
        server.start()
    return server.create_store()


@pytest.mark.parametrize(("arguments", "words"), [(("watch",), "1 pending"), (("list", "--watch"), "echo")])
def test_a_live_view_says_that_it_is_old(
    server: PostgresServer, database: str, arguments: tuple[str, ...], words: str
) -> None:
    submit("echo", "--input", "x", url=database)
    with Terminal(*arguments, url=database, columns=120) as terminal:
        terminal.until(words)
        assert AWAY not in terminal.text
        server.stop("immediate")
        terminal.until(AWAY)
        assert terminal.process.poll() is None
        server.start()
        # Once more than on the page that reported it.
        terminal.until(lambda: terminal.text.rpartition(AWAY)[2].count(words) > 1)
        terminal.interrupt()
        assert terminal.leave() == 130


def test_a_watching_program_is_notified_once(server: PostgresServer, database: str) -> None:
    submit("echo", "--input", "x", url=database)
    with _piped(database, "list", "--watch", "--json") as (process, said):
        assert process.stdout is not None
        assert len(json.loads(process.stdout.readline())["tasks"]) == 1
        server.stop("immediate")
        until(lambda: AWAY in "".join(said), process)
        server.start()
        submit("echo", "--input", "second", url=database)
        assert len(json.loads(process.stdout.readline())["tasks"]) == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert "".join(said).count(AWAY) == 1


async def test_a_run_does_not_claim_to_have_handed_back_what_it_could_not(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/hold.db") as hold:
        service = Service(hold)
        handle: Handle[Any] = await hold.submit("anything", queue="default")
        assert (await _left(service, handle.id, "again")).endswith("was handed back. Go on with: again")
        ours = this_process(hold.services.clock.boot_id)
        for process in (ours, ours | {"started": -1}):  # another process that had our number, and has ended
            worker = await hold.store.register(NewWorker(details={PROCESS: process}))
            await hold.store.acquire(handle.id, worker.id)
            said = await _left(service, handle.id, "again")
            assert "could not be handed back, and is free when the lease is over. Go on with: again" in said
            await hold.store.retire(worker.id)
        await hold.cancel(handle.id, "enough")
        assert f"is cancelled; look at it with: holdfast show {handle.id[-8:]}" in await _left(
            service, handle.id, "again"
        )
    with pytest.raises(StoreClosed):
        await handle.task()
    assert "could not be handed back" in await _left(service, handle.id, "again")


def test_problems_are_printed_and_moves_of_tasks_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("holdfast")  # noqa: LOG001 - a new one, not the shared one
    logger.addHandler(ProblemPrinter())
    logger.warning("the store does not answer")
    logger.warning("task failed", extra={"to_state": "failed"})
    logger.info("nothing to worry about")
    assert capsys.readouterr().err == "holdfast: the store does not answer\n"


def test_a_server_that_is_not_there_has_a_remedy(server: PostgresServer, database: str) -> None:
    server.stop("immediate")
    for arguments in (("list",), ("watch",), ("migrate",)):
        line = refusal(holdfast(*arguments, url=database), 1)
        assert "see that the database runs and that the URL is right: `holdfast doctor` looks closer" in line


@pytest.mark.parametrize("arguments", [("list",), ("show",), ("cancel", "--queue", "default", "--yes")])
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, url: str, arguments: tuple[str, ...]) -> None:
    submit("echo", "--input", "x", url=url)
    _spoil(tmp_path)
    line = refusal(holdfast(*arguments, url=url), 1)
    assert "hold.db-gate cannot be written" in line
    assert "look at a copy elsewhere" in line


def test_doctor_says_it_too(tmp_path: Path, url: str) -> None:
    submit("echo", "--input", "x", url=url)
    _spoil(tmp_path)
    answer = holdfast("doctor", url=url)
    assert answer.returncode == 1
    assert "hold.db-gate cannot be written" in answer.stdout


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(("free", "level"), [(0, Level.ERROR), (100 * 1024**2, Level.WARNING), (1024**4, None)])
async def test_doctor_notices_a_full_disk(
    url: str, monkeypatch: pytest.MonkeyPatch, free: int, level: Level | None
) -> None:
    submit("echo", "--input", "x", url=url)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: _Usage(1024**4, 0, free))  # noqa: ARG005
    findings = diagnose(await gather(url))
    assert next((finding.level for finding in findings if finding.check == "room"), None) is level


def _spoil(folder: Path) -> None:
    """Put a folder where a file has to be opened: unlike missing rights, that also stops root."""
    gate = folder / "hold.db-gate"
    gate.unlink()
    gate.mkdir()


class _piped:  # noqa: N801 - used like a function
    """A command with its output piped, and the lines of its stderr as they come."""

    def __init__(self, url: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=FOLDER,
            env=surroundings(url),
        )
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> tuple[subprocess.Popen[str], list[str]]:
        self._reader.start()
        return self._process, self._said

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self._said += iter(lines)
