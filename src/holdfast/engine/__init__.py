"""The engine: durable execution of tasks, step by step, on any store.

The way of a step: ``attempt/context.py`` takes the call, ``steps/`` does it (``effects/`` if it must not happen twice),
``attempt/outbox.py`` writes it under the lease, and ``runtime/committer.py`` makes it durable together with others.

Modules:

api/        The API of an application: define tasks, submit them and follow them
attempt/    One try at one task, from the claim to the Commit that ends it
effects/    Steps that must not be done twice: armed before they are sent, cleared up when in doubt, undone in sagas
manage/     Managing tasks from outside their attempts: cancel, revive, decide, patch, fork, remember
outside/    Handover: agents outside take a task from the queue, work on it under a lease, and hand it back
runtime/    Services that all attempts of a process share: group commit, alarms, hints, threads, the store's time
schedules/  Schedules: tasks that are submitted again and again, by whichever worker looks first
steps/      What a task's code does through ``ctx``: steps, waits, children, questions, transactions, charges
worker/     Workers, their slots and their leases
"""
