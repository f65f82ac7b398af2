"""One try at one task, from the claim to the Commit that ends it.

Modules:

attempt.py          One try at one task: load, replay, perform, classify, record, release
blocking_calls.py   The blocking functions of a task's code: each runs in a thread, with a ``ctx`` whose calls block
                    that thread
code_run.py         Runs the task's code in a way that the engine can abandon it if it does not stop when asked to
context.py          ctx: what a task function sees
discovery.py        The discovery replay: running a task's code without any new step, to find the code of steps that
                    must be undone
endings.py          The moves that end the work on a task, by a worker's attempt or by an agent outside
event_cursors.py    How far a task has read each channel of events
exits.py            Errors that end code but are not Exceptions: which of them the code itself raised
held_task.py        HeldTask: a task that this process holds under a lease, as most of the engine sees it
journal.py          The journal of one attempt: which key a step gets, and what is recorded under it
journal_line.py     A line of the journal, as its writer writes it: at the next position, or at the position that its
                    key already has
limit_line.py       The line of the journal that says for which limits a resting task waits, so that people can see it
outbox.py           Everything an attempt writes: Commits under the fence of its lease, numbered one by one
outcome.py          How an attempt ended, whether its task is tried again, and the Commit that records it
residence.py        The place of an attempt on its worker: with a slot while it works, without one while it only waits
scope.py            Scopes: the place of a ``ctx`` call in the journal
standstill.py       A paused task stands still: no step of it begins, and when none is under way any more it leaves its
                    worker
state_view.py       The AgentState as a task's own code sees it: ``ctx.state``, ``ctx.patch`` and ``ctx.refresh_state``
step_owner.py       StepOwner: what steps, waits and effects need from the attempt that they belong to
steps_under_way.py  The steps that an attempt's branches run now, and the scopes of their tries
stop_reasons.py     Why a running attempt must stop
stuck_code.py       Code that catches everything and continues after it was stopped: how the engine notices it and sets
                    it aside
time_limit.py       The wall time that an attempt has left: that of its task, and that of the tasks above it
"""
