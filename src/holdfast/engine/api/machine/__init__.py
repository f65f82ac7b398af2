"""Machine: a task that goes through states which its author declares.

Modules:

machine.py  Machine: a task that goes through states its author declares, one handler for each
visit.py    How a machine goes through its states: replay the recorded moves, then visit a state, check the move, record
            it
"""
