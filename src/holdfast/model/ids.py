"""Identifiers: UUID version 7, so that ids made later sort later and inserts stay at one end of an index."""

from __future__ import annotations

import os
import time


def new_id() -> str:
    """Return a fresh id: 48 bits of milliseconds, 12 bits of the time within the millisecond, then 62 random bits.

    The finer time keeps ids in the order in which one process makes them. So the tasks of one ``submit_many``, which
    are stored at the same moment, come up in the order in which they were given.
    """
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    value = (milliseconds << 80) | (0x7 << 76) | ((rest << 12) // 1_000_000 << 64) | (0x2 << 62)
    value |= int.from_bytes(os.urandom(8), "big") >> 2
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
