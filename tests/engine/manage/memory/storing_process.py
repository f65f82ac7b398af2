"""One of many processes that store facts about the same subject: ``python storing_process.py URL NAME WORDS``.

It stores every word in its own name, every word in a name that all of them share, and words that the others store too.
It begins when it reads a line, hesitates before each write so that others may be faster, and prints how often.
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
            await hold.memory.store("alice", "says", f"{name} {word}", source="all")
            await hold.memory.store("alice", "knows", word, source=name)
    print(slower)  # noqa: T201 - it is read by the test


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
