"""``holdfast demo``: an agent's worker is really killed in step 8 of 10, and another one finishes the deployment.

The kill comes in the hardest moment: the call has reached the world, and its record has not reached the store.

Modules:

application.py       The application of the demo: an agent that deploys a service in ten steps
command.py           The command ``holdfast demo``
ledger.py            The demo's ledger: one line for everything that reached the world outside, in a plain file that no
                     store knows of
outcome.py           The result of the demo: read back from the store, from the ledger and from the operating system
picture.py           The demo as a picture: what a run has shown, as an SVG file without any other file
scenario.py          What happens in the demo: two real workers, a real SIGKILL for the first of them, and one decision
scene.py             One frame of the demo in a terminal: plan, workers, budget, and the last things that happened
snapshot.py          The demo at one moment, from the store, the ledger and the operating system
stage.py             What people see while the demo runs: a live picture in a terminal, line by line anywhere else
story.py             What has happened so far, as one snapshot of store, ledger and processes shows it
summary.py           What people see when the demo is over: the ledger, step by step, and what it proves
worker_processes.py  The demo's workers: real ``holdfast worker`` processes
"""
