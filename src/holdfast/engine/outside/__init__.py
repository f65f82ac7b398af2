"""Handover: agents outside take a task from the queue, work on it under a lease, and hand it back.

An agent of another framework has no definition and no worker of ours. It claims a task and gets a lease, a text that it
shows with everything it does. The lease is that of a worker incarnation made for this one claim, so all that protects
workers protects such agents as well: one that stays silent for too long loses the task, and what it sends afterwards is
refused by its fence. Nothing is kept in the server between two calls: any process on the same store takes the lease.

Modules:

claim.py         Taking a task from the queue, for an agent outside
facts.py         Facts of agents outside: whose they are, and which are repetitions
lease_holder.py  What the holder of a lease may do: complete a step, report, ask, release, finish
lease_token.py   The lease of an agent outside: one text that names the task and the fence, and proves the claim
lines.py         Lines in a task's journal by agents outside
offer.py         Offering work to agents outside: the task, and the state it begins with
questions.py     Questions of agents outside to people
shared_state.py  What agents share about a task: its plan, facts and artifacts, with a lease or without one
start.py         The state that an agent outside has a new task begin with
sweep.py         Expired leases and cancelled tasks of agents outside: no worker looks after them
writer.py        Writing under a lease
"""

from holdfast.engine.outside.claim import ClaimedTask, claim
from holdfast.engine.outside.lease_holder import LeaseHolder
from holdfast.engine.outside.lease_token import LeaseToken
from holdfast.engine.outside.offer import offer
from holdfast.engine.outside.shared_state import SharedState, add_artifact, patch_state

__all__ = ["ClaimedTask", "LeaseHolder", "LeaseToken", "SharedState", "add_artifact", "claim", "offer", "patch_state"]
