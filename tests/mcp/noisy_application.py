"""An application that prints: when it is imported, when it is opened, and when it is asked."""

from __future__ import annotations

import os
import sys

from holdfast import Context, Holdfast

print("imported")  # noqa: T201 - that is the point
sys.stdout.write("written\n")
os.write(1, b"written past Python\n")

hold = Holdfast()


@hold.task
async def greet(ctx: Context, name: str) -> str:
    del ctx
    return f"hello {name}"
