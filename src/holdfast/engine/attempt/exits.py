"""Errors that end code but are not Exceptions: which of them the code itself raised.

``sys.exit()`` in a step, or in a library that it calls, is a failure of that step; it does not end the worker.
``KeyboardInterrupt`` on the main thread means that a person stops the process. Python never raises it by itself in any
other thread, so there it is an ordinary error.
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
        """See asyncio.Task. A stopping worker, a timeout or a TaskGroup cancels it from outside."""
        if current_task() is self:
            self.cancelled_itself = True
        return super().cancel(msg)


def as_failure(error: BaseException, task: asyncio.Task[Any] | None) -> Exception:
    """Return an error of code that ran in ``task`` as an Exception, to record it. Raise it if it came from outside."""
    if isinstance(error, Exception):
        return error
    if not is_its_own(error, task):
        raise error
    return Exited(error)


def is_its_own(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether code that ran in ``task`` raised this by itself: then it is how the code failed.

    Otherwise the engine, a caller or a person ends the code from outside.
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
