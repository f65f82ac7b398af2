from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.model.clock import Clock, ManualClock
from holdfast.model.errors import InvalidValue
from holdfast.store import clock as clock_module
from holdfast.store.clock import UNKNOWN_BOOT, SystemClock


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_system_clock_tells_utc_and_a_boot_clock_that_grows() -> None:
    clock: Clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    first = clock.boot()
    assert clock.boot() >= first > 0


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="only Linux names its boots")
def test_the_boot_id_is_the_same_in_every_process_of_one_boot() -> None:
    code = "from holdfast.store.clock import SystemClock; print(SystemClock().boot_id)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == SystemClock().boot_id != UNKNOWN_BOOT


def test_where_the_system_names_no_boot_the_id_is_a_constant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(clock_module, "_LINUX_BOOT_ID", tmp_path / "none")
    clock_module._read_boot_id.cache_clear()
    try:
        assert SystemClock().boot_id == UNKNOWN_BOOT
    finally:
        clock_module._read_boot_id.cache_clear()


async def test_the_system_clock_sleeps() -> None:
    clock = SystemClock()
    before = clock.boot()
    await clock.sleep(0.01)
    assert clock.boot() - before >= 0.009


def test_advancing_moves_both_clocks_and_a_jump_only_the_wall() -> None:
    clock = ManualClock()
    boot_id = clock.boot_id
    clock.advance(90)
    clock.advance(timedelta(milliseconds=500))
    assert (clock.now(), clock.boot()) == (datetime(2026, 1, 1, 0, 1, 30, 500_000, tzinfo=UTC), 90.5)
    clock.jump_wall(-3600)
    assert (clock.now(), clock.boot()) == (datetime(2025, 12, 31, 23, 1, 30, 500_000, tzinfo=UTC), 90.5)
    assert clock.boot_id == boot_id


def test_a_reboot_changes_the_boot_id_and_starts_the_boot_clock_again() -> None:
    clock = ManualClock()
    clock.advance(100)
    boot_id, wall = clock.boot_id, clock.now()
    clock.reboot()
    assert clock.boot_id != boot_id
    assert (clock.boot(), clock.now()) == (0.0, wall)
    clock.advance(1)
    assert clock.boot() == 1.0


async def test_sleepers_wake_in_order_once_time_has_passed() -> None:
    clock = ManualClock()
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("late", 10), ("early", 5), ("at once", 0)):
            group.create_task(sleeper(name, seconds))
        await settle()
        assert (woken, clock.sleepers) == (["at once"], 2)
        clock.jump_wall(100)
        clock.advance(4.9)
        await settle()
        assert woken == ["at once"]
        clock.reboot()
        clock.advance(20)
        await settle()
    assert woken == ["at once", "early", "late"]
    assert clock.sleepers == 0


async def test_a_cancelled_sleeper_does_no_harm() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(float("inf")))
    other = asyncio.create_task(clock.sleep(1))
    await settle()
    sleeper.cancel()
    await settle()
    assert clock.sleepers == 1
    clock.advance(2)
    await other


@pytest.mark.parametrize("by", [0, -1, float("nan"), timedelta(seconds=-1)])
def test_time_only_passes_forwards(by: float) -> None:
    with pytest.raises(InvalidValue):
        ManualClock().advance(by)


async def test_a_sleep_of_nan_is_refused() -> None:
    with pytest.raises(InvalidValue):
        await ManualClock().sleep(float("nan"))


def test_a_start_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidValue):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001
