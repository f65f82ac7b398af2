"""The agent: a model and its tools in a durable loop, built on the engine's steps, effects, approvals and budgets.

An ``Agent`` is a task. Each attempt at it runs an ``AgentRun``: think (``model_call``), act (``tool_calls``),
read new messages.

Modules:

agent.py            Agent: a model, its tools and its limits, as a durable task
arguments.py        The arguments of a tool: read once from the model's text, recorded, and restored from exactly that
                    record
budget.py           The agent's budget: reserved before a model call, settled in the Commit that records the answer
budget_figures.py   The books of an agent's budget, as last read: what is left, what a call may take, and which account
                    is short
builtins.py         Tools every agent has: to keep its plan and facts, ask a person, keep and read artifacts, and use
                    memory
description.py      Checks of an agent's description: mistakes are refused where they are made, not when its task is
                    under way
docstrings.py       Reads a tool's docstring for a model: what the tool does, and what each parameter means
earlier_calls.py    Calls of earlier rounds: those of the task itself, and those of the other children of its parent
excerpts.py         Artifacts in the conversation: excerpts of large results, and results of read_artifact
finish_reason.py    How an answer of a model ended, and whether the calls it asks for may be made
first_messages.py   How an agent's conversation begins: with its request, an earlier conversation, or the reason of a
                    rejection
fixed_arguments.py  Readings: the arguments of tool calls as they were read, fixed when the model's answer is recorded
judge.py            A model checks an agent's result: an ordinary model call, recorded and paid for
model.py            Model: the small protocol that every language model implements
model_call.py       One model call as a step: admitted by the budget, streamed to watchers, recorded, and never repeated
notes.py            Lines of the journal that are complete as soon as they are written, such as a message that was read
openai_client.py    The HTTP client of OpenAIModel: one connection per call, no redirects, no compression, and errors of
                    limited size
openai_errors.py    What an endpoint's failure means: whether to retry, when, and what a person can do about it
openai_model.py     OpenAIModel: any endpoint that speaks the chat-completions protocol, through the official client
openai_stream.py    Assembles a streamed answer of the chat-completions protocol: bytes to events, events to one Reply
openai_wire.py      A Request in the form of the chat-completions protocol
prices.py           The cost of model calls
progress.py         Detects an agent without progress: the same call with the same result, or answers that make no sense
prompt.py           What a model sees: the instructions, the relevant part of the state, and as much of the conversation
                    as fits
results.py          Prepares a tool's result for the journal and for a model: large results become artifacts
resumption.py       Resuming an agent: its state from the newest good checkpoint and the journal, unless that is too old
round_trip.py       Checks whether the arguments of a tool can be restored unchanged from their record
run.py              One attempt at an agent's task: think, act, read new messages, until the model has nothing left to
                    do
run_state.py        The agent's state while it runs: the patches in the store, plus its own patches that are not stored
                    yet
script.py           Script: chooses the next of the prepared answers by the conversation, not by a counter
scripted.py         ScriptedModel: prepared answers, for tests and demos that run without an endpoint
subagent.py         An agent as a tool of another: a child task with a share of its parent's budget
text_stream.py      Streams model text to watchers as it arrives: events on the task's own channel
tool.py             Tool: a function that an agent's model may call, and its terms
tool_call.py        One tool call that a model asked for, as a step with the tool's own terms
tool_calls.py       The tool calls of an answer: which tool, on which terms, and with whose approval
tool_context.py     What a tool may know about the agent that calls it
transcript.py       The conversation of a task, read from its journal: messages are the outputs of its steps
usage.py            The usage of a model call: as the endpoint reports it if that is plausible, otherwise estimated
verifier.py         Who verifies an agent's result: code, a model, or a person
"""
