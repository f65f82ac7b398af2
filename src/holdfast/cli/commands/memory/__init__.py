"""``holdfast memory``: what is known beyond one task.

Modules:

change.py    ``holdfast memory store``, ``relate``, ``verify`` and ``forget``
group.py     The Typer application of the group
options.py   Arguments and options that several commands of the group share
recall.py    ``holdfast memory recall``, ``search``, ``conflicts`` and ``history``
transfer.py  ``holdfast memory export`` and ``import``: everything as one JSON document, and back
view.py      How facts look
"""
