"""Test your own tasks: time that skips, a store in memory, crashes where you want them.

``sandbox``           an application's tasks in a test: ``async with testing.sandbox(hold) as box:``
``crash_everywhere``  the same scenario with a crash at every Commit in turn

``holdfast.testing.ledger`` is a process of its own that writes down which calls were really made, for tests of effects.
``holdfast.testing.chat_server`` is an endpoint that answers and fails by a script, for tests of agents.
Neither is imported here, because both are also run with ``python -m``.

Whoever writes a store finds here what Holdfast tests its own stores with. ``holdfast.testing.contract`` is the suite
every store passes; it needs pytest and pytest-asyncio. ``holdfast.testing.snapshot`` reads everything a store holds, to
compare it before and after.

Modules:

contract/          The contract every store keeps, as a test suite that any store can be held to
chat_http.py       The HTTP of a ChatServer: a connection for each request, a thread for each connection, and every way
                   to break one
chat_log.py        What a ChatServer was asked, and what became of it
chat_script.py     What a ChatServer answers, as data, and how that looks on the wire of the chat-completions protocol
chat_server.py     ChatServer: a real HTTP server on loopback that speaks the chat-completions protocol, from a script
crashes.py         Crashes that a test asks for: where they strike, and whether they did
crew.py            Crew: the sandbox's one worker
everywhere.py      The same scenario again and again, with a crash at every Commit in turn
ledger.py          The ledger: the world outside, as a process with a file of its own that writes down what was really
                   done to it
mortal.py          A worker that can be killed as SIGKILL would, in process, and whose attempts can be watched
pulse.py           Pulse: whether anything happens in a sandbox, and for how long nothing has
sandboxes.py       Sandbox: an application's own tasks, in a store of their own, with time that skips and workers that
                   crash on cue
skipping_clock.py  SkippingClock: time for tests that moves only when somebody moves it, and knows how far the next
                   sleeper is
snapshot.py        Read everything a store holds, so that two moments, or two stores, can be compared
timekeeper.py      Timekeeper: moves a sandbox's time as soon as nobody needs it to stand still
trace.py           Trace: what a task went through, for a test to look at
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
