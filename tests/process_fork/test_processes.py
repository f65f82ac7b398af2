"""Programs that fork as servers and scripts do, and end as programs end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psycopg

from holdfast.cli.signals import StopSignals
from tests.process_fork.child import PATIENCE, fork, run_family


def test_a_prefork_server_opens_the_store_in_each_worker(tmp_path: Path, postgres_url: str) -> None:
    for url in (f"sqlite:///{tmp_path}/hold.db", postgres_url):
        served = run_family("prefork", url, folder=tmp_path)
        assert sorted(served.stdout.splitlines()) == [
            "ended [0, 0]",
            "worker [0, 2, 4, 6, 8]",
            "worker [20, 22, 24, 26, 28]",
        ]
        assert run_family("count", url, folder=tmp_path).stdout.startswith("tasks 10 ()")


def test_a_prefork_server_that_opened_the_store_before_gets_an_error(tmp_path: Path, postgres_url: str) -> None:
    for url in ("memory://", f"json:///{tmp_path}/files", f"sqlite:///{tmp_path}/hold.db", postgres_url):
        first, last = run_family("prefork_opened", url, folder=tmp_path).stdout.splitlines()
        assert "was opened in process" in first
        assert "Open the store after the fork" in first
        assert last == "ended 0 then pending"


def test_a_child_that_ends_with_finalizers_disturbs_no_transaction(tmp_path: Path, postgres_url: str) -> None:
    for url in (f"sqlite:///{tmp_path}/hold.db", postgres_url):
        ended = run_family("finalized", url, folder=tmp_path)
        assert ended.stdout.splitlines()[-3:] == ["refused", "seen 2000", "rows 2100 ended 0"], ended.stdout
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM own").fetchone() == (2100,)


async def test_a_signal_to_a_child_ends_the_child_and_does_not_stop_the_parent() -> None:
    heard: asyncio.Queue[signal.Signals] = asyncio.Queue()
    with StopSignals(heard.put_nowait, heard.put_nowait):
        pid = fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        ended = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.WTERMSIG(ended[1]) == signal.SIGTERM
        # The parent's own signals come through the same pipe, after the child's. Not SIGHUP: under nohup it is ignored.
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            assert await heard.get() == signal.SIGINT
