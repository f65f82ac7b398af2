"""A worker whose store is replaced under it: it stops, says so, and sends nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, StoreReplaced
from holdfast.model.commit import Commit, Verdict
from holdfast.model.effect import EffectState
from holdfast.model.operations import WriteEffect
from holdfast.store.sqlite import SqliteStore


async def test_the_worker_stops_and_logs_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it was doing sends nothing more: neither a plain step nor one that is made once."""
    for number, url in enumerate(("sqlite:///{}/store/agents.db", "json:///{}/store")):
        caplog.clear()
        root = tmp_path / str(number)
        (root / "store").mkdir(parents=True)
        await lose_the_store(url.format(root), root / "store")
        assert any("claims no more" in record.message for record in caplog.records if record.levelname == "ERROR")


async def lose_the_store(url: str, folder: Path) -> None:
    hold, sent, go_on = Holdfast(url), list[str](), asyncio.Event()
    begun = {"once": asyncio.Event(), "idempotent": asyncio.Event()}

    @hold.task
    async def pays(ctx: Context, effect: str) -> None:
        begun[effect].set()
        await go_on.wait()
        await ctx.step("pay", sent.append, effect, effect=effect)

    async with hold, asyncio.timeout(60):
        for effect in begun:
            await hold.submit(pays, effect)
        worker = await hold.worker().__aenter__()
        for event in begun.values():
            await event.wait()
        folder.rename(folder.with_name("elsewhere"))
        go_on.set()
        with pytest.raises(StoreReplaced, match=r"was moved or deleted.*Restart it"):
            await worker.join()
        assert not worker.running
    assert sent == []


async def test_a_call_is_not_sent_if_the_store_went_since_it_was_armed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look is the last act before the call."""
    (tmp_path / "store").mkdir()
    sent, armed, real = list[int](), asyncio.Event(), SqliteStore.commit

    async def commit(store: SqliteStore, commits: Sequence[Commit]) -> list[Verdict]:
        verdicts = await real(store, commits)
        operations = [operation for commit in commits for operation in commit.operations]
        if any(isinstance(one, WriteEffect) and one.effect.state is EffectState.ARMED for one in operations):
            armed.set()
            (tmp_path / "store").rename(tmp_path / "elsewhere")
        return verdicts

    monkeypatch.setattr(SqliteStore, "commit", commit)
    hold = Holdfast(f"sqlite:///{tmp_path}/store/agents.db")

    @hold.task
    async def pays(ctx: Context) -> None:
        await ctx.step("pay", sent.append, 1, effect="once")

    async with hold, asyncio.timeout(60):
        await hold.submit(pays)
        worker = await hold.worker().__aenter__()
        with pytest.raises(StoreReplaced):
            await worker.join()
    assert armed.is_set()
    assert sent == []
