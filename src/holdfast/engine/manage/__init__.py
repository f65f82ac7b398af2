"""Managing tasks from outside their attempts: cancel, revive, decide, patch, fork, remember.

Modules:

fork/                Forks: new tasks that share the past of another task
artifact_sources.py  Sources that an artifact can be written from, as a stream of bytes
artifacts.py         hold.artifacts: large outputs, kept outside the context and shown to a model in excerpts
budget.py            A task's budget from outside: read what it has used, and grant it more
cancel.py            Cancelling a task and its children, from any process
checkpoints.py       CheckpointManager: snapshots of a task's AgentState, from outside a worker: save, validate and
                     resume, clean up
decide.py            Deciding from outside: approvals, open questions, and effects in doubt
family.py            A task and the tasks above and below it, as far as its budget needs them
flow.py              Steering all work from any process: what is paused, and how full a queue may be
limits.py            Limits from any process: set them, and read how they stand
memory.py            hold.memory: facts about entities, their sources, and how much confidence is left in them
message.py           Messages to a task, which it reads when it is ready
past_state.py        The past of a step: the patches that make up an agent's state right after it
rests.py             Rests: times in which a task waited on its worker for people or children, and its wall time did not
                     count
revive.py            Reviving failed tasks: resume continues where the task stopped, retry starts it again
state.py             An agent's state, from outside: read it as it is or was, patch it, list its changes
"""
