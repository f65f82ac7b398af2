"""Blocking functions in daemon threads, whose results arrive when they like."""

import asyncio
import gc
import threading
import time
from collections.abc import Coroutine
from inspect import CORO_CLOSED, getcoroutinestate

from holdfast.engine.runtime.threads import DaemonThreads


def test_a_coroutine_that_arrives_when_the_loop_turns_no_more_is_closed() -> None:
    """Otherwise it is "never awaited", long after the program is over with it."""
    loop = asyncio.new_event_loop()
    threads, go = DaemonThreads(), threading.Event()
    made: list[Coroutine[None, None, None]] = []

    def begin() -> Coroutine[None, None, None]:
        go.wait()
        made.append(asyncio.sleep(1))
        return made[0]

    async def give_up() -> None:
        waiting = asyncio.create_task(threads.run(begin))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])

    loop.run_until_complete(give_up())
    go.set()
    while not threads._idle:
        time.sleep(0.001)  # the thread has handed its result to the loop
    assert getcoroutinestate(made[0]) != CORO_CLOSED
    loop.close()
    gc.collect()
    assert getcoroutinestate(made[0]) == CORO_CLOSED
    threads.close()
