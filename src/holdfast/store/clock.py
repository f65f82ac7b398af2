"""The machine's own time: the clock a store goes by unless it is given another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache, partial
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

    # Functions of C: every transaction, lease and alarm asks for the time, several of them more than once.

    now: Callable[[], datetime] = staticmethod(partial(datetime.now, UTC))
    """See Clock."""

    boot: Callable[[], float] = staticmethod(
        partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
    )
    """See Clock; ``time.monotonic`` where there is no CLOCK_BOOTTIME (macOS, Windows)."""

    async def sleep(self, seconds: float) -> None:
        """See Clock."""
        await asyncio.sleep(seconds)


@lru_cache(maxsize=1)
def _read_boot_id() -> str:
    try:
        return _LINUX_BOOT_ID.read_text(encoding="ascii").strip() or UNKNOWN_BOOT
    except OSError:
        return UNKNOWN_BOOT
