"""One try at one task, from the claim to the Commit that ends it.

Modules:

attempt.py          One try at one task: load, replay, perform, classify, record, release
blocking_calls.py   The blocking functions of a task's code: each runs in a thread, with a context that blocks it
code_run.py         The task's code while it runs: driven so that it can be left where it is, should it not let itself
                    be stopped
context.py          ctx: what a task function sees
defiance.py         Code that catches everything and goes on after it was stopped: how that is noticed, and how the code
                    is set aside
discovery.py        The discovery replay: running a task's code without doing anything, to find the code of steps that
                    are to be undone
endings.py          The moves that end the work on a task, be it a worker's attempt or the work of an agent outside
event_cursors.py    How far a task has read each channel of events
exits.py            What ends code without being an Exception, and whose it is
held_task.py        HeldTask: a task that this process holds under a lease, as far as most of the engine has to know it
journal.py          The journal of one attempt: which key a step gets, and what is recorded under it
journal_line.py     A line of the journal, as its writer writes it: at the next place, or at the place that its key has
                    already
outbox.py           Everything an attempt writes: Commits under the fence of its lease, numbered one by one
outcome.py          How an attempt ended, as the Commit that says so
residence.py        The place of an attempt on its worker: with a slot while it works, without one while it only waits
scope.py            Scopes: the place of a ``ctx`` call in the journal
state_view.py       The AgentState as a task's own code sees it: ``ctx.state``, ``ctx.patch`` and ``ctx.refresh_state``
step_owner.py       StepOwner: what steps, waits and effects need of the attempt that they belong to
steps_under_way.py  The steps that an attempt's branches do now, and the scopes of their tries
stop_reasons.py     How a running attempt is told to stop
time_limit.py       The wall time that an attempt has left: that of its task, and that of the tasks above it
"""
