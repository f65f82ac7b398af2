"""Pure data and pure decisions: no I/O, and time only ever passed in.

Modules:

agent_state.py      AgentState: everything an agent knows about its run, as a contract and not as a transcript
approval.py         Approval: a recorded request for a human decision, and the record of who decided what
budget.py           Budget: what a task may use
canonical.py        Canonical JSON: one value, one byte string, so that digests and comparisons of stored bytes mean
                    something
checkpoints.py      Checkpoints: when an agent's journal is made durable, and snapshots of its state to resume from
checks.py           Checks of input: reject names, text and times that some store could not hold
clock.py            The one source of time
codec.py            The typed codec: it turns every step result, input and state into stored bytes and back
commit.py           Commit: an atomic set of operations on one task, and the verdict on it
context_slice.py    ContextSlice: the part of an AgentState that one model call sees
deadline.py         Deadlines: absolute moments by which something must be over, for a whole task and for each step
doubt.py            Doubt: an effect with an unknown outcome, who is asked about it, and what can be decided
due_schedule.py     A due schedule: what it does, decided apart from doing it
effect.py           Effect: what a step did to the world, and what is known about it
errors.py           Every error Holdfast raises on purpose
excerpt.py          Excerpts: the parts that a model sees of a text that is too large for its context
failure.py          Failure: an error as the journal keeps it, after the exception itself is gone
feed.py             The feed: one line of everything that happens to all tasks, and which part of it a reader wants
flatten.py          Turn a Python value into JSON data plus tags, and back: the two halves of the typed codec
flow_limit.py       Limits: how much all workers together may do at the same time, or in a time, under a name that they
                    share
glyphs.py           Characters that a reader does not see or mistakes for others, shown as escapes
history.py          Compacting a conversation: drop the oldest messages so that the rest is still a conversation a model
                    accepts
ids.py              Identifiers: UUID version 7, so that ids made later sort later and inserts stay at one end of an
                    index
json_object.py      Read JSON objects field by field; reject a missing, wrong or unknown field with the path to it
labels.py           Labels: short names with a value, by which people find tasks again
large_values.py     Large values: encoded and decoded in pieces, so that the caller can let other code run between two
                    pieces
limits.py           How large and how deep a stored value may be, and the errors for values beyond that
line_search.py      A search for lines in a stream, with limits: grep for a model
machine.py          The table of a state machine that a user declares: its states, the moves it allows, and its diagram
memory.py           Memory: rules for storing, verifying and importing facts, and how confidence fades
memory_document.py  Memory as one JSON document, for a backup or an import into another store
message.py          The conversation of an agent and its model, as data: messages, tool calls, replies, usage
operations.py       Operations: what a Commit can do to its task, and what a waiting task can wait for
patch.py            StatePatch: the only way an AgentState changes
pause.py            Pauses: queues, task names, limits, schedules and tasks of which nothing new begins until they are
                    unpaused
payload.py          Payloads: typed values inside a task's record, where people and other programs read plain JSON
pieces.py           Pieces: long work that its caller can interrupt between two pieces
proof.py            Which errors prove that nothing happened
queries.py          Queries on a store: filters, pages, counts, a task with its whole journal, and the health of the
                    store
queue_settings.py   Settings of a queue: what its owner allows, whatever worker or caller comes
records.py          The other things a store keeps: patches, checkpoints, artifacts, events, facts, budgets
remarks.py          Remarks: redacts the texts in a Commit that explain what went wrong and why, and leaves the data of
                    tasks alone
restore.py          Build typed values from plain data, by a type annotation of the caller
retry.py            Retry: when to try again, decided apart from doing it
risk.py             Risk levels: how much a tool can do to the world, and so whether a person has to agree first
route.py            Route: the code that an error passed on its way from where it was raised to where it was caught
schedule.py         Schedules: what is submitted again and again, at which times, and what is known of the runs so far
size.py             The size in bytes of Commits and new tasks, and how many of them are sent to a store together
state_diff.py       What changed between two AgentStates, in words; used by ``holdfast diff`` and the dashboard
state_size.py       How large an AgentState, a patch and a message may be
step.py             Step: one unit of work inside a task, journaled under a key
tags.py             The closed set of types beyond JSON that are stored exactly, each under a short tag
task.py             Task: one piece of work that a user, a parent or a schedule asked for
ticks.py            Ticks: the moments at which a schedule fires
tokens.py           How much room a text takes in a model's context: its bytes (exact) and its tokens (estimated)
transitions.py      The life of a task: the one table of allowed moves
utf8.py             UTF-8 that is cut, damaged or not text at all
walltime.py         How long a task has been at work: the clock of ``max_wall_time_ms``
words.py            The words by which facts are found
worker.py           Workers and leases: who works on what, until when, and when a task that kills its workers is poison
"""
