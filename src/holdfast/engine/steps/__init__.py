"""What a task's code does through ``ctx``: steps, waits, children, questions, transactions, charges.

Modules:

approval.py          Asking a person, from inside a task: the question is a record, and the task waits for its answer
                     without a worker
call.py              What a step calls: the function, its arguments, and the terms for its effect on the world
charge.py            Counting against a task's budget: what ``ctx.charge`` and ``hold.charge`` do
children.py          Children of a task: submitted once under their key, waited for, and begun again together with their
                     parent
one_try.py           One try of a step: its timeout, its result, and what follows if it fails
open_transaction.py  Transaction: an open transaction of the store's database, as the user's function sees it
permit.py            The permit of a step under limits: taken after its slot, and before anything is armed or called
quiescence.py        When a task can be taken off its worker: every branch of its code is parked on a durable wait
step.py              Doing one step: replay it if it is recorded; otherwise try, classify, record, and try again
suspension.py        Suspension: branches that wait for something outside park, and the task leaves its worker when all
                     of them do
transaction.py       Doing a transaction: the task's own SQL and the line of its journal, in one transaction of the
                     database
waits.py             Waits that survive a restart of the process: timers and events
"""
