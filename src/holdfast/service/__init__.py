"""What every front end asks and does: reads to look at tasks, verbs to look after them. Front ends hold no queries.

service.py      Service: the door; everything below, on one open Holdfast

identify.py     ids, of which people type a few characters
overview.py     one task on one page            situation.py   where it stands, why, and what next
board.py        everything at a glance          following.py   look again whenever something changed
crew.py         who works, and on how much      selecting.py   many tasks at once, by id or filter
working.py      one task, here and now          migrating.py   set a store up, or upgrade it
diagnosis/      what is wrong with a store, and what to do about it
measuring.py    how fast a store is on this machine
forms.py        the JSON of every record
"""
