"""Services that all attempts of a process share: group commit, alarms, hints, threads, the store's time.

Modules:

alarms.py          Alarms: timed callbacks for all attempts of a process, through one sleeping asyncio task
batcher.py         Batching: while one call is under way, items gather for the next call
committer.py       Group commit: the Commits of all attempts of a process, in one durable transaction at a time
feed_pump.py       FeedPump: reads the feed once for all readers of a Holdfast, and keeps the last events for them
log.py             The log lines of the engine, in the standard library's logging, under ``holdfast``
loop_turns.py      Turns of the event loop: a limit on replay, which waits for nothing and would otherwise block the
                   loop
permit.py          Permit: the right of a step to use the keys of its limits, until its call has ended; and how permits
                   are given back
permit_request.py  A step that waits for a permit, and where its attempt is meanwhile
permits.py         Permits of steps: one object of the process asks the store for all of them, and gives them back
services.py        Services: the objects that every attempt of a Holdfast shares
store_retry.py     Retries of calls to a store that does not answer
store_time.py      The store's time, without asking the store each time
threads.py         Daemon threads for blocking functions: a function that hangs blocks neither the event loop nor the
                   exit
watcher.py         Watcher: one listener for a whole Holdfast, which passes hints on to the watchers of a topic
where.py           Where a call is made: on which event loop, in which asyncio task
"""
