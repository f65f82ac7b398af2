"""Huey: ``python drive_huey.py sqlite:///FILE '{"tasks": 3000}'``; prints tasks a second.

With ``fsync=True``: a WAL with synchronous=FULL, as in Holdfast. A task is deleted when a worker takes it, so that
a crash loses it, and no results are kept: less than Holdfast promises. One thread: it is faster than four on two cores.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time

from huey import SqliteHuey  # type: ignore[import-not-found]


def main(url: str, sizes: str) -> None:
    """Enqueue, then time a consumer from its start to the last task."""
    tasks = json.loads(sizes)["tasks"]
    logging.disable(logging.INFO)
    huey = SqliteHuey("bench", filename=url.removeprefix("sqlite:///"), fsync=True, results=False)
    left, lock, over = tasks, threading.Lock(), threading.Event()

    def _noop() -> None:
        nonlocal left
        with lock:
            left -= 1
            if left == 0:
                over.set()

    noop = huey.task()(_noop)
    for _ in range(tasks):
        noop()
    consumer = huey.create_consumer(
        workers=1,
        worker_type="thread",
        initial_delay=0.01,
        max_delay=0.01,
        periodic=False,
        check_worker_health=False,
    )
    began = time.perf_counter()
    consumer.start()
    over.wait()
    print(json.dumps(tasks / (time.perf_counter() - began)), flush=True)
    os._exit(0)  # its threads would take seconds to stop


if __name__ == "__main__":
    main(*sys.argv[1:])
