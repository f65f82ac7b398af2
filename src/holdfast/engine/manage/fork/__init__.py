"""Forks: new tasks that share the past of another task.

Modules:

ancestry.py     The ancestry of a fork: the journal line behind its shared past, and the seeds of its random numbers
fork.py         Making a fork: a new task that shares another task's past up to a step, and goes its own way from there
shared_past.py  What a fork shares with its origin: lines of the journal, and patches of the state
"""
