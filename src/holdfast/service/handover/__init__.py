"""Handover: agents outside take a task from the queue, work on it under a lease, and hand it back.

An agent of another framework has no definition and no worker of ours. It claims a task and gets a lease, a text that it
shows with everything it does. The lease is that of a worker incarnation made for this one claim, so all that protects
workers protects such agents as well: one that stays silent for too long loses the task, and what it sends afterwards is
refused by its fence. Nothing is kept in the server between two calls: any process on the same store takes the lease.

asking       questions to people, and what becomes of the answers
lines        their lines in the journal
offering     what such a task is, and the state it begins with
lease        the text that proves a claim
claiming     taking a task from the queue
holding      what the holder of a lease may do: record steps, ask a person, finish, hand back
writing      how that is written; sweeping: what time made true
facts        what is said again
sharing      what anybody may add to a task's state: facts, artifacts, a plan
"""

from holdfast.service.handover.claiming import Taken, claim
from holdfast.service.handover.holding import Holding
from holdfast.service.handover.lease import Lease
from holdfast.service.handover.offering import offer
from holdfast.service.handover.sharing import Shared, add_artifact, patch_state

__all__ = ["Holding", "Lease", "Shared", "Taken", "add_artifact", "claim", "offer", "patch_state"]
