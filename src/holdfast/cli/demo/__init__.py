"""``holdfast demo``: an agent's worker is really killed in step 8 of 10, and another one finishes the deployment.

The kill comes in the hardest moment: the call has reached the world, and its record has not reached the store.

application.py  the agent and its tools: an application like any other
ledger.py       a plain file, outside the store, that counts what really happened
crew.py         the worker processes, and that none of them is left behind
scenario.py     what happens: two workers, one SIGKILL, one approval
snapshot.py     what store, ledger and processes say at one moment
story.py        what has happened so far, told from a snapshot
outcome.py      what it came to, and what of it did not hold

stage.py        what people see while it goes on: scene.py in a terminal, lines anywhere else
closing.py      what they see at the end
picture.py      the same as an SVG file
command.py      the command
"""
