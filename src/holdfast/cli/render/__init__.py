"""How things look: from what the service returns to what a terminal shows. No queries, no printing.

Modules:

board.py          Everything at a glance, cut to the height of the screen
decisions.py      What waits for a person: approvals, questions, and effects in doubt
exact.py          Text that a person decides about: nothing in it is dropped, and what is left out is counted
feed.py           One event of the feed, on one line
journal.py        The journal of a task, one line for each step
limit_list.py     Limits, one line for each key
overview.py       One task on one screen
schedule_list.py  Schedules, one line for each
state.py          An agent's state, for people; its history, and what changed in it
steps.py          Steps as people see them: without the lines that the engine writes for itself
table_fit.py      Tables that fit: with too little room, whole columns are left out, in a fixed order, before important
                  text is cut
words.py          Small pieces of every page: states in their colours, values cut to fit, bars
worker_list.py    Queues and workers, one line for each
"""
