"""What all attempts of a process share: group commit, alarms, hints, threads, the store's time.

Modules:

alarms.py       Alarms: callbacks at a time, for all attempts of a process through one sleeping task
batcher.py      Batching: while one call is under way, the next one gathers
commit.py       The Commit of the holder of a task, be it a worker or an agent outside
committer.py    Group commit: the Commits of all attempts of a process, in one durable transaction at a time
log.py          What the engine says, through the standard library's logging, under ``holdfast``
loop_turns.py   Turns of the event loop: what has been done already is replayed without waiting for anything, and so
                would block it
services.py     What every attempt of a Holdfast shares
store_retry.py  Patience with a store that does not answer
store_time.py   The store's time, without asking the store each time
threads.py      Blocking functions run in daemon threads, so that one that hangs blocks neither the loop nor the exit
watcher.py      Watcher: one listener for a whole Holdfast, and whoever in it wants to know about a topic
where.py        Where a call is made: on which event loop, in which of its tasks
"""
