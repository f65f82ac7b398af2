"""``holdfast demo``: a worker process is really killed in step 8 of 10, and another one finishes the deployment.

application.py  the deployment: a task like any other
ledger.py       a plain file, outside the store, that counts what really happened
scenario.py     two real workers, one real SIGKILL
stage.py        what people see of it
command.py      the command

The kill comes in the middle of a step. A kill between an effect and its record is what the effect protocol is for, and
is not shown here.
"""
