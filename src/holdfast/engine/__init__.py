"""The engine: durable execution of tasks, step by step, on any store.

holdfast.py    Holdfast, the object an application holds: define, submit, work; managing.py: look after tasks
definition.py  what a task is made of: its function, verifier and policies
handle.py      what submit returns: result, events, the record
sync.py        hold.sync: the same for blocking code, on loop_thread.py
submission.py running.py cancelling.py reviving.py conversing.py budgets.py      what Holdfast's own verbs do
family.py      a task and all below it, for the clock of its budget
machine.py     tasks that go through states of their author's; visiting.py goes through them

worker.py      claims tasks and fills its slots
host.py        runs attempts under one incarnation of a worker: lease, heartbeat, take-overs, hand-backs
lease.py       the local end of a lease, counted on the boot clock
slots.py       who works, who only waits, and who is next

attempt.py     one try at one task, from the claim to the Commit that ends it; outbox.py: all that it writes
context.py     ctx: what a task function sees of it
journal.py     keys, positions and replay; scope.py: steps inside steps
calls.py       what a step calls, and the terms on which it may touch the world
stepping.py    doing one step: replay, or try and record
trying.py      one try: for how long, and what follows if it fails
waiting.py     sleep and events: waits that outlive the process; children.py: tasks that a task submits
parking.py     branches that wait, and taking the task off its worker when all of them do
quiescence.py  when that is proven
outcome.py     how an attempt ended, as the Commit that says so

effecting.py   a step that must not be done twice: arm, check, dispatch, record
carrying.py    intents that ride in the Commit of the step before
intents.py     the effects of one attempt, and which of them it armed
doubting.py    clearing up an effect in doubt: settle, evidence, reconcile, a person
reporting.py   evidence: what was learned too late
liveness.py    proof that a process is gone
undoing.py     sagas
stating.py     an agent's state, from outside; past.py: what it was after a step
start.py       what an agent's state is submitted with; first_state.py: what it begins with
forking.py     a new task with another one's past; sharing.py: how much of it; ancestry.py: how it knows

approving.py   asking a person from inside a task; deciding.py: deciding from outside
transacting.py the user's own SQL and the journal in one transaction

stating.py     an agent's state from outside: read, patch, compare; past.py: what it was at a step
forking.py     a new task from a step of another; sharing.py: what they share; ancestry.py: where it came from
checkpointing.py  CheckpointManager
artifacts.py   hold.artifacts; sources.py: what they are written from
remembering.py hold.memory

committer.py   group commit: while one batch is made durable the next gathers
batching.py    the same for any call that takes many
defiance.py    code that catches its own stop, and how it is left; exits.py: what is no Exception, and whose it is
alarms.py threads.py crossing.py watcher.py storetime.py turns.py      time, blocking code, hints, turns of the loop
"""
