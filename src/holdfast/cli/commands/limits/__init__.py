"""``holdfast limits``: what tasks and steps may do at the same time, or in a time.

Modules:

change.py  ``holdfast limits set``
group.py   The Typer application of the group
view.py    ``holdfast limits``: how each key of each limit stands
"""
