"""Identifiers: UUID version 7, so that ids made later sort later and inserts stay at one end of an index."""

from __future__ import annotations

import os
import time
import uuid


def new_id() -> str:
    """Return a fresh id: 48 bits of milliseconds, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return str(uuid.UUID(int=value))
