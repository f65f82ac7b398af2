"""Run by test_interrupt.py in a process of its own: a script that a user stops with Ctrl-C."""

# ruff: noqa: T201 - the test reads what it prints

import signal
import sys
import threading
import time

from holdfast import Holdfast, SyncContext, SyncWorker

hold = Holdfast(sys.argv[1])


@hold.task
def slow(ctx: SyncContext) -> None:
    ctx.step("begin", print, "begun")
    sys.stdout.flush()
    time.sleep(60)


def main(where: str) -> None:
    with hold.sync as h:
        handle = h.submit(slow)
        worker = h.worker(grace=60)
        if where == "join":
            drain_on_terminate(worker)  # before anything is said: the signal may come right after it
        with worker:
            if where == "worker":
                return until_begun(handle.id)  # and then it waits for the task to finish
            if where == "result":
                handle.result()
            elif where == "events":
                for _ in handle.events():
                    pass
            elif where == "join":
                worker.join()
            else:
                h.run(handle)
    print("left")
    return None


def until_begun(task_id: str) -> None:
    while not hold.sync.wait(hold.store.steps(task_id)):
        time.sleep(0.01)


def drain_on_terminate(worker: SyncWorker) -> None:
    def drain(*_: object) -> None:
        worker.force()

    signal.signal(signal.SIGTERM, drain)


if __name__ == "__main__":
    try:
        main(sys.argv[2])
    except KeyboardInterrupt:
        print("interrupted")
    print("threads", sorted(thread.name for thread in threading.enumerate() if thread.name == "holdfast-sync"))
