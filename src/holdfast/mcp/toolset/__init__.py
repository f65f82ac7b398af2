"""Tools: what an agent outside may call.

Each is a method of a class that is made for one request. Its docstring is what the calling model reads: when to call
it, what it returns, what an empty answer means. None of them decides an approval, answers for a person or changes a
setting.

Modules:

handover.py      Taking a task over, working on it under a lease, and handing it back; engine/outside/lease_holder.py
                 writes it
inspection.py    Looking at tasks
memory.py        Memory beyond any task
shared_state.py  Changing what is known about a task
submission.py    Submitting and cancelling
toolbox.py       The toolbox: every tool with its schema, its scope, and how a call of it is answered
"""
