"""``holdfast schedules``: tasks that are submitted again and again.

Modules:

change.py  ``holdfast schedules trigger`` and ``delete``
group.py   The Typer application of the group
view.py    ``holdfast schedules``: list them
"""
