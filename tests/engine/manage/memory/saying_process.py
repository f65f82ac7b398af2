"""One of many processes that say things about the same: ``python saying_process.py URL NAME WORDS``.

It says every word under its own name, every word under a name that all of them share, and words that the others say as
well. It begins when it is told to, hesitates before each write so that others may be faster, and prints how often they
were.
"""

from __future__ import annotations

import asyncio
import random
import sys

from holdfast import Holdfast
from holdfast.engine.manage.memory import Memory

HESITATION = 0.005


async def main(url: str, name: str, words: int) -> None:
    slower = 0
    write = Memory._write
    dice = random.Random(name)

    async def hesitate(self: Memory, *arguments: object) -> bool:
        nonlocal slower
        await asyncio.sleep(dice.uniform(0, HESITATION))
        written: bool = await write(self, *arguments)  # type: ignore[arg-type]
        slower += not written
        return written

    Memory._write = hesitate  # type: ignore[method-assign, assignment]
    async with Holdfast(url) as hold:
        print("ready", flush=True)  # noqa: T201 - as below
        await asyncio.to_thread(sys.stdin.readline)
        for word in range(words):
            await hold.memory.store("alice", "likes", f"{name} {word}", source=name)
            await hold.memory.store("alice", "says", f"{name} {word}", source="everybody")
            await hold.memory.store("alice", "knows", word, source=name)
    print(slower)  # noqa: T201 - it is read by the test


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
