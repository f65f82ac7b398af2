"""Looking after tasks that exist, from outside their attempts: cancel, revive, decide, patch, fork, remember.

Modules:

fork/                Forks: a new task that shares the past of another one
artifact_sources.py  What an artifact can be written from, as a stream of bytes
artifacts.py         hold.artifacts: large outputs, kept outside the context and shown to a model in excerpts
budget.py            A task's budget from outside: what it has used, and granting it more
cancel.py            Cancelling a task and its children, from wherever somebody asks for it
checkpoints.py       CheckpointManager: snapshots of a task's AgentState, from outside a worker: save, validate and
                     resume, clean up
decide.py            Deciding from outside: approvals, open questions, and effects in doubt
family.py            A task, the tasks below it and those above it, as its budget sees them
memory.py            hold.memory: facts about entities, who said them, and how sure one may still be of them
message.py           Talking to a task: messages that it reads when it is ready for them
past_state.py        What came before a step: the patches that make up an agent's state right after it
rests.py             When a task rested on its worker while it waited for people, or for children: the clock of its
                     budget stood then
revive.py            Bringing failed tasks back: resume goes on where it stopped, retry starts over
state.py             An agent's state, from outside: read it as it is or was, patch it, see how it came about
"""
