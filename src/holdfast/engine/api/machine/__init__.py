"""Machines: tasks that go through declared states.

Modules:

machine.py  Machine: a task that goes through declared states, with one handler for each state
visit.py    Visits of a machine: replay the recorded moves, then visit a state, check the move, record it
"""
