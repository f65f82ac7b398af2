"""One try at one task, from the claim to the Commit that ends it.

Modules:

attempt.py       One try at one task: load, replay, perform, classify, record, release
context.py       ctx: what a task function sees
defiance.py      Code that catches everything and goes on after it was stopped: how that is noticed, and how the code is
                 set aside
exits.py         What ends code without being an Exception, and whose it is
journal.py       The journal of one attempt: which key a step gets, and what is recorded under it
outbox.py        Everything an attempt writes: Commits under the fence of its lease, numbered one by one
outcome.py       How an attempt ended, as the Commit that says so
scope.py         Scopes: the place of a ``ctx`` call in the journal
state_view.py    The AgentState as a task's own code sees it: ``ctx.state``, ``ctx.patch`` and ``ctx.refresh_state``
stop_reasons.py  How a running attempt is told to stop
time_limit.py    The wall time that an attempt has left: that of its task, and that of the tasks above it
"""
