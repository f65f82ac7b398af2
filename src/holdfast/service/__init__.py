"""What every front end asks and does: reads to look at tasks, verbs to look after them. Front ends hold no queries.

Modules:

diagnosis/      What is wrong with a store, and what to do about it
access.py       Who calls from outside, and what such a caller may do
benchmark.py    How fast a store is on this machine: a few seconds each of what an application does most, beside the raw
                limit
board.py        Everything at a glance: queues, workers, what runs, what waits for people, what went wrong last
changes.py      Looking again whenever something changed: hints from the store, and a slow poll behind them
decisions.py    What people are asked: the kinds of requests, and what each decision about an effect in doubt means
forms.py        The JSON of every record, as ``--json`` prints it and as other front ends send it
identify.py     Ids as people type them: whole, or a few characters of the beginning or the end
limits.py       Limits, as far as a task waits for one: which of its keys, and why that has no place
local_run.py    Run one task in this process, and the children it waits for: there may be no other worker to run them
locator.py      Find the application's Holdfast object: ``my_module:hold``, or ``my_module`` where it has only one
next_events.py  What happens to a task by itself, and when: the next try of a step, the next look at a call in doubt
outside.py      What an agent outside does to tasks, under its name: offer, claim, work under a lease, share what it
                knows
overview.py     Everything about one task on one page: what it is, where it stands, what it used, what happened last
reach.py        Whether the model of a task, or of one of its children, was ever reached
readiness.py    Whether a store would serve a request now: it answers, and has the schema of this version
selection.py    Many tasks at once: which ones, and what became of each
service.py      Service: what every front end asks and does, on one open Holdfast
session.py      Which store a command or a server means, and opening it
situation.py    Where a task stands, why, and what could be done next: the sentences every front end shows
step_names.py   Steps as people name them: by their key, by the number in front of them, or by what they are shown as
worker_list.py  Who works: the workers, with what each of them holds
"""
