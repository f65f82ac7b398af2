"""Test your own tasks: time that skips, a store in memory, crashes where you want them.

``sandbox``           an application's tasks in a test: ``async with testing.sandbox(hold) as box:``
``crash_everywhere``  the same scenario with a crash at every Commit in turn

``holdfast.testing.ledger`` is a process of its own that writes down which calls were really made, for tests of effects.
``holdfast.testing.chat_server`` is an endpoint that answers and fails by a script, for tests of agents.
Neither is imported here, because both are also run with ``python -m``.

Whoever writes a store finds here what Holdfast tests its own stores with. ``holdfast.testing.contract`` is the suite
every store passes; it needs pytest and pytest-asyncio. ``holdfast.testing.snapshot`` reads everything a store holds, to
compare it before and after.
"""

from holdfast.testing.crashes import Crash, CrashDidNotHappen
from holdfast.testing.everywhere import CrashChangedResult, Survived, crash_everywhere
from holdfast.testing.sandboxing import Sandbox, sandbox
from holdfast.testing.skipping import SkippingClock
from holdfast.testing.trace import Trace

__all__ = [
    "Crash",
    "CrashChangedResult",
    "CrashDidNotHappen",
    "Sandbox",
    "SkippingClock",
    "Survived",
    "Trace",
    "crash_everywhere",
    "sandbox",
]
