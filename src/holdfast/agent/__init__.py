"""The agent: a model and its tools in a loop that survives, on the engine's steps, effects, approvals and budgets.

agent.py         Agent, what an application describes; its task runs an AgentRun for each attempt
checking.py      mistakes in describing one
run.py           the loop: think, act, hear what was said meanwhile
beginning.py     how the conversation begins; transcript.py: reading it from the journal
thinking.py      one model call as a step; text_stream.py: its text as it comes
prompting.py     what the model is shown
dispatching.py   the tool calls of an answer; acting.py: one of them as a step; results.py: what it returned
tool.py          @tool: schema, risk, effect; docstrings.py; tool_context.py: what a tool may know
builtins.py      the tools every agent has
subagent.py      an agent as a tool of another
keeping.py       AgentState while it runs; resuming.py: where it comes from after a restart; noting.py
accounting.py    the budget; books.py: its figures; prices.py: what tokens cost
progress.py      noticing an agent that gets nowhere
verifying.py     who says whether the work is good; judging.py: a model's look at it

model.py         the Model protocol; openai_model.py: any OpenAI-compatible endpoint; scripted.py: answers from a script
"""
