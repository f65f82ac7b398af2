"""Test your own tasks: time that skips, a store in memory, crashes where you want them.

``sandbox``           an application's tasks in a test: ``async with testing.sandbox(hold) as box:``
``crash_everywhere``  the same scenario with a crash at every Commit in turn

``holdfast.testing.ledger`` is a separate process that records which calls were really made, for tests of effects.
``holdfast.testing.chat_server`` is an endpoint that answers and fails by a script, for tests of agents.
Neither is imported here, because both are also run with ``python -m``.

For authors of a store: Holdfast tests its own stores with these modules. ``holdfast.testing.contract`` is the suite
every store passes; it needs pytest and pytest-asyncio. ``holdfast.testing.snapshot`` reads everything a store holds, to
compare it before and after.

Modules:

contract/          The contract of every store, as a test suite for any store
chat_http.py       The HTTP of a ChatServer: one connection per request, one thread per connection, and every way to
                   break one
chat_log.py        The requests to a ChatServer, and the outcome of each
chat_script.py     The answers of a ChatServer, as data, and their form in the chat-completions protocol
chat_server.py     ChatServer: a real HTTP server on loopback that answers in the chat-completions protocol, from a
                   script
crashes.py         Crashes that a test asks for: where they happen, and whether they did
everywhere.py      The same scenario again and again, with a crash at every Commit in turn
killable.py        A worker that can be killed inside the process, as with SIGKILL, and whose attempts can be watched
ledger.py          The ledger: the outside world, as a separate process that records in a file what was really done to
                   it
pulse.py           Pulse: whether anything happens in a sandbox, and the time since then
sandbox_worker.py  SandboxWorker: the sandbox's one worker
sandboxes.py       Sandbox: an application's own tasks in a separate store, with time that skips and workers that crash
                   on demand
skipping_clock.py  SkippingClock: time for tests that moves only by hand, and knows how far the next sleeper is
snapshot.py        Read everything a store holds, so that two moments, or two stores, can be compared
timekeeper.py      Timekeeper: moves a sandbox's time as soon as no code needs it to stand still
trace.py           Trace: the history of a task in a sandbox, for a test to check
"""

from holdfast.testing.crashes import Crash, CrashDidNotHappen
from holdfast.testing.everywhere import CrashChangedResult, Survived, crash_everywhere
from holdfast.testing.sandboxes import Sandbox, sandbox
from holdfast.testing.skipping_clock import SkippingClock
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
