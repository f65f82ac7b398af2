"""Forks: a new task that shares the past of another one.

Modules:

ancestry.py     Where a fork came from: the line behind the past it shares, and what its code must not notice of it
fork.py         Forks: a new task that shares another one's past up to a step, and has a future of its own
shared_past.py  What a fork shares with its origin: which lines of the journal it gets, and which patches made its state
"""
