"""The commands, each in the module of its name; those that belong together share one: `retry` is in resume.py.

Modules:

limits/        ``holdfast limits``: what tasks and steps may do at the same time, or in a time
memory/        ``holdfast memory``: what is known beyond one task
schedules/     ``holdfast schedules``: tasks that are submitted again and again
approvals.py   ``holdfast approvals``, ``approve``, ``reject`` and ``answer``: what tasks ask people
bench.py       ``holdfast bench``: how fast a store is on this machine
budget.py      ``holdfast budget``: what a task may use and has used, and how it gets more
cancel.py      ``holdfast cancel``: stop tasks and their children, for good
config.py      ``holdfast config``: every setting, its value, and where it comes from
doctor.py      ``holdfast doctor``: what is wrong with a store, and what to do about it
doubts.py      ``holdfast doubts`` and ``holdfast resolve``: effects in doubt, whose outcome is unknown
feed.py        ``holdfast feed``: everything that happens, one line each
fork.py        ``holdfast fork``: begin a new task that shares another one's past
history.py     ``holdfast history``: every move of a task
init.py        ``holdfast init``: write a small project that works
list.py        ``holdfast list``: tasks, by filters that combine
mcp.py         ``holdfast mcp``: serve the store to one MCP client over stdin and stdout, until the client leaves
mcp_config.py  What to put into the configuration of an MCP client: to start ``holdfast mcp``, or to reach ``holdfast
               serve``
migrate.py     ``holdfast migrate``: set up a store, or bring an older one to the schema of this version
pause.py       ``holdfast pause``, ``holdfast unpause``: let nothing new begin of a queue, a name, a limit, a schedule
               or a task
prune.py       ``holdfast prune``: delete what ended long ago
queues.py      ``holdfast queues``: what every queue holds; ``holdfast queue``: the settings of one
resume.py      ``holdfast resume`` and ``holdfast retry``: bring failed tasks back
run.py         ``holdfast run``: submit a task and work on it in this process, with everything that happens on the
               screen
send.py        ``holdfast send``: send a message to an agent
serve.py       ``holdfast serve``: offer the store over HTTP until a signal asks to stop
show.py        ``holdfast show``: one task on one screen
state.py       ``holdfast state`` and ``holdfast diff``: what an agent knows, its history, and what changed
steps.py       ``holdfast steps``: the journal of a task
submit.py      ``holdfast submit``: store a task for the workers, and wait for its result if asked to
watch.py       ``holdfast watch``: everything at a glance, as it changes
worker.py      ``holdfast worker``: work on an application's tasks until a signal asks to stop
workers.py     ``holdfast workers``: the workers, and how much of their leases is left
"""
