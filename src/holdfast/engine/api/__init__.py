"""The API of an application: define tasks, submit them and follow them.

Modules:

machine/           Machines: tasks that go through declared states
sync/              hold.sync: the same API for blocking code, on an event loop in its own thread
async_holdfast.py  AsyncHoldfast: all operations of an application on its tasks, for code on an event loop
definition.py      Task definitions: the function that does a task, the one that checks its result, and its policies
feed.py            Feed: everything that happens, as an asynchronous iterator
first_state.py     The first state of an agent's task: from its text, the agent's rules, the task before it, and its
                   start
handle.py          Handle: one task, seen from outside
holdfast.py        Holdfast: the main object of an application
management.py      Operations on existing tasks: resume, retry, cancel, fork, send, patch, decide
new_task.py        New tasks: from the arguments of ``submit`` to the task that is stored
schedules.py       Operations on schedules: make, list, trigger, delete
signatures.py      Signatures of ``submit`` and ``step``: for type checkers, and for the errors about wrong options
start.py           The start of an agent's task: what its state holds from the beginning, as the caller of ``submit``
                   gives it
"""
