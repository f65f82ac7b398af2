"""Pure data and pure decisions: no I/O, and time only ever passed in.

Modules:

agent_state.py      AgentState: everything an agent knows about its run, as a contract and not as a transcript
approval.py         Approval: a recorded request for a human decision, and the record of who decided what
budget.py           Budget: what a task may use
canonical.py        Canonical JSON: one value, one byte string, so that digests and comparisons of stored bytes mean
                    something
checkpoints.py      Checkpoints: when an agent's journal is made durable, and snapshots of its state to resume from
checks.py           What is refused at the door: names, text and times that some store could not hold
clock.py            The one door for time
codec.py            The typed codec: what every step result, input and state passes through on its way to the store and
                    back
commit.py           Commit: an atomic set of operations on one task, and the verdict on it
context_slice.py    ContextSlice: the part of an AgentState that one model call is shown
deadline.py         Deadlines: absolute moments by which something must be over, for a whole task and for each step
doubt.py            Doubt: an effect nobody here knows the outcome of, who is asked about it, and what can be decided
effect.py           Effect: what a step did to the world, and what we can honestly say about it
errors.py           Every error Holdfast raises on purpose
excerpt.py          Excerpts: what a model is shown of a text that is too large for its context
failure.py          Failure: an error as the journal keeps it, after the exception itself is gone
flatten.py          Turn a Python value into JSON data plus tags, and back: the two halves of the typed codec
glyphs.py           Characters that a reader does not see, or takes for others, written as what they are
history.py          Compacting a conversation: the oldest of it goes, and what is left is still one that a model accepts
ids.py              Identifiers: UUID version 7, so that ids made later sort later and inserts stay at one end of an
                    index
json_object.py      Read JSON objects field by field, refusing what is missing, wrong or unknown with the path to it
limits.py           How large and how deep a stored value may be, and the words in which it is refused
line_search.py      Looking for lines, in a stream and within bounds: grep for a model
machine.py          The table of a state machine that a user declares: its states, the moves it allows, and its diagram
memory.py           Memory: what follows when a fact is stored, verified or imported, and how sure one may still be of
                    it
memory_document.py  Memory as one JSON document, to be kept elsewhere or brought into another store
message.py          What an agent and its model say to each other, as data: messages, tool calls, replies, usage
operations.py       Operations: what a Commit can do to its task, and what a waiting task can wait for
patch.py            StatePatch: the only way an AgentState changes
payload.py          Payloads: typed values inside a task's record, where people and other programs read plain JSON
proof.py            Which errors prove that nothing happened
queries.py          What can be asked of a store: filters, pages, counts, a task with its whole journal, and how the
                    store itself is
records.py          The other things a store keeps: patches, checkpoints, artifacts, events, facts, budgets
remarks.py          Remarks: the texts in a Commit that say what went wrong and why, as opposed to the data of tasks
restore.py          Build typed values from plain data, by a type annotation the caller holds
retry.py            Retry: when to try again, decided apart from doing it
risk.py             Risk levels: how much a tool can do to the world, and so whether a person has to agree first
route.py            Route: the code that an error passed on its way from where it was raised to where it was caught
size.py             How many bytes Commits and new tasks bring to a store, and how many of them go there together
state_diff.py       What changed between two AgentStates, in words; used by ``holdfast diff`` and the dashboard
state_size.py       How large an AgentState may become, and what changes it
step.py             Step: one unit of work inside a task, journaled under a key
tags.py             The closed set of types beyond JSON that are stored exactly, each under a short tag
task.py             Task: one piece of work somebody asked for
tokens.py           How much room a text takes in front of a model: its bytes, which are exact, and its tokens, which
                    are estimated
transitions.py      The life of a task: the one table of allowed moves
utf8.py             UTF-8 that is cut, strange or no text at all
walltime.py         How long a task has been at work: the clock of ``max_wall_time_ms``
words.py            The words by which facts are found
worker.py           Workers and leases: who works on what, and until when
"""
