"""What is wrong with a store, and what to do about it. A diagnosis looks and never changes anything.

diagnosing.py   diagnose: every check, in order
finding.py      Finding: what a check has to say        evidence.py    what there is to judge
gathering.py    the one module that looks               filesystem.py  on which kind of file system a file is

The checks are pure: evidence in, findings out.

reaching.py     is the store there, may it be opened    durability.py  does it keep what it acknowledges
working.py      is there somebody to do the work        people.py      does anything wait for a person
growing.py      does it grow too large                  surroundings.py   settings, application, extras
"""
