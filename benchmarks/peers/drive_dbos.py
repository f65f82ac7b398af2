"""DBOS: ``python drive_dbos.py URL '{"tasks": 200, "steps": 20}'``; prints steps a second.

Blocking workflows, in DBOS's own threads: on two cores they are faster than its coroutines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from dbos import DBOS  # type: ignore[import-not-found]


def _increment(number: int) -> int:
    return number + 1


increment: Any = DBOS.step()(_increment)


def _walk(count: int) -> int:
    done = 0
    for _ in range(count):
        done = increment(done)
    return done


walk: Any = DBOS.workflow()(_walk)


def run(tasks: int, steps: int) -> None:
    """Start workflows, and wait for all of them."""
    handles = [DBOS.start_workflow(walk, steps) for _ in range(tasks)]
    for handle in handles:
        handle.get_result(polling_interval_sec=0.05)


def main(url: str, sizes: str) -> None:
    """Time them from the first start to the last result."""
    asked = json.loads(sizes)
    config: dict[str, Any] = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    if url.startswith("postgresql"):
        config["sys_db_pool_size"] = 20
    DBOS(config=config)
    DBOS.launch()
    run(1, asked["steps"])  # warm
    began = time.perf_counter()
    run(**asked)
    print(json.dumps(asked["tasks"] * asked["steps"] / (time.perf_counter() - began)), flush=True)
    os._exit(0)  # its threads would take seconds to stop


if __name__ == "__main__":
    main(*sys.argv[1:])
