"""What an application holds: it defines tasks, submits them and follows them.

Modules:

machine/           Machine: a task that goes through states which its author declares
sync/              hold.sync: the same for blocking code, on an event loop in a thread of its own
async_holdfast.py  AsyncHoldfast: everything that an application does with its tasks, for code on an event loop
definition.py      What a task is made of: the function that does it, the one that checks it, and its policies
first_state.py     The first state of an agent's task: the text, the rules of the agent, what it goes on from and is
                   submitted with
handle.py          Handle: what submit returns, and what any process can make from an id
holdfast.py        Holdfast: the object an application holds
management.py      What can be done about tasks that exist: bring them back, stop them, talk to them, decide what they
                   ask
new_task.py        From what a caller says to a task that is stored
signatures.py      What may be written behind ``submit`` and ``step``: for type checkers, and for the error when it is
                   something else
start.py           The start of an agent's run: what its state holds from the beginning, as whoever submits the task
                   says it
"""
