"""Schedules: tasks that are submitted again and again, by whichever worker looks first.

Modules:

declarations.py  Declarations: the schedules in the code of a worker, and whose declaration counts
firer.py         Firer: what a worker does when schedules are due
manage.py        Making, listing, pausing, triggering and deleting schedules, from any process
times.py         Times as a caller writes them: checked, and made part of a spec
"""
