"""``holdfast memory``: what is known beyond one task.

group.py      the commands, in the order people meet them
looking.py    recall, search, conflicts, history     changing.py   store, relate, verify, forget
moving.py     export, import                         showing.py    how facts look
options.py    what several of them take
"""
