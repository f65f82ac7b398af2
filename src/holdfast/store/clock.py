"""The machine's own time: the clock a store goes by unless it is given another."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

UNKNOWN_BOOT: Final = "unknown-boot"
"""The boot id where the system does not tell. A restart of such a machine looks like the boot clock going back, so
code that compares boot times must treat a boot clock that is behind a recorded one as another boot."""

_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """The machine's own time."""

    @property
    def boot_id(self) -> str:
        """See Clock; read once for each process."""
        return _read_boot_id()

    def now(self) -> datetime:
        """See Clock."""
        return datetime.now(UTC)

    def boot(self) -> float:
        """See Clock; ``time.monotonic`` where there is no CLOCK_BOOTTIME (macOS, Windows)."""
        return _read_boot_clock()

    async def sleep(self, seconds: float) -> None:
        """See Clock."""
        await asyncio.sleep(seconds)


def _read_boot_clock() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@lru_cache(maxsize=1)
def _read_boot_id() -> str:
    try:
        return _LINUX_BOOT_ID.read_text(encoding="ascii").strip() or UNKNOWN_BOOT
    except OSError:
        return UNKNOWN_BOOT
