"""What ends code without being an Exception, and whose it is.

``sys.exit()`` in a step, or in a library that it calls, is how that step failed, and not the end of the worker.
``KeyboardInterrupt`` on the main thread stays what it is: a person stops the process. Python never raises it by itself
in any other thread, so there it is an error like any other.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from holdfast.engine.attempt.stop_reasons import Unwind
from holdfast.engine.runtime.where import current_task
from holdfast.model.failure import Exited


class CodeTask(asyncio.Task[None]):
    """The asyncio task that runs a task's code. It knows whether the code cancelled it by itself."""

    cancelled_itself = False

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - as asyncio has it
        """See asyncio.Task. A worker that stops, a timeout and a TaskGroup cancel it from outside."""
        if current_task() is self:
            self.cancelled_itself = True
        return super().cancel(msg)


def as_failure(error: BaseException, task: asyncio.Task[Any] | None) -> Exception:
    """Return what of code that ran in ``task`` raised, for the record. Raise it if it is not the code's own."""
    if isinstance(error, Exception):
        return error
    if not is_its_own(error, task):
        raise error
    return Exited(error)


def is_its_own(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Say whether code that ran in ``task`` raised this by itself, so that it is how the code failed.

    Otherwise the engine, a caller or a person ends it from outside.
    """
    match error:
        case Unwind():
            return False
        case KeyboardInterrupt():
            return threading.current_thread() is not threading.main_thread()
        case GeneratorExit():
            return current_task() is task  # a coroutine that is closed is not running
        case asyncio.CancelledError():
            return task is not None and current_task() is task and not task.cancelling()
        case _:
            return True
