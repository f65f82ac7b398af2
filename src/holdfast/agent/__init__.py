"""The agent: a model and its tools in a loop that survives, on the engine's steps, effects, approvals and budgets.

An ``Agent`` is a task. Each attempt at it runs an ``AgentRun``: think (``model_call``), act (``tool_calls``),
read what was said meanwhile.

Modules:

agent.py            Agent: a model, its tools and its limits, as a task that survives everything
arguments.py        The arguments of a tool: read once from what the model wrote, written down, and brought back from
                    exactly that
budget.py           The agent's budget: reserved before a model call, settled in the Commit that records the answer
budget_figures.py   The books of an agent's budget as they were last read: what is left, what a call may take, what is
                    short
builtins.py         Tools every agent has: to keep its plan and facts, to ask a person, to keep and read large things,
                    to remember
description.py      Mistakes in describing an agent, refused where they are made and not when its task is under way
docstrings.py       What a docstring says to a model: what the tool does, and what each parameter means
earlier_calls.py    Calls of earlier rounds: those of the task itself, and those of the other children of its parent
excerpts.py         What the conversation shows of artifacts: excerpts of large results, and what read_artifact returned
finish_reason.py    How an answer of a model ended, and whether the calls it asks for may be made
first_messages.py   How an agent's conversation begins: with what it is asked, what it goes on from, or why its work was
                    rejected
fixed_arguments.py  Readings: what the arguments of tool calls were read as, fixed when the model's answer is recorded
judge.py            A model's look at an agent's result: a model call like any other, recorded and paid for
model.py            Model: the small protocol behind which every language model stands
model_call.py       One model call as a step: admitted by the budget, streamed to whoever watches, recorded, and never
                    asked again
notes.py            Lines of the journal that are complete as soon as they are written: something was read, said or
                    counted
openai_client.py    The HTTP client under OpenAIModel: one connection a call, no redirects, no packing, and errors of a
                    bounded size
openai_errors.py    What an endpoint's failure means: whether to ask again, when, and what a person can do about it
openai_model.py     OpenAIModel: any endpoint that speaks the chat-completions protocol, through the official client
openai_stream.py    A streamed answer of the chat-completions protocol, put together: bytes to events, events to one
                    Reply
openai_wire.py      A Request in the words of the chat-completions protocol
prices.py           What model calls cost
progress.py         Noticing an agent that gets nowhere: the same call with the same result, or answers that make no
                    sense
prompt.py           What a model is shown: the instructions, the relevant part of the state, and as much of the talk as
                    fits
results.py          What a tool returned, made fit for the journal and for a model: large outputs become artifacts
resumption.py       Going on with an agent: its state from the newest good checkpoint and the journal, unless that is
                    too old
round_trip.py       Whether the arguments of a tool come back from what is written down of them as they went in
run.py              One attempt at an agent's task: think, act, hear what was said meanwhile, until the model has
                    nothing left to do
run_state.py        The agent's state while it runs: the fold of the patches in the store, and of its own that are on
                    their way there
script.py           Script: which of the answers written beforehand is next, decided by the conversation and not by a
                    counter
scripted.py         ScriptedModel: answers written beforehand, for tests and demos that run without an endpoint
subagent.py         An agent as a tool of another: a child task with a share of its parent's budget
text_stream.py      Model text as it comes, for whoever watches: events on the task's own channel
tool.py             Tool: a function an agent's model may call, and the terms on which it may
tool_call.py        One tool call that a model asked for, as a step on the tool's own terms
tool_calls.py       The tool calls of an answer: which tool, on which terms, after whose leave
tool_context.py     What a tool may know about the agent that calls it
transcript.py       The conversation of a task, read from its journal: messages are the outputs of its steps
usage.py            What a model call took: as the endpoint says, where that can be, and estimated everywhere else
verifier.py         Who says whether an agent's work is good: code, another look by a model, or a person
"""
